"""Recording of events for a trace: storage, JSON, alignment to a common clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from ringcast.events import Event, RoundEnd, RoundStart

KINDS: dict[str, type[RoundStart] | type[RoundEnd]] = {"start": RoundStart, "end": RoundEnd}
NAMES = {kind: (name, tuple(field.name for field in fields(kind))) for name, kind in KINDS.items()}


class TraceRecorder:
    """An observer that keeps the events of one rank."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.events.append(event)


def to_json(event: Event) -> list[Any]:
    """Return an event as a list of numbers, strings and None, for JSON; `from_json` reads it.

    >>> to_json(RoundEnd(rank=1, operation="bcast", number=1, round=0, time=2.5, received=8, wait=0.5, arrived=2.25))
    ['end', 1, 'bcast', 1, 0, 2.5, 8, 0.5, 2.25]
    """
    kind, names = NAMES[type(event)]
    return [kind, *(getattr(event, name) for name in names)]


def from_json(values: Sequence[Any]) -> Event:
    """Return the event that `to_json` made this list of.

    Raises:
        ValueError: it made no such list.
    """
    try:
        kind, *facts = values
        return KINDS[kind](*facts)
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"expected an event as a list that begins with {' or '.join(KINDS)}, got {values!r}") from None


def align(events_by_rank: Sequence[Sequence[Event]]) -> list[list[Event]]:
    """Bring the ranks to one clock by a barrier, which must be their first call; its events are left out.

    Not needed on one machine, where all processes have the same monotonic clock. Clocks of several machines differ by
    any amount: here the moments at which the ranks left the barrier become time 0 of all. A rank may really leave it
    up to ceil(log2 p) messages (about as many tenths of a millisecond in a local network) before another one, and
    clocks drift apart afterwards, by up to some tens of microseconds per second. Shorter times are shown wrongly.

    Raises:
        ValueError: the ranks did not begin with a barrier of two ranks or more.
    """
    return [_since_barrier(rank, events) for rank, events in enumerate(events_by_rank)]


def _since_barrier(rank: int, events: Sequence[Event]) -> list[Event]:
    if not events or events[0].operation != "barrier":
        first = repr(events[0].operation) if events else "nothing"
        raise ValueError(f"rank {rank}: expected the trace to begin with a barrier, which sets the clock, not {first}")
    number = events[0].number
    left = max(event.time for event in events if event.number == number)
    return [shifted(event, -left) for event in events if event.number != number]


def shifted(event: Event, by: float) -> Event:
    """Return `event` as it is by a clock that shows `by` seconds more."""
    if not by:  # as on one host, for hundreds of thousands of events
        return event
    if isinstance(event, RoundStart):
        return replace(event, time=event.time + by, ready=None if event.ready is None else event.ready + by)
    return replace(event, time=event.time + by, arrived=None if event.arrived is None else event.arrived + by)
