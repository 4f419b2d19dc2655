"""What the launcher tells the crew of a host, and the crew the launcher: plain values, here and across hosts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

from ringcast.glance import Glance
from ringcast.silence import Activity
from ringcast_launcher.frames import FrameError
from ringcast_launcher.supervisor import Exited, Fence, Send


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
class Look:
    """Look what the processes of a rank do, of which `speaker` is the one that has joined; answered by Seen."""

    rank: int
    speaker: int


@dataclass(frozen=True, slots=True)
class Hold:
    """Read no more output of the workers for now, or go on."""

    held: bool


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop all workers; the launcher will be silent until Send(SIGCONT)."""


@dataclass(frozen=True, slots=True)
class AskStacks:
    """Tell the Python stacks of all ranks; answered by Stacks."""


@dataclass(frozen=True, slots=True)
class AskStates:
    """Tell what all ranks do; answered by States."""


@dataclass(frozen=True, slots=True)
class AskGlance:
    """Tell in short what the ranks do; answered by Glimpse."""


@dataclass(frozen=True, slots=True)
class Finish:
    """End what the workers left running, take the rest of the output; answered by Record (if wanted) and Finished."""

    records: bool


@dataclass(frozen=True, slots=True)
class Hello:
    """An agent is there: what it runs, its host's own name, and the launcher's address as seen from there."""

    version: str
    python: str
    host: str
    launcher: str  # "" where that is not known


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
class Seen:
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
    """What the ranks do: rows of the table of `ringcast ps`."""

    rows: dict[int, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Glimpse:
    """What the ranks do, in short: the fields of a `ringcast.glance.Glance`."""

    ranks: int
    operations: dict[str, int]
    sent: int
    drawing: bool

    @property
    def glance(self) -> Glance:
        return Glance(self.ranks, Counter(self.operations), self.sent, self.drawing)


@dataclass(frozen=True, slots=True)
class Record:
    """What a rank's flight recorder holds."""

    rank: int
    image: bytes


@dataclass(frozen=True, slots=True)
class Finished:
    """Of the crew's ranks nothing is left, and nothing more will be told."""


@dataclass(frozen=True, slots=True)
class Gone:
    """A host is not heard of any more, and its ranks cannot live."""

    cause: str


Order: TypeAlias = Start | Fence | Send | Look | Hold | Stop | AskStacks | AskStates | AskGlance | Finish
Report: TypeAlias = (
    Hello
    | Started
    | NotStarted
    | Output
    | Exited
    | Fenced
    | Seen
    | Stacks
    | States
    | Glimpse
    | Record
    | Finished
    | Gone
)

_ORDERS: tuple[type[Any], ...] = (Start, Fence, Send, Look, Hold, Stop, AskStacks, AskStates, AskGlance, Finish)
_REPORTS: tuple[type[Any], ...] = (
    *(Hello, Started, NotStarted, Output, Exited, Fenced),
    *(Seen, Stacks, States, Glimpse, Record, Finished),
)
_KINDS = {kind.__name__: kind for kind in (*_ORDERS, *_REPORTS)}


def plain(item: Order | Report) -> list[Any]:
    """Return an order or a report as plain values.

    >>> plain(Fence(3))
    ['Fence', 3]
    """
    return [type(item).__name__, *(getattr(item, field.name) for field in fields(item))]


def parse(message: Any) -> Any:
    """Return the order or report that `plain` made a message of.

    Raises:
        FrameError: it is none.
    """
    match message:
        case [str(name), *values] if name in _KINDS and len(values) == len(fields(_KINDS[name])):
            return _KINDS[name](*(tuple(value) if isinstance(value, list) else value for value in values))
    raise FrameError(f"a message is not understood: {message!s:.80}")
