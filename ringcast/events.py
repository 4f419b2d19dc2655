"""Events of a schedule's run: plain data for traces, benchmarks and the simulator alike.

Times are seconds on the clock of the transport that ran the schedule (virtual on the simulated wire).
`ringcast.monitoring.trace` evaluates the events of a whole job.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ringcast._util.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class RoundStart:
    """A rank begins a round: it has posted its send and its receive."""

    rank: int
    operation: str
    number: int  # of the stage, as in the header of its messages; equal on all ranks
    round: int
    time: float
    send_to: int | None
    sent: int  # bytes
    recv_from: int | None
    ready: float | None = None  # since when it could receive, where that is before `time`


@dataclass(frozen=True, slots=True)
class RoundEnd:
    """A rank ends a round; `wait` is the time since its start, in which the rank only sent and received."""

    rank: int
    operation: str
    number: int
    round: int
    time: float
    received: int  # bytes
    wait: float
    arrived: float | None = None  # when the last received byte was in place; None: not known, or nothing came


Event: TypeAlias = "RoundStart | RoundEnd"
Observer: TypeAlias = Callable[[Event], None]
