"""Division of each rank's time into transfer, local work and idle time.

The time is the same for all ranks: from the first start of a round anywhere to the last end of one. It is divided into

* transfer: a message of the rank is under way (`ringcast.monitoring.trace.pairing` defines this);
* local: else, and the rank is between two rounds: it copies, combines, or runs the program between two calls;
* idle: the rest. It waits for a peer that has not come to the round, for the confirmation of sent data, or for its
  inbox to be read; or it has not begun, or is done already.

These are times as the rank sees them, not the use of its link: a slow reader looks like a slow link.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ringcast._util.dataclass import dataclass
from ringcast.events import Event
from ringcast.monitoring.trace.pairing import Interval, Round, moving, rounds, within


@dataclass(frozen=True, slots=True)
class Totals:
    """Times of one rank; `transfer + idle + local == span`, in seconds, up to rounding."""

    span: float
    transfer: float
    idle: float
    local: float
    rounds: int
    sent: int  # bytes
    received: int  # bytes


HEADINGS = ("rank", "transfer ms", "idle ms", "local ms", "transfer", "rounds", "bytes out", "bytes in")
WIDTHS = (6, 13, 13, 13, 10, 9, 16, 16)


def totals(events_by_rank: Sequence[Sequence[Event]]) -> list[Totals]:
    """Return the times of each rank."""
    by_rank = [rounds(events) for events in events_by_rank]
    every = [done for mine in by_rank for done in mine]
    span = max(r.end.time for r in every) - min(r.start.time for r in every) if every else 0.0
    return [_totals(mine, moved, span) for mine, moved in zip(by_rank, moving(by_rank), strict=True)]


def summary(events_by_rank: Sequence[Sequence[Event]]) -> str:
    """Return a table: for each rank, and for all together, the time of each kind, rounds and bytes.

    Times are in milliseconds; the second "transfer" is its share of the whole time.
    """
    ranks = totals(events_by_rank)
    rows = [HEADINGS, *(_row(str(rank), one) for rank, one in enumerate(ranks)), _row("total", _sum(ranks))]
    return "\n".join("".join(map(str.rjust, row, WIDTHS)) for row in rows)


def _totals(mine: Sequence[Round], moved: Sequence[Interval], span: float) -> Totals:
    transfer = sum(last - first for first, last in moved)
    local = sum(_still(moved, before.end.time, after.start.time) for before, after in pairwise(mine))
    idle = max(0.0, span - transfer - local)  # rounding may make it -1e-17
    sent, received = sum(r.start.sent for r in mine), sum(r.end.received for r in mine)
    return Totals(span, transfer, idle, local, len(mine), sent, received)


def _still(moved: Sequence[Interval], first: float, last: float) -> float:
    """Return the time between two moments in which nothing moved."""
    return max(0.0, last - first) - sum(b - a for a, b in within(moved, first, last))


def _sum(ranks: Sequence[Totals]) -> Totals:
    return Totals(
        sum(one.span for one in ranks),
        sum(one.transfer for one in ranks),
        sum(one.idle for one in ranks),
        sum(one.local for one in ranks),
        sum(one.rounds for one in ranks),
        sum(one.sent for one in ranks),
        sum(one.received for one in ranks),
    )


def _row(name: str, one: Totals) -> tuple[str, ...]:
    times = (f"{1e3 * seconds:.3f}" for seconds in (one.transfer, one.idle, one.local))
    share = one.transfer / one.span if one.span else 0.0
    return (name, *times, f"{share:.1%}", str(one.rounds), str(one.sent), str(one.received))
