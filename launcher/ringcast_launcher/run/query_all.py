"""A question to the crews of all hosts, whose answers come while the loop goes on with everything else."""

from __future__ import annotations

from collections import Counter
from math import inf
from typing import Generic, TypeVar

from ringcast_launcher.hosts.all_hosts import AllHosts
from ringcast_launcher.hosts.messages import Command

T = TypeVar("T")


class Query(Generic[T]):
    """Asks one question at a time. Hosts answer each once and in order: so a late answer is told from the next one."""

    def __init__(self, all_hosts: AllHosts, question: Command, patience: float) -> None:
        """Wait for answers for so many seconds."""
        self._all_hosts, self._question, self._patience = all_hosts, question, patience
        self._owed: Counter[int] = Counter()  # answers that each host has to give
        self._told: dict[int, T] = {}
        self._asked: float | None = None  # when, if it is not over

    @property
    def due(self) -> float:
        """The time of the next `result` at the latest."""
        return inf if self._asked is None else self._asked + self._patience

    def ask(self, now: float) -> None:
        """Ask all hosts, unless they have just been asked and not all have answered."""
        if self._asked is None:
            self._asked, self._told = now, {}
            self._owed.update(self._all_hosts.numbers)
            self._all_hosts.send_all(self._question)

    def hear(self, host: int, answer: T) -> None:
        """Take an answer."""
        self._owed[host] -= 1
        if self._owed[host] == 0:
            self._told[host] = answer

    def result(self, now: float) -> list[T] | None:
        """Return the answers when all hosts that are left have told, or the time is over; None before, and after."""
        if self._asked is None or (not self._all_hosts.numbers <= self._told.keys() and now < self.due):
            return None
        self._asked = None
        return list(self._told.values())
