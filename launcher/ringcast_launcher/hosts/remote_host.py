"""Talk to an agent on another host, through the interface of `LocalHost`.

The agent of an `SshHost` was started by a command such as ssh; other agents connect by themselves
(`ringcast_launcher.nodes.joined_node`).
"""

from __future__ import annotations

import os
import select
import shlex
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from typing import Any

from ringcast._util.printable import printable
from ringcast.net import ssh
from ringcast.procs.timing import TIMING
from ringcast.wire.codec import CodecError, parse, plain
from ringcast_launcher.decide.verdict import describe
from ringcast_launcher.hosts.messages import (
    REPORTS,
    AgentHello,
    Command,
    HostFinished,
    HostLost,
    JobEnd,
    Report,
    Start,
    ranks_of,
)
from ringcast_launcher.hosts.pipe import CHUNK, Connection, PipeConnection
from ringcast_launcher.system.polling import File
from ringcast_launcher.system.watchdog import Watchdog

SILENCE = TIMING.host_silence
LOOK_AGAIN = 0.1  # seconds between two looks at a command that ends
PATIENCE = 1.0  # seconds that the command may take to end when its agent has
MOST_WORDS = 1 << 14  # bytes of error output that are kept


class RemoteHost(ABC):
    """A host at the other end of a connection."""

    host: str
    _connection: Connection

    def __init__(self) -> None:
        self.hello: AgentHello | None = None
        self._ranks: frozenset[int] = frozenset()  # the ranks that were started there
        self._over = False

    @property
    def files(self) -> Mapping[File, int]:
        """The files to poll, and for which events."""
        return self._connection.files

    @property
    def due(self) -> float:
        """The time at which `reports` is to be called at the latest."""
        return self._connection.due

    def send(self, command: Command) -> None:
        """Send a command to the agent, which answers with a report."""
        if isinstance(command, Start):
            self._ranks = frozenset(command.ranks)
        self._connection.send(plain(command))

    @property
    def garbled(self) -> str:
        """The reason why the received data could not be understood; empty if it could."""
        return self._connection.garbled

    def reports(self, ready: Container[File] = ()) -> list[Report]:
        """Return the reports that arrived; the last report of a host is Finished or HostLost."""
        found = self._parsed(self._connection.turn(ready, time.monotonic()))
        for report in found:
            self._note(report)
        if not self._over and (cause := self._cause()):
            self._over = True
            found.append(HostLost(cause))
        return found

    def _parsed(self, messages: list[Any]) -> list[Report]:
        found: list[Report] = []
        try:
            for message in messages:
                if not ranks_of(report := parse(message, REPORTS)) <= self._ranks:
                    raise CodecError(f"it reports ranks that it does not have: {message!s:.80}")
                found.append(report)
        except CodecError as error:
            self._connection.refuse(str(error))
        return found

    def _note(self, report: Report) -> None:
        self.hello = report if isinstance(report, AgentHello) else self.hello
        self._over |= isinstance(report, HostFinished)

    @abstractmethod
    def end_job(self, over: JobEnd) -> None:
        """Send the agent the end of the job."""

    @abstractmethod
    def _cause(self) -> str:
        """Return why the host counts as lost; empty while it is not lost."""


class SshHost(RemoteHost):
    """A host whose agent is started by a command: ssh, srun or the command of --rsh-agent."""

    def __init__(self, host: str, argv: Sequence[str], environment: Mapping[str, str], watchdog: Watchdog) -> None:
        """Start the command that starts the agent.

        Raises:
            OSError: there is no such command.
        """
        super().__init__()
        self.host, self.argv = host, argv
        self._process = subprocess.Popen(
            argv,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,  # Ctrl-C is for the launcher, which then ends the others
        )
        watchdog.tell("starter", str(self._process.pid))
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._errors: int | None = self._process.stderr.fileno()
        os.set_blocking(self._errors, False)
        reading, writing = os.dup(self._process.stdout.fileno()), os.dup(self._process.stdin.fileno())
        self._process.stdin.close()
        self._process.stdout.close()
        self._connection = self._pipe = PipeConnection(reading, writing, time.monotonic(), marked=True)
        self._words = b""
        self._lost: float | None = None  # when the channel ended

    @property
    def files(self) -> Mapping[File, int]:
        return {**self._pipe.files} | ({} if self._errors is None else {self._errors: select.POLLIN})

    @property
    def due(self) -> float:
        ending = self._lost is not None and not self._over
        return time.monotonic() + LOOK_AGAIN if ending else self._pipe.due

    @property
    def by_hand(self) -> str:
        """A command by which the user can try whether the host can be reached at all."""
        return shlex.join([*self.argv[:-1], "true"])

    @property
    def words(self) -> str:
        """The standard error, and the standard output before the agent's first message, without blank lines.

        Control characters become escapes, because the other host has written the text.
        """
        said = [*self._pipe.noise.splitlines(), *self._words.decode("utf-8", "replace").splitlines()]
        return "\n".join(printable(line.rstrip()) for line in said if line.strip())

    def reports(self, ready: Container[File] = ()) -> list[Report]:
        if self._errors in ready:
            self._listen()
        return super().reports(ready)

    def end_job(self, over: JobEnd) -> None:
        """Do nothing: the agent ends with its input."""

    def hang_up(self) -> None:
        """Close the agent's input, which ends the agent and its workers; end a command that has not started it yet."""
        self._pipe.close()
        if self.hello is None and self._process.poll() is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGTERM)  # the command may wait for a host that never answers

    def close(self, deadline: float) -> None:
        """Wait for the end of the command, and kill it at the deadline."""
        self.hang_up()
        try:
            self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)  # a script may have started the real ssh
            self._process.wait()
        assert self._process.stderr is not None
        self._process.stderr.close()
        self._errors = None

    def _last_word(self) -> str:
        """Return the line of `words` most likely to explain a failure: one of our own program, else the last line."""
        lines = self.words.splitlines()
        last = [line for line in lines if line.startswith("ringcast: ")] or lines
        return f": {last[-1]}" if last else ""

    def _listen(self) -> None:
        assert self._errors is not None
        with suppress(BlockingIOError):
            data = os.read(self._errors, CHUNK)
            self._words = (self._words + data)[-MOST_WORDS:]
            if not data:
                self._errors = None

    def _cause(self) -> str:
        now = time.monotonic()
        # Where the connection was lost, the agent may live: wait for as long as it takes to kill its workers.
        if not self._pipe.ended:
            silent = self.hello is not None and self._pipe.silent > SILENCE
            return f"nothing was heard of its host {self.host} for {SILENCE:.0f} s" if silent else ""
        self._lost = self._lost or now
        code = self._process.poll()
        if self._pipe.garbled:
            told = f"data from its host {self.host} cannot be understood: {self._pipe.garbled}"
            return told if code is not None or now > self._lost + SILENCE else ""
        if (code is None or self._errors is not None) and now < self._lost + PATIENCE:
            return ""  # its status, or its last output, may still come
        told = self._last_word()
        if code is not None and 0 <= code != ssh.FAILED:  # else ssh itself failed, not the command that it started
            return f"the agent on its host {self.host} ended, {_end(code)}{told}"
        if self.hello is not None and now < self._lost + SILENCE:
            return ""
        return f"the connection to its host {self.host} was lost{told}"


def _end(code: int) -> str:
    """Describe the exit status of a command that was run by a shell."""
    return describe(128 - code if code > 128 else code)
