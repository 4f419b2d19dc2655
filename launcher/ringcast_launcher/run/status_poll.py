"""Query all hosts for the states of their ranks: at intervals for the status line, and on request."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from ringcast.monitoring.progress import ProgressSnapshot
from ringcast.monitoring.rank_state import RankState, States, table
from ringcast.wire.codec import encode
from ringcast_launcher.hosts.all_hosts import AllHosts
from ringcast_launcher.hosts.messages import AskProgress, AskStates
from ringcast_launcher.output.output import Writer
from ringcast_launcher.output.status_line import Status
from ringcast_launcher.run.ps_server import PsServer
from ringcast_launcher.run.query_all import Query

GLANCE = 0.5  # seconds after which the status line is drawn without the hosts that have not answered
STATES = 3.0  # seconds after which a request is answered without these hosts


class ProgressPoll:
    """Queries the hosts when the status line is due, and has it drawn when they have answered."""

    def __init__(self, status: Status, all_hosts: AllHosts) -> None:
        self._status = status
        self._query = Query[ProgressSnapshot](all_hosts, AskProgress(), GLANCE)
        self.hear = self._query.hear

    @property
    def due(self) -> float:
        """The time of the next `turn` at the latest."""
        return min(self._status.due, self._query.due)

    def turn(self, now: float, up: int) -> None:
        """Query the hosts, or draw the line, if that is due; `up` is the number of running ranks."""
        if self._status.due <= now:
            self._query.ask(now)
        if (told := self._query.result(now)) is not None:
            self._status.tell(now, up, sum(told, ProgressSnapshot()))

    def end(self) -> None:
        """Remove the line, and stop the queries."""
        self._status.end()


class StatePoll:
    """The table of all ranks: printed on standard error when `wanted`, and sent to `ringcast ps`."""

    def __init__(self, hosts: Sequence[str], all_hosts: AllHosts, writer: Writer, ps_server: PsServer | None) -> None:
        """`hosts` are the host names of the ranks, as in the job."""
        self._hosts, self._writer, self._ps_server = hosts, writer, ps_server
        self._query = Query[tuple[RankState, ...]](all_hosts, AskStates(), STATES)
        self.hear = self._query.hear
        self._printed = False

    @property
    def due(self) -> float:
        """The time of the next `turn` at the latest."""
        return self._query.due

    @property
    def files(self) -> list[int]:
        """The files that become readable when a `turn` is due."""
        return [] if self._ps_server is None else self._ps_server.files

    def turn(self, now: float, wanted: bool) -> None:
        """Query the hosts, or answer, if that is due; `wanted`: print a table."""
        self._printed |= wanted
        if (self._ps_server is not None and self._ps_server.come()) or self._printed:
            self._query.ask(now)
        if (told := self._query.result(now)) is None:
            return
        found = {state.rank: replace(state, host=self._hosts[state.rank]) for one in told for state in one}
        states = [found[rank] for rank in sorted(found)]
        if self._printed:
            self._writer.put(2, os.fsencode("".join(line + "\n" for line in table(states))))
            self._printed = False
        if self._ps_server is not None:
            self._ps_server.answer(encode(States(tuple(states))))
