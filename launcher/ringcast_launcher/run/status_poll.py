"""Looks at all ranks: from time to time for the status line, and when somebody asks what they do."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, replace

from ringcast.monitoring.progress import ProgressSnapshot
from ringcast.monitoring.rank_state import State, table
from ringcast_launcher.hosts.all_hosts import AllHosts
from ringcast_launcher.hosts.messages import AskProgress, AskStates
from ringcast_launcher.output.output import Writer
from ringcast_launcher.output.status_line import Status
from ringcast_launcher.run.ps_server import PsServer
from ringcast_launcher.run.query_all import Query

GLANCE = 0.5  # seconds after which the status line is drawn without the hosts that have not told
STATES = 3.0  # seconds after which others are told without them


class ProgressPoll:
    """Asks the hosts when the status line is due, and has it drawn when they have told."""

    def __init__(self, status: Status, all_hosts: AllHosts) -> None:
        self._status = status
        self._query = Query[ProgressSnapshot](all_hosts, AskProgress(), GLANCE)
        self.hear = self._query.hear

    @property
    def due(self) -> float:
        """The time of the next `turn` at the latest."""
        return min(self._status.due, self._query.due)

    def turn(self, now: float, up: int) -> None:
        """Do what is due; so many ranks are up."""
        if self._status.due <= now:
            self._query.ask(now)
        if (told := self._query.result(now)) is not None:
            self._status.tell(now, up, sum(told, ProgressSnapshot()))

    def end(self) -> None:
        """Take the line away, and look no more."""
        self._status.end()


class StatePoll:
    """Tells what all ranks do: on standard error when it was `wanted` there, and to those that inquire."""

    def __init__(self, hosts: Sequence[str], all_hosts: AllHosts, writer: Writer, ps_server: PsServer | None) -> None:
        """`hosts` are those of the ranks, as the job knows them."""
        self._hosts, self._writer, self._ps_server = hosts, writer, ps_server
        self._query = Query[list[State]](all_hosts, AskStates(), STATES)
        self.hear = self._query.hear
        self._printed = False

    @property
    def due(self) -> float:
        """The time of the next `turn` at the latest."""
        return self._query.due

    @property
    def files(self) -> list[int]:
        """What can be read when a `turn` is due."""
        return [] if self._ps_server is None else self._ps_server.files

    def turn(self, now: float, wanted: bool) -> None:
        """Do what is due; with `wanted` a table is to be printed."""
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
            self._ps_server.answer(json.dumps([asdict(state) for state in states]).encode())
