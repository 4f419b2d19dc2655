"""Manage the processes of a host's ranks as the agent on another host, `python -m ringcast_launcher.hosts.agent`.

The agent reads commands from standard input and writes reports to standard output, so nothing has to be configured, and
no secret lies in an argument or a file. It ends, and all its workers with it, when its input ends, when the grace
period after a signal is over, or when it has heard nothing from the launcher for a while. If the agent is stopped or
hangs, its watchdog ends the workers.
"""

from __future__ import annotations

import os
import platform
import select
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from math import inf
from typing import Any

from ringcast.control import version
from ringcast.errors import ConfigError
from ringcast.procs.timing import TIMING
from ringcast.wire.codec import CodecError, parse, plain
from ringcast_launcher.decide.supervisor import SendSignal, Signalled
from ringcast_launcher.hosts.local_host import LocalHost
from ringcast_launcher.hosts.messages import (
    COMMANDS,
    AgentHello,
    Command,
    HoldOutput,
    HostFinished,
    NotStarted,
    Report,
    Start,
    Stop,
)
from ringcast_launcher.hosts.pipe import Connection, PipeConnection
from ringcast_launcher.plan import slurm
from ringcast_launcher.plan.job import parsed_address
from ringcast_launcher.system.child import subreaper
from ringcast_launcher.system.job_dir import job_directory
from ringcast_launcher.system.polling import File, usable
from ringcast_launcher.system.signals import CAUGHT, ENDING, PASSED_ON, accept_all, caught, noted
from ringcast_launcher.system.watchdog import Watchdog

PATIENCE = TIMING.launcher_silence
PENDING = 1 << 22  # bytes of reports that may wait before the workers' output has to
LAST_REPORTS = 5.0  # seconds that the last reports may take
REACH = 5.0  # seconds after which the launcher counts as unreachable


class Agent:
    """Connects this host's process manager with the launcher; `advertise` is the address of its ranks behind NAT."""

    def __init__(self, connection: Connection, local_host: LocalHost, signals: int, advertise: str) -> None:
        self._connection, self._local_host, self._signals, self._advertise = connection, local_host, signals, advertise
        self._paused = self._held = self._full = (
            False  # the launcher is stopped; output held by command; for lack of room
        )
        self._over = False
        self._commands: deque[Any] = deque()  # received, and not executed yet
        self.asked = 0  # the signal by which we end …
        self._grace, self._end_by = 0.0, inf  # … after so many seconds; at this time

    def run(self) -> None:
        """Serve until the job is over."""
        while not self._over and not self._abandoned and time.monotonic() < self._end_by:
            self._turn()
        deadline = time.monotonic() + LAST_REPORTS
        while self._connection.unsent and not self._abandoned and time.monotonic() < deadline:
            self._turn()

    @property
    def _abandoned(self) -> bool:
        if self._connection.ended:
            return not self._commands
        return self._connection.unanswered > PATIENCE and not self._paused

    def _turn(self) -> None:
        files: dict[File, int] = {**self._local_host.files, **self._connection.files, self._signals: select.POLLIN}
        due = 0.0 if self._commands else min(self._connection.due, self._local_host.due, self._end_by)
        ready = usable(files, due - time.monotonic())
        signals = caught(self._signals)
        for number in signals:
            if number in ENDING:
                self._asked_to_end(number)
            elif number in PASSED_ON:
                self._tell(Signalled(number))  # to the ranks of all hosts
        self._commands += self._connection.turn(ready, time.monotonic())
        # Only the launcher's own signs of life are passed on to the watchdog: else our silence would be counted after
        # the launcher's, and both together would last longer than the launcher waits.
        if self._paused or not self._connection.unanswered:
            self._local_host.watchdog.sign()
        if self._commands:
            self._execute_next()
        if signal.SIGCHLD in signals:
            self._local_host.note_ends()
        for report in self._local_host.reports(ready):
            self._tell(report)
        self._make_room()

    def _asked_to_end(self, number: int) -> None:
        """End because of a signal: at once if it is a second one; else after the grace period, or with the job."""
        self._end_by = time.monotonic() if self.asked else time.monotonic() + self._grace
        self.asked = number
        self._local_host.send(SendSignal(number))

    def _execute_next(self) -> None:
        """Execute the oldest command only: it may take a second or two, and other work must be done in between."""
        try:
            self._execute(parse(self._commands.popleft(), COMMANDS))
        except CodecError as error:
            self._connection.refuse(str(error))
            self._commands.clear()

    def _execute(self, command: Command) -> None:
        if self._paused:
            self._connection.excuse_silence()
        self._paused = isinstance(command, Stop)
        if isinstance(command, Start) and (problem := unreachable(command.world["RINGCAST_CONTROL"])):
            self._tell(NotStarted(problem, 1))
            return
        if isinstance(command, Start):
            self._grace = command.grace
            command = replace(command, world={**command.world, "RINGCAST_ADVERTISE": self._advertise})
        if isinstance(command, HoldOutput):
            self._held = command.held
            command = HoldOutput(self._held or self._full)
        self._local_host.send(command)
        if isinstance(command, Start):  # the command was checked; no rank runs yet
            self._local_host.watchdog.watch()

    def _tell(self, report: Report) -> None:
        self._connection.send(plain(report))
        self._over |= isinstance(report, HostFinished)

    def _make_room(self) -> None:
        if (full := self._connection.unsent > PENDING) != self._full:
            self._full = full
            self._local_host.send(HoldOutput(self._held or full))


def unreachable(control: str) -> str:
    """Return why the launcher cannot be reached; empty if it can."""
    host, port = parsed_address(control)
    try:
        socket.create_connection((host, port), timeout=REACH).close()
    except OSError as error:
        why = f"within {REACH:g} s" if isinstance(error, TimeoutError) else f"({error.strerror or error})"
        fix = "open its ports in the firewalls (--port-range bounds them), or choose another interface (--iface)"
        return f"the launcher cannot be reached from there at {control} {why}; {fix}"
    return ""


def seen_from(environment: Mapping[str, str]) -> str:
    """Return the launcher's address from srun's variable, or else ssh's: srun passes on the ssh variables of its user.

    >>> seen_from({"SSH_CONNECTION": "10.0.0.1 4711 10.0.0.2 22"})
    '10.0.0.1'
    """
    told = environment.get("SLURM_LAUNCH_NODE_IPADDR") or environment.get("SSH_CONNECTION", "")
    return told.partition(" ")[0]


def main() -> None:
    """Run the agent of this host."""
    accept_all()
    reading, writing = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.dup2(2, 1)  # printed text must not mix with reports
    os.close(nowhere)
    with ExitStack() as stack:
        signals = stack.enter_context(noted(CAUGHT))
        stack.enter_context(subreaper())
        watchdog = stack.enter_context(Watchdog(os.environ, speaks=True))
        try:
            directory = stack.enter_context(job_directory())
        except ConfigError as error:
            sys.exit(f"ringcast: {error}")
        watchdog.tell("directory", directory)
        pipe = PipeConnection(reading, writing, time.monotonic(), marks=True)
        stack.callback(pipe.close)
        local_host = LocalHost(directory, watchdog, slurm.of_agent(os.environ))
        stack.callback(local_host.close)
        hello = AgentHello(version(), platform.python_version(), socket.gethostname(), seen_from(os.environ))
        pipe.send(plain(hello))
        Agent(pipe, local_host, signals, os.environ.get("RINGCAST_ADVERTISE", "")).run()
    if pipe.garbled:
        sys.exit(f"ringcast agent: this is started by ringcast-launch only: {pipe.garbled}")


if __name__ == "__main__":
    main()
