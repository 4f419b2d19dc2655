"""Send commands to all hosts of a job, and take their reports: the launcher's own host and the others."""

from __future__ import annotations

import select
import time
from collections.abc import Mapping, Sequence, Set
from math import inf
from typing import TYPE_CHECKING, TypeAlias

from ringcast_launcher.hosts.local_host import LocalHost
from ringcast_launcher.hosts.messages import Command, HoldOutput, HostLost, Output, Report
from ringcast_launcher.system.polling import File, usable

if TYPE_CHECKING:
    from ringcast_launcher.hosts.remote_host import RemoteHost

STEP = 100  # ms after which a wait for answers looks at its deadline again
MUCH = 1 << 22  # bytes of output that may pile up during `answers` before the workers have to wait
Said: TypeAlias = tuple[int, Report]  # the number of the host, and its report


class AllHosts:
    """The hosts by number; a host that was lost is removed."""

    def __init__(self, hosts: Mapping[int, LocalHost | RemoteHost]) -> None:
        self._hosts = dict(hosts)
        self._said: list[Said] = []
        self._piled = 0  # bytes of output among them
        self._wished = self._held = False  # whether our owner wants output held; whether the hosts hold it

    def __contains__(self, number: int) -> bool:
        return number in self._hosts

    def __len__(self) -> int:
        return len(self._hosts)

    @property
    def numbers(self) -> Set[int]:
        """The numbers of the hosts that are not lost."""
        return self._hosts.keys()

    @property
    def due(self) -> float:
        """The time of the next `poll` at the latest."""
        return min((host.due for host in self._hosts.values()), default=inf) if not self._said else 0.0

    def send(self, number: int, command: Command) -> None:
        """Send a command to one host."""
        self._hosts[number].send(command)

    def send_all(self, command: Command) -> None:
        """Send a command to all hosts; to the local one last, because it executes the command at once."""
        for host in sorted(self._hosts.values(), key=lambda host: isinstance(host, LocalHost)):
            host.send(command)

    def hold(self, held: bool) -> None:
        """Hold the workers' output, or let it come. `answers` holds it too if much piles up."""
        self._wished = held
        self._hold(held)

    def poll(self, wait: int, others: Sequence[File] = ()) -> None:
        """Wait for at most `wait` milliseconds until a host, or one of `others`, can be read."""
        files = dict.fromkeys(others, select.POLLIN)
        for host in self._hosts.values():
            files |= host.files
        self._hear(usable(files, wait / 1000))

    def reports(self) -> list[Said]:
        """Return the reports since the last call."""
        self._hear(set())
        said, self._said, self._piled = self._said, [], 0
        self._hold(self._wished)
        return said

    def answers(self, kinds: tuple[type[Report], ...], seconds: float) -> dict[int, Report]:
        """Wait until all hosts have sent a report of these kinds, or are lost, or the time is over.

        Returns these reports, by host. `reports` returns them as well.
        """
        answers: dict[int, Report] = {}
        deadline = time.monotonic() + seconds
        looked = 0
        while not self._hosts.keys() <= answers.keys() and (now := time.monotonic()) < deadline:
            due = min(host.due for host in self._hosts.values())  # the local one may have answered at once
            self.poll(min(STEP, max(0, int(1000 * (due - now)))) if due < inf else STEP)
            for number, said in self._said[looked:]:
                if isinstance(said, (*kinds, HostLost)):
                    answers[number] = said
            looked = len(self._said)
            self._hold(self._held or self._piled > MUCH)
        return answers

    def lose(self, number: int) -> None:
        """Remove a host that was lost."""
        del self._hosts[number]

    def _hold(self, held: bool) -> None:
        if held != self._held:
            self._held = held
            self.send_all(HoldOutput(held))

    def _hear(self, ready: set[File]) -> None:
        heard = [(number, said) for number, host in self._hosts.items() for said in host.reports(ready)]
        self._piled += sum(len(said.data) for _, said in heard if isinstance(said, Output))
        self._said += heard
