"""Define the messages between the launcher and the process manager of each host: commands and reports."""

from __future__ import annotations

from typing import Any, TypeAlias, get_args

from ringcast._util.dataclass import dataclass
from ringcast.monitoring.progress import ProgressSnapshot
from ringcast.monitoring.rank_state import States
from ringcast.procs.liveness import Activity
from ringcast_launcher.decide.supervisor import Exited, Fence, Fenced, SendSignal, Signalled


@dataclass(frozen=True, slots=True)
class Start:
    """Start the workers of these ranks; answered by Started or NotStarted.

    An agent that is asked to end passes the signal on, and gives its ranks `grace` seconds.
    `environment` is common to all of them (on another host it is added to the login environment); `world` are the
    common RINGCAST_* variables; `node` is the number of the host; the rank `stdin` gets standard input, and
    `debug` runs in the debugger (-1: none does).
    """

    ranks: tuple[int, ...]
    argv: tuple[str, ...]
    environment: dict[str, str]
    world: dict[str, str]
    directory: str
    node: int = 0
    stdin: int = -1
    debug: int = -1
    grace: float = 0.0


@dataclass(frozen=True, slots=True)
class AskActivity:
    """Ask for the activity of a rank's processes; `speaker` is the one that joined. Answered by ProcessActivity."""

    rank: int
    speaker: int


@dataclass(frozen=True, slots=True)
class HoldOutput:
    """Stop reading the output of the workers, or resume."""

    held: bool


@dataclass(frozen=True, slots=True)
class Input:
    """Standard input for a rank; empty data means the end. Answered by InputTaken."""

    rank: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop all workers; the launcher is silent until SendSignal(SIGCONT). Answered by Stopped."""


@dataclass(frozen=True, slots=True)
class AskStacks:
    """Ask for the Python stacks of all ranks, or of their programs only; answered by Stacks."""

    whole: bool = False


@dataclass(frozen=True, slots=True)
class AskStates:
    """Ask for the states of all ranks; answered by States."""


@dataclass(frozen=True, slots=True)
class AskProgress:
    """Ask for a summary of the ranks' progress; answered by Progress."""


@dataclass(frozen=True, slots=True)
class Finish:
    """End all remaining processes and read the rest of the output; answered by Finished.

    Before that come the Records, or ProfileParts, of the ranks, where they are wanted.
    """

    records: bool
    profiles: bool = False


@dataclass(frozen=True, slots=True)
class JobEnd:
    """The end of the job: its exit code, the text of the cause if there is one, and whether the job is started `again`.

    Sent to nodes that joined by themselves; agents started by a command end with their input.
    """

    code: int
    words: str
    again: bool


@dataclass(frozen=True, slots=True)
class AgentHello:
    """The first message of an agent: versions, its host's own name, and the launcher's address as seen there."""

    version: str
    python: str
    host: str
    launcher: str  # "" if unknown


@dataclass(frozen=True, slots=True)
class NodeHello:
    """The second message of a joining node: its number, the number of nodes, its ranks and its program."""

    node: int
    nnodes: int
    ranks: int
    program: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Started:
    """The workers run; `limits` are the variables by which they share the cores."""

    pids: dict[int, int]  # by rank
    limits: dict[str, str]


@dataclass(frozen=True, slots=True)
class NotStarted:
    """Not all workers could be started; `code` is the exit code for the job."""

    reason: str
    code: int


@dataclass(frozen=True, slots=True)
class Output:
    """Output of a rank, from its standard output (1) or error (2); empty data means the end of the stream."""

    rank: int
    stream: int
    data: bytes


@dataclass(frozen=True, slots=True)
class InputTaken:
    """A rank has read more bytes of its standard input; `closed`: it will read nothing more."""

    rank: int
    size: int
    closed: bool


@dataclass(frozen=True, slots=True)
class ProcessActivity:
    """The activity of a rank's processes."""

    rank: int
    activity: Activity


@dataclass(frozen=True, slots=True)
class Stacks:
    """The Python stacks of the ranks, as text."""

    texts: dict[int, str]


@dataclass(frozen=True, slots=True)
class Progress:
    """A summary of the ranks of one host."""

    snapshot: ProgressSnapshot


@dataclass(frozen=True, slots=True)
class Record:
    """The contents of a rank's flight recorder."""

    rank: int
    image: bytes


@dataclass(frozen=True, slots=True)
class ProfilePart:
    """The part of the profile that a rank has written."""

    rank: int
    data: bytes


@dataclass(frozen=True, slots=True)
class HostFinished:
    """No process of this host's ranks is left; this is the last report."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """All workers are stopped."""


@dataclass(frozen=True, slots=True)
class HostLost:
    """The host is lost, and its ranks with it; made by the launcher itself, never sent."""

    cause: str


Command: TypeAlias = (
    Start
    | Fence
    | SendSignal
    | AskActivity
    | HoldOutput
    | Input
    | Stop
    | AskStacks
    | AskStates
    | AskProgress
    | Finish
    | JobEnd
)
Report: TypeAlias = (
    AgentHello
    | NodeHello
    | Started
    | NotStarted
    | Output
    | InputTaken
    | Exited
    | Fenced
    | ProcessActivity
    | Stopped
    | Signalled
    | Stacks
    | States
    | Progress
    | Record
    | ProfilePart
    | HostFinished
    | HostLost
)

COMMANDS: tuple[type[Any], ...] = get_args(Command)
REPORTS: tuple[type[Any], ...] = tuple(kind for kind in get_args(Report) if kind is not HostLost)


def ranks_of(report: Report) -> frozenset[int]:
    """Return the ranks that a report is about.

    >>> sorted(ranks_of(Started({3: 100, 5: 101}, {})))
    [3, 5]
    """
    match report:
        case Output() | InputTaken() | Exited() | Fenced() | ProcessActivity() | Record() | ProfilePart():
            return frozenset([report.rank])
        case Started(ranks) | Stacks(ranks):
            return frozenset(ranks)
        case States(states):
            return frozenset(state.rank for state in states)
    return frozenset()
