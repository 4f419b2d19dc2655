"""The crews of all hosts of a job, here and elsewhere: orders go to them, and their reports come in one row."""

from __future__ import annotations

import select
import time
from collections.abc import Mapping, Sequence, Set
from math import inf
from typing import TypeAlias

from ringcast_launcher.hosts.local_host import Crew
from ringcast_launcher.hosts.messages import Gone, Hold, Order, Output, Report
from ringcast_launcher.hosts.remote_host import Distant
from ringcast_launcher.system.polling import File, usable

STEP = 100  # ms after which a wait for answers looks at its deadline again
MUCH = 1 << 22  # bytes of output that may come while answers are waited for, before the workers have to wait
Said: TypeAlias = tuple[int, Report]  # by which host


class Crews:
    """Crews by the number of their host; one that is gone is not there any more."""

    def __init__(self, crews: Mapping[int, Crew | Distant]) -> None:
        self._crews = dict(crews)
        self._said: list[Said] = []
        self._piled = 0  # bytes of output among them
        self._wished = self._held = False  # that output waits: by our owner; as all crews are told

    def __contains__(self, host: int) -> bool:
        return host in self._crews

    def __len__(self) -> int:
        return len(self._crews)

    @property
    def hosts(self) -> Set[int]:
        """Those that are there."""
        return self._crews.keys()

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

    def hold(self, held: bool) -> None:
        """Let the workers' output wait, or come. It waits as well while `answers` are waited for and much has come."""
        self._wished = held
        self._hold(held)

    def poll(self, wait: int, others: Sequence[File] = ()) -> None:
        """Wait for at most so many milliseconds until somebody has something to say, or one of `others` has."""
        files = dict.fromkeys(others, select.POLLIN)
        for crew in self._crews.values():
            files |= crew.files
        self._hear(usable(files, wait / 1000))

    def reports(self) -> list[Said]:
        """Return what was reported and not returned yet."""
        self._hear(set())
        said, self._said, self._piled = self._said, [], 0
        self._hold(self._wished)
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
            self._hold(self._held or self._piled > MUCH)
        return answers

    def lose(self, host: int) -> None:
        """Forget the crew of a host, which is gone."""
        del self._crews[host]

    def _hold(self, held: bool) -> None:
        if held != self._held:
            self._held = held
            self.order_all(Hold(held))

    def _hear(self, ready: set[File]) -> None:
        heard = [(host, said) for host, crew in self._crews.items() for said in crew.reports(ready)]
        self._piled += sum(len(said.data) for _, said in heard if isinstance(said, Output))
        self._said += heard
