"""The crews of all hosts of a job, here and elsewhere: orders go to them, and their reports come in one row."""

from __future__ import annotations

import select
import time
from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, TypeAlias

import zmq

from ringcast_launcher.crew import Crew
from ringcast_launcher.orders import Gone, Order, Report
from ringcast_launcher.remote import Remote

STEP = 100  # ms after which a wait for answers looks at its deadline again
Said: TypeAlias = tuple[int, Report]  # by which host


class Crews:
    """Crews by the number of their host; one that is gone is not there any more."""

    def __init__(self, crews: Mapping[int, Crew | Remote]) -> None:
        self._crews = dict(crews)
        self._said: list[Said] = []

    def __contains__(self, host: int) -> bool:
        return host in self._crews

    def __len__(self) -> int:
        return len(self._crews)

    @property
    def due(self) -> float:
        """The time of the next `poll` at the latest."""
        return min((crew.due for crew in self._crews.values()), default=inf) if not self._said else 0.0

    def order(self, host: int, order: Order) -> None:
        """Give an order to the crew of one host."""
        self._crews[host].order(order)

    def order_all(self, order: Order) -> None:
        """Give an order to all; crews elsewhere come first, as the one here may take its time at once."""
        for crew in sorted(self._crews.values(), key=lambda crew: isinstance(crew, Crew)):
            crew.order(order)

    def poll(self, wait: int, others: Sequence[Any] = ()) -> None:
        """Wait for at most so many milliseconds until somebody has something to say, or one of `others` has."""
        poller = zmq.Poller()
        for other in others:
            poller.register(other, zmq.POLLIN)
        for crew in self._crews.values():
            for file, events in crew.files.items():
                poller.register(file, _of_zmq(events))
        self._hear({file for file, _ in poller.poll(wait) if isinstance(file, int)})

    def reports(self) -> list[Said]:
        """Return what was reported and not returned yet."""
        self._hear(set())
        said, self._said = self._said, []
        return said

    def answers(self, kinds: tuple[type[Report], ...], seconds: float) -> dict[int, Report]:
        """Wait until all have reported something of these kinds, or are gone, or the time is over.

        Returns what they reported, by host, which `reports` returns as well.
        """
        answers: dict[int, Report] = {}
        deadline = time.monotonic() + seconds
        looked = 0
        while not self._crews.keys() <= answers.keys() and (now := time.monotonic()) < deadline:
            due = min(crew.due for crew in self._crews.values())  # the one here may have answered at once
            self.poll(min(STEP, max(0, int(1000 * (due - now)))) if due < inf else STEP)
            for host, said in self._said[looked:]:
                if isinstance(said, (*kinds, Gone)):
                    answers[host] = said
            looked = len(self._said)
        return answers

    def flush(self, seconds: float) -> None:
        """Wait until all that was ordered has left this host."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and any(crew.unsent for crew in self._crews.values()):
            self.poll(STEP)

    def lose(self, host: int) -> None:
        """Forget the crew of a host, which is gone."""
        del self._crews[host]

    def _hear(self, ready: set[int]) -> None:
        self._said += [(host, said) for host, crew in self._crews.items() for said in crew.reports(ready)]


def _of_zmq(events: int) -> int:
    """Return the events of `select.poll` as those of ZeroMQ's."""
    return (zmq.POLLIN if events & select.POLLIN else 0) | (zmq.POLLOUT if events & select.POLLOUT else 0)
