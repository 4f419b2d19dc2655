"""Start the ranks of one system under test, send them commands, read their answers, and end them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias

from ringcast.commands.bench.ready import ready
from ringcast.errors import RingcastError

START_TIME = 180.0  # seconds until all ranks are there; 36 ranks that import torch need them on two processors
PATIENCE = 120.0  # seconds that an answer may take, for each repetition in it; the slowest known took 30
LONGEST = 3600.0  # seconds that any answer may take, after which ranks count as hung
END_TIME = 5.0  # seconds that ranks may take to leave
GRACE = 3.0  # seconds that programs may take to notice that their ranks are gone
LAST_WORDS = 5  # lines of output that an error quotes

# Starts the ranks' programs; its arguments are the path of the Unix socket that ranks connect to, and the descriptor of
# the file for their output.
Starter: TypeAlias = "Callable[[Path, int], Sequence[subprocess.Popen[bytes]]]"


class JobLost(RingcastError):
    """The ranks of a system did not start, died, or do not answer."""


class BenchJob:
    """`size` running ranks of a system; a context manager, which ends the ranks.

    Attributes:
        version: the ranks' own name and version of the system.
        hosts: the name of each rank's host.

    Args:
        size: number of ranks.
        start: starts the ranks, or programs that start them; see `Starter`.
        start_time: seconds until all ranks must be there.
        patience: seconds that an answer may take, for each repetition in it.

    Raises:
        JobLost: not all ranks have come in time.
    """

    def __init__(
        self, size: int, start: Starter, *, start_time: float = START_TIME, patience: float = PATIENCE
    ) -> None:
        self._patience = patience
        self._ranks: list[_Rank] = []
        self._processes: Sequence[subprocess.Popen[bytes]] = ()
        self._output = os.memfd_create("output")  # a file that has no name and needs no removal
        try:
            with tempfile.TemporaryDirectory(prefix="rb-") as folder, socket.socket(socket.AF_UNIX) as listener:
                path = Path(folder) / "orders"
                listen(listener, path, size)
                self._processes = start(path, self._output)
                hellos = self._meet(listener, size, start_time)
        except BaseException:
            self.close(patience=0)
            raise
        self.version: str = hellos[0]["version"]
        self.hosts: list[str] = [hello["host"] for hello in hellos]

    def ask(self, do: str, *, calls: int = 1, **arguments: Any) -> list[dict[str, Any]]:
        """Send all ranks the command `do` (see `systems.harness`) and return their answers, by rank.

        An answer may take the job's patience for each of `calls` repetitions, at most LONGEST seconds.

        Raises:
            JobLost: a rank ended, or has not answered in time.
        """
        line = json.dumps({"do": do, **arguments}).encode() + b"\n"
        for rank in self._ranks:
            rank.tell(line)
        answers: dict[_Rank, dict[str, Any]] = {}
        patience = min(self._patience * calls, LONGEST)
        deadline = time.monotonic() + patience
        while len(answers) < len(self._ranks):
            waiting = [rank for rank in self._ranks if rank not in answers]
            heard = ready(waiting, max(0.0, deadline - time.monotonic()))
            if not heard:
                silent = ", ".join(str(rank.number) for rank in waiting)
                raise self._lost(f"no answer to {do!r} within {patience:g} s from rank {silent}")
            for rank in heard:
                if (answer := self._hear(rank, do)) is not None:
                    answers[rank] = answer
        return [answers[rank] for rank in self._ranks]

    def close(self, patience: float = END_TIME) -> None:
        """Let the ranks leave; after `patience` seconds kill the remaining ranks and their starters; idempotent."""
        for rank in self._ranks:
            rank.tell(b'{"do": "quit"}\n')
        self._wait(patience)
        for rank in self._ranks:
            rank.kill()
        for process in self._processes:
            if process.poll() is None:  # nsenter stops when its command is stopped, and would not see its end
                os.kill(process.pid, signal.SIGCONT)
        self._wait(GRACE)  # an mpirun that sees its ranks die cleans up better than we could after it
        for process in self._processes:
            process.kill()
            process.wait()
        self._ranks, self._processes = [], ()
        if self._output >= 0:
            os.close(self._output)
            self._output = -1

    def _wait(self, patience: float) -> None:
        """Wait until all programs have ended, at most for `patience` seconds."""
        deadline = time.monotonic() + patience
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))

    def __enter__(self) -> BenchJob:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _meet(self, listener: socket.socket, size: int, start_time: float) -> list[dict[str, Any]]:
        """Wait for the first message of every rank, and return the messages by rank."""
        hellos: dict[int, dict[str, Any]] = {}
        deadline = time.monotonic() + start_time
        with contextlib.ExitStack() as stack:
            ends = [os.pidfd_open(process.pid) for process in self._processes]
            for end in ends:
                stack.callback(os.close, end)
            while len(hellos) < size:
                silent = [rank for rank in self._ranks if rank.number < 0]
                sources: list[Any] = [listener, *silent, *ends]
                heard = ready(sources, max(0.0, deadline - time.monotonic()))
                if not heard:
                    raise self._lost(f"{len(hellos)} of {size} ranks were there after {start_time:g} s")
                if listener in heard:
                    self._ranks.append(_Rank(listener.accept()[0]))
                for rank in silent:
                    if rank in heard and (hello := self._hear(rank, "start")) is not None:
                        rank.number = hello["rank"]
                        hellos[rank.number] = hello
                        if hello["size"] != size:  # an mpirun of another library makes such jobs
                            raise self._lost(f"a rank says that it is one of {hello['size']}, not of {size}")
                if any(end in heard for end in ends):
                    raise self._lost("it ended before all ranks were there")
        self._ranks.sort(key=lambda rank: rank.number)
        return [hellos[number] for number in range(size)]

    def _hear(self, rank: _Rank, doing: str) -> dict[str, Any] | None:
        try:
            return rank.hear()
        except OSError:
            name = f"rank {rank.number}" if rank.number >= 0 else "a rank"
            raise self._lost(f"{name} ended during {doing!r}") from None

    def _lost(self, what: str) -> JobLost:
        written = os.fstat(self._output).st_size
        lines = os.pread(self._output, 1 << 16, max(0, written - (1 << 16))).decode(errors="replace").split("\n")
        said = [line.strip() for line in lines if re.search(r"\w", line)][-LAST_WORDS:]
        return JobLost(f"{what}; {'its last words: ' + ' | '.join(said) if said else 'it said nothing'}")


def listen(listener: socket.socket, path: Path, backlog: int) -> None:
    """Let a Unix socket listen at `path`.

    Raises:
        JobLost: the socket cannot listen; most often its path, in the user's temporary directory, is too long.
    """
    try:
        listener.bind(str(path))
    except OSError as error:
        reason = f"{path}: no socket can be made there ({error}); set TMPDIR to a short path, such as /tmp"
        raise JobLost(reason) from None
    listener.listen(backlog)


class _Rank:
    """The connection to one rank, and a descriptor of its process, on any host and by any starter."""

    def __init__(self, connection: socket.socket) -> None:
        self.number = -1  # not known yet
        self._connection = connection
        self._heard = bytearray()
        pid, _, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        try:
            self._process: int | None = os.pidfd_open(pid)
        except ProcessLookupError:  # the rank has ended already, as the connection will show
            self._process = None

    def fileno(self) -> int:
        return self._connection.fileno()

    def tell(self, line: bytes) -> None:
        with contextlib.suppress(OSError):  # the rank has ended, as `hear` will show
            self._connection.sendall(line)

    def hear(self) -> dict[str, Any] | None:
        """Read available bytes; return the answer if they complete it, else None.

        Raises:
            OSError: the rank has ended.
        """
        chunk = self._connection.recv(1 << 20)
        if not chunk:
            raise ConnectionResetError
        self._heard += chunk
        if not chunk.endswith(b"\n"):
            return None
        answer: dict[str, Any] = json.loads(self._heard)
        self._heard.clear()
        return answer

    def kill(self) -> None:
        """Kill the process if it still lives, and close the connection."""
        self._connection.close()
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._process, signal.SIGKILL)
            os.close(self._process)
            self._process = None
