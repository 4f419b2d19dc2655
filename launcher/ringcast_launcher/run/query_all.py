"""Query all hosts, and collect their answers while the main loop goes on."""

from __future__ import annotations

from collections import Counter
from math import inf
from typing import Generic, TypeVar

from ringcast_launcher.hosts.all_hosts import AllHosts
from ringcast_launcher.hosts.messages import Command

T = TypeVar("T")


class Query(Generic[T]):
    """One query at a time. Hosts answer each query once and in order, so a late answer is recognised by counting."""

    def __init__(self, all_hosts: AllHosts, question: Command, patience: float) -> None:
        """`patience` is the time limit for the answers, in seconds."""
        self._all_hosts, self._question, self._patience = all_hosts, question, patience
        self._owed: Counter[int] = Counter()  # answers that each host still has to give
        self._told: dict[int, T] = {}
        self._asked: float | None = None  # the time of the query that is under way

    @property
    def due(self) -> float:
        """The time of the next `result` at the latest."""
        return inf if self._asked is None else self._asked + self._patience

    def ask(self, now: float) -> None:
        """Query all hosts, unless a query is under way."""
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
        """Return the answers, once: when all hosts that are not lost have answered, or the time is over. Else None."""
        if self._asked is None or (not self._all_hosts.numbers <= self._told.keys() and now < self.due):
            return None
        self._asked = None
        return list(self._told.values())
