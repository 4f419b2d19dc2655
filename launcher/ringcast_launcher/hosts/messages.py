"""What the launcher tells the crew of a host, and the crew the launcher: plain values, here and across hosts."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, TypeAlias, get_args, get_origin, get_type_hints

from ringcast.monitoring.progress import ProgressSnapshot
from ringcast.monitoring.rank_state import State, from_plain
from ringcast.procs.liveness import Activity
from ringcast_launcher.decide.supervisor import Exited, Fence, SendSignal, Signalled
from ringcast_launcher.hosts.codec import FrameError


@dataclass(frozen=True, slots=True)
class Start:
    """Start the workers of these ranks; answered by Started or NotStarted.

    `environment` is that of all of them, on another host beside that of the login there; `world` the RINGCAST_*
    variables that they have in common; `node` the number of the host.
    """

    ranks: tuple[int, ...]
    argv: tuple[str, ...]
    environment: dict[str, str]
    world: dict[str, str]
    directory: str
    node: int = 0


@dataclass(frozen=True, slots=True)
class AskActivity:
    """Look what the processes of a rank do, of which `speaker` is the one that has joined; answered by Seen."""

    rank: int
    speaker: int


@dataclass(frozen=True, slots=True)
class HoldOutput:
    """Read no more output of the workers for now, or go on."""

    held: bool


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop all workers; the launcher will be silent until Send(SIGCONT). Answered by Stopped."""


@dataclass(frozen=True, slots=True)
class AskStacks:
    """Tell the Python stacks of all ranks; answered by Stacks."""


@dataclass(frozen=True, slots=True)
class AskStates:
    """Tell what all ranks do; answered by States."""


@dataclass(frozen=True, slots=True)
class AskProgress:
    """Tell in short what the ranks do; answered by Glimpse."""


@dataclass(frozen=True, slots=True)
class Finish:
    """End what the workers left running, take the rest of the output; answered by Record (if wanted) and Finished."""

    records: bool


@dataclass(frozen=True, slots=True)
class JobEnd:
    """The job is over, to be started `again` or not: its exit code, and the words that tell the cause, if there is one.

    It is for launchers that came by themselves; others end with their input.
    """

    code: int
    words: str
    again: bool


@dataclass(frozen=True, slots=True)
class Hello:
    """An agent is there: what it runs, its host's own name, and the launcher's address as seen from there."""

    version: str
    python: str
    host: str
    launcher: str  # "" where that is not known


@dataclass(frozen=True, slots=True)
class NodeHello:
    """After Hello, from a launcher that came by itself: which node of how many it is, for how many ranks of what."""

    node: int
    nnodes: int
    ranks: int
    program: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Started:
    """The workers run; `limits` are the variables that share the cores among them."""

    pids: dict[int, int]  # by rank
    limits: dict[str, str]


@dataclass(frozen=True, slots=True)
class NotStarted:
    """Nothing was started, or not all; `code` is the exit code that this stands for."""

    reason: str
    code: int


@dataclass(frozen=True, slots=True)
class Output:
    """What a rank wrote to its standard output (1) or error (2); nothing at the end of it."""

    rank: int
    stream: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Fenced:
    """Of a rank that was to be fenced no process is left."""

    rank: int


@dataclass(frozen=True, slots=True)
class ProcessActivity:
    """What the processes of a rank do."""

    rank: int
    states: str
    seconds: float
    bytes: int
    traced: bool

    @property
    def activity(self) -> Activity:
        return Activity(self.states, self.seconds, self.bytes, self.traced)


@dataclass(frozen=True, slots=True)
class Stacks:
    """The Python stacks of the ranks, as text."""

    texts: dict[int, str]


@dataclass(frozen=True, slots=True)
class States:
    """What the ranks do: the fields of a `ringcast.monitoring.rank_state.State` of each."""

    fields: dict[int, dict[str, Any]]

    def __post_init__(self) -> None:
        """Look whether they are such states.

        Raises:
            ValueError: they are not.
        """
        if any(state.rank != rank for rank, state in zip(self.fields, self.states, strict=True)):
            raise ValueError("a state of another rank")

    @property
    def states(self) -> list[State]:
        return [from_plain(fields) for fields in self.fields.values()]


@dataclass(frozen=True, slots=True)
class Progress:
    """What the ranks do, in short: the fields of a `ringcast.monitoring.progress.ProgressSnapshot`."""

    ranks: int
    operations: dict[str, int]
    sent: int
    drawing: bool

    @property
    def glance(self) -> ProgressSnapshot:
        return ProgressSnapshot(self.ranks, Counter(self.operations), self.sent, self.drawing)


@dataclass(frozen=True, slots=True)
class Record:
    """What a rank's flight recorder holds."""

    rank: int
    image: bytes


@dataclass(frozen=True, slots=True)
class Finished:
    """Of the crew's ranks nothing is left, and nothing more will be told."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """All workers are stopped."""


@dataclass(frozen=True, slots=True)
class HostLost:
    """A host is not heard of any more, and its ranks cannot live."""

    cause: str


Command: TypeAlias = (
    Start | Fence | SendSignal | AskActivity | HoldOutput | Stop | AskStacks | AskStates | AskProgress | Finish | JobEnd
)
Report: TypeAlias = (
    Hello
    | NodeHello
    | Started
    | NotStarted
    | Output
    | Exited
    | Fenced
    | ProcessActivity
    | Stopped
    | Signalled
    | Stacks
    | States
    | Progress
    | Record
    | Finished
    | HostLost
)

_COMMANDS: tuple[type[Any], ...] = get_args(Command)
_REPORTS: tuple[type[Any], ...] = tuple(kind for kind in get_args(Report) if kind is not HostLost)  # which is not sent
_KINDS = {kind.__name__: kind for kind in (*_COMMANDS, *_REPORTS)}


def plain(item: Command | Report) -> list[Any]:
    """Return an order or a report as plain values.

    >>> plain(Fence(3))
    ['Fence', 3]
    """
    return [type(item).__name__, *(getattr(item, field.name) for field in fields(item))]


def parse_command(message: Any) -> Command:
    """Return the order that `plain` made a message of.

    Raises:
        FrameError: it is none.
    """
    command: Command = _parsed(message, _COMMANDS)
    return command


def parse_report(message: Any) -> Report:
    """Return the report that `plain` made a message of.

    Raises:
        FrameError: it is none.
    """
    report: Report = _parsed(message, _REPORTS)
    return report


def ranks_of(report: Report) -> frozenset[Any]:
    """Return of which ranks a report tells.

    >>> sorted(ranks_of(Started({3: 100, 5: 101}, {})))
    [3, 5]
    """
    match report:
        case Output() | Exited() | Fenced() | ProcessActivity() | Record():
            return frozenset([report.rank])
        case Started(ranks) | Stacks(ranks) | States(ranks):
            return frozenset(ranks)
    return frozenset()


def _parsed(message: Any, kinds: tuple[type[Any], ...]) -> Any:
    match message:
        case [str(name), *values] if _KINDS.get(name) in kinds and len(values) == len(_types(name)):
            values = [tuple(value) if isinstance(value, list) else value for value in values]
            if all(isinstance(value, kind) for value, kind in zip(values, _types(name), strict=True)):
                with suppress(ValueError):
                    return _KINDS[name](*values)
    raise FrameError(f"a message is not understood: {message!s:.80}")


@cache
def _types(name: str) -> list[Any]:
    """Return the types of what an order or a report has, without those of what is in them."""
    hints = get_type_hints(kind := _KINDS[name])
    return [get_origin(hints[field.name]) or hints[field.name] for field in fields(kind)]
