"""Reports of stalled ranks to the control plane, and what it finds in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, TypeAlias

from ringcast._util.dataclass import dataclass
from ringcast.wire.codec import Count, Rank, Within

# At most so many operations under way, ended calls and communicators are in a report, which has to fit a frame.
REPORTED, ENDED, KNOWN = 64, 8, 1000


@dataclass(frozen=True, slots=True)
class CallRecord:
    """A stage of a call that a rank has made, as other ranks know it."""

    context: Count
    number: Annotated[int, Within(-(1 << 63), (1 << 63) - 1)]  # of the operation; 0: point-to-point, -n: agreement n
    fingerprint: Count
    text: str
    site: str  # "file.py:12"; empty where that is not known


@dataclass(frozen=True, slots=True)
class OperationReport:
    """An operation that is not complete, and the ranks that it waits for."""

    call: CallRecord
    round: Count | None
    waits: tuple[Rank, ...]  # the wait-for set: the ranks from which it needs a message …
    sources: tuple[Rank, ...]  # those from which it receives
    owes: tuple[Rank, ...]  # ranks to which it withholds a grant until it has received from `sources`
    every: bool = True  # … of all of them; else of any


@dataclass(frozen=True, slots=True)
class StallReport:
    """The report of a stalled rank: its operations under way, those its program waits for, and its message counts."""

    rank: Rank
    operations: tuple[OperationReport, ...]  # first those for which the program waits …
    awaited: Count  # … which are so many …
    every: bool  # … and have to end before it goes on: all of them, else any
    begun: Mapping[Count, Count]  # number of the last call that it has made, by communicator
    sent: Mapping[Rank, Count]  # messages ever, by rank, without keepalives
    seen: Mapping[Rank, Count]
    ended: tuple[CallRecord, ...] = ()  # the last calls that have ended in the communicators of `operations`
    seconds: float = 0.0  # that the program has waited
    times: Count = 1  # how often this wait was reported

    @property
    def contexts(self) -> frozenset[int]:
        """The communicators in which collectives are under way: no agreements."""
        return frozenset(op.call.context for op in self.operations if op.call.number >= 0)


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Finding for `rank`: `peer` made another call."""

    rank: Rank
    context: Count
    number: int
    peer: Rank
    mine: str
    my_site: str
    theirs: str
    their_site: str


@dataclass(frozen=True, slots=True)
class Deadlock:
    """Finding for `rank`: it is in a cycle of ranks in which each waits for the next one."""

    rank: Rank
    context: Count
    number: int
    seconds: float
    cycle: tuple[Rank, ...]
    calls: tuple[str, ...]  # of the first ranks of the cycle, with their places


Finding: TypeAlias = Mismatch | Deadlock
