"""Name the ranks for which a call waited until its timeout, by the flight records of all ranks: pure.

The rank that noticed a timeout has waited, and so have most of the others, each for the next one. From it the way goes
along these waits, as all ranks have recorded them, to ranks that had not made the call. The first of these is named:

1. ranks that were in no call, or came to this one only after the timeout;
2. if there is none, ranks in a call of another kind or on another communicator.

Where the way ends at neither, as in a call that is slow, the rank that noticed it stays named.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import inf

from ringcast._util.dataclass import dataclass
from ringcast._util.rank_words import ranks_in_words
from ringcast.monitoring.flight_record import Flights, name, place
from ringcast.wire.flight import Entry, Flight
from ringcast_launcher.decide.verdict import Verdict

_TIMED_OUT = re.compile(
    r": (?P<call>\w+)(?: #(?P<number>\d+))?[^:;]* did not finish within (?P<limit>\S+ s)[^;]*; "
    r"waiting for rank (?:nobody|\d+(?:, \d+)*)(?P<rest>.*)"
)


def with_the_awaited(verdict: Verdict, flights: Flights) -> Verdict:
    """Return the verdict on a call's timeout with the rank that it waited for; any other verdict itself."""
    found = _TIMED_OUT.search(verdict.how)
    call = _call(flights, verdict.rank, found["call"], int(found["number"] or 0)) if found else None
    if found is None or call is None or verdict.rank is None:
        return verdict
    wait = _Wait(flights, verdict.rank, call)
    awaited = wait.awaited()
    if not awaited:
        return verdict
    first, act = next(iter(awaited.items()))
    alike = [rank for rank in awaited if awaited[rank] == act and rank != first]
    them = f", like {ranks_in_words(alike)}, " if alike else ", "
    waited = f"{ranks_in_words(wait.waiting)} waited {found['limit']} for {'them' if alike else 'it'}"
    how = f"{act}{them}and {waited} in {name(call)} at {place(call)}{found['rest']}"
    noticed = verdict.rank if verdict.witness is None else verdict.witness
    return replace(verdict, rank=first, how=how, witness=None if noticed == first else noticed)


def _call(flights: Flights, rank: int | None, collective: str, number: int) -> Entry | None:
    """Return the call of a rank that has failed, by its name and number; None if its record does not have it."""
    flight = flights[rank] if rank is not None and rank < len(flights) else None
    failed = (
        [e for e in flight.entries if (e.state, e.collective, e.number) == ("failed", collective, number)]
        if flight
        else []
    )
    return failed[-1] if failed else None


@dataclass(frozen=True, slots=True)
class _Wait:
    """The wait of one rank in a call that timed out there."""

    flights: Flights
    rank: int
    call: Entry

    def awaited(self) -> dict[int, str]:
        """Return the ranks that the call needed and that were elsewhere, in order, and the state of each in words."""
        absent: dict[int, str] = {}
        elsewhere: dict[int, str] = {}
        seen, todo = {self.rank}, [*self.call.waiting_for]
        while todo:
            rank = todo.pop()
            flight = self.flights[rank] if rank < len(self.flights) else None
            if rank in seen or flight is None:
                continue
            seen.add(rank)
            here = self._in_time(flight)
            last = next((e for e in reversed(here) if self._is_this(e)), here[-1] if here else None)
            if last is not None and last.state != "done":
                todo += last.waiting_for
                if self._is_another(last):
                    elsewhere[rank] = f"was in {name(last)} at {place(last)}"
            elif last is None or not self._is_this(last):
                late = len(here) < len(flight.entries) and any(map(self._is_this, flight.entries))
                absent[rank] = "came too late" if late else f"made no call{_after(last)}"
        return dict(sorted((absent or elsewhere).items()))

    @property
    def waiting(self) -> list[int]:
        """The ranks that waited in the same call; of a message only the one that noticed it."""
        return [
            flight.rank
            for flight in self.flights
            if flight is not None
            and (flight.rank == self.rank or any(self._is_this(e) and e.state != "done" for e in self._in_time(flight)))
        ]

    def _in_time(self, flight: Flight) -> Sequence[Entry]:
        """Return the calls of a rank before the first timeout; all of them, if it has another host's clock."""
        mine = self.flights[self.rank]
        if mine is None or flight.host != mine.host:
            return flight.entries
        end = min(self._ends(flight.host))
        return [entry for entry in flight.entries if entry.start < end]

    def _ends(self, host: str) -> Iterator[float]:
        yield inf
        for flight in self.flights:
            if flight is not None and flight.host == host:
                yield from (
                    e.end for e in flight.entries if self._is_this(e) and e.state == "failed" and e.end is not None
                )

    def _is_this(self, entry: Entry) -> bool:
        return entry.number > 0 and (entry.context, entry.number) == (self.call.context, self.call.number)

    def _is_another(self, entry: Entry) -> bool:
        return entry.context != self.call.context or bool(entry.number) != bool(self.call.number)


def _after(last: Entry | None) -> str:
    return "" if last is None else f" after {name(last)} at {place(last)}"
