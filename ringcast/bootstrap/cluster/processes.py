"""The ranks of a cluster as processes of this machine, started and watched by `ringcast-launch`.

Each has a Unix socket to this process, for calls and outcomes, and a pipe for each of its output streams. They are read
while a function runs, by the thread that waits for it: there is no other thread.
"""

from __future__ import annotations

import os
import pickle
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from ringcast._util import socket_path
from ringcast.bootstrap.cluster import worker
from ringcast.bootstrap.cluster.call import Call, packed
from ringcast.bootstrap.cluster.channel import CALL, INTERRUPT, OUTCOME, Channel
from ringcast.bootstrap.cluster.interrupts import Interrupts
from ringcast.bootstrap.cluster.outcome import Outcome
from ringcast.bootstrap.cluster.output import Screen, Stream, width
from ringcast.bootstrap.cluster.ranks import BrokenOff
from ringcast.bootstrap.launched import failure, read_report
from ringcast.bootstrap.run import SHARED
from ringcast.bootstrap.time_limit import GRACE
from ringcast.errors import RunFailed, UsageError
from ringcast.monitoring import jobs
from ringcast.procs import green_threads
from ringcast.wire.error_text import in_a_line

START = 120.0  # seconds that the ranks may take to start, where the launcher does not say before what is wrong
LOOK = 0.5  # seconds after which it is looked whether the launcher lives
VERDICT = 10.0  # seconds in which the launcher says why a rank has ended
END = 5.0  # seconds that idle ranks, or the launcher, may take to end


class _Died(Exception):
    """The process of a rank is gone."""

    def __init__(self, rank: int) -> None:
        super().__init__(rank)
        self.rank = rank


class ProcessRanks:
    """Ranks that wait in processes for calls; fulfils `Ranks`."""

    def __init__(self, size: int) -> None:
        green_threads.refuse("a cluster of processes")
        self._size, self._runs, self._closed = size, 0, False
        self._channels: dict[int, Channel] = {}
        self._screens = Screen("stdout"), Screen("stderr")
        self._streams: list[Stream] = []
        self._launcher: subprocess.Popen[bytes] | None = None
        self._waking, self._woken = os.pipe()[::-1]
        for end in self._waking, self._woken:
            os.set_blocking(end, False)
        self._folder = Path(os.devnull)
        try:
            with Interrupts(self.wake) as interrupts:
                self._start(interrupts)
        except BaseException:
            self.close()
            raise

    def wake(self) -> None:
        with suppress(BlockingIOError):
            os.write(self._waking, b"!")

    def _start(self, interrupts: Interrupts) -> None:
        bases = jobs.bases()
        if not bases:
            raise UsageError(f"no folder is fit for the sockets of a cluster; {socket_path.REMEDY}")
        self._folder = Path(tempfile.mkdtemp(prefix="ringcast-cluster-", dir=bases[0]))  # mode 0700: pickles are safe
        (self._folder / worker.SETTINGS).write_bytes(pickle.dumps((sys.path, width("stderr"))))
        # -P: what lies in the working directory stands in for none of our modules, nor for Python's own.
        command = [sys.executable, "-P", "-m", "ringcast_launcher", "-n", str(self._size)]
        command += ["--json-report", str(self._report)]
        command += ["python", "-P", "-m", "ringcast.bootstrap.cluster.worker", str(self._folder)]
        with socket.socket(socket.AF_UNIX) as door, open(self._folder / "said", "wb") as said:
            door.bind(str(self._folder / worker.SOCKET))
            door.listen(self._size)
            # In a process group of its own Ctrl-C does not reach it: this process decides what becomes of the ranks.
            self._launcher = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, process_group=0
            )
            self._admit(door, interrupts)

    def _admit(self, door: socket.socket, interrupts: Interrupts) -> None:
        until = time.monotonic() + START
        poller = select.poll()
        for file in door.fileno(), self._woken:
            poller.register(file, select.POLLIN)
        while len(self._channels) < self._size:
            ready = poller.poll(1000 * LOOK)
            interrupts.deliver()
            if any(file == door.fileno() for file, _ in ready):
                connection, _ = door.accept()
                connection.settimeout(START)
                data, ends, *_ = socket.recv_fds(connection, worker.RANK.size, 2)
                (rank,) = worker.RANK.unpack(data)
                self._channels[rank] = Channel(connection)
                self._streams += map(Stream, (rank, rank), ends, self._screens)
            elif self._launched.poll() is not None:
                raise self._verdict(0)
            elif time.monotonic() > until:
                raise self._verdict(0, f"the ranks did not start within {START:g} s")

    @property
    def _launched(self) -> subprocess.Popen[bytes]:
        assert self._launcher is not None, "it is started first"
        return self._launcher

    @property
    def _report(self) -> Path:
        return self._folder / "report"

    def prepare(self, fn: Callable[..., Any], args: Sequence[Any]) -> Call:
        return packed(fn, args)

    def run(self, call: Call, until: float | None, interrupts: Interrupts) -> list[Outcome]:
        self._runs += 1
        outcomes: list[Outcome] = []
        try:
            with call.memory() as memory:
                for channel in self._channels.values():
                    channel.put(CALL, call.body, memory)
                while len(outcomes) < self._size:
                    interrupts.deliver()
                    self._exchange(outcomes, until)
                    if until is not None and time.monotonic() >= until and len(outcomes) < self._size:
                        raise TimeoutError
                self._drain()
            return [replace(one, result=_loaded(one)) for one in outcomes] if _good(outcomes) else outcomes
        except _Died as died:
            raise self._verdict(died.rank, "its process ended in the middle of a run") from None
        except BaseException as error:
            raise BrokenOff(error, outcomes, self._break_off(outcomes, error)) from error

    def _exchange(self, outcomes: list[Outcome], until: float | None) -> None:
        """Send, take outcomes and show output, until something has come, or `until`, or LOOK.

        Raises:
            _Died: a rank is gone.
        """
        poller, rank_of, stream_of = select.poll(), {}, {}
        poller.register(self._woken, select.POLLIN)
        for rank, channel in self._channels.items():
            self._flush(rank)
            poller.register(channel.connection, select.POLLIN | (select.POLLOUT if channel.unsent else 0))
            rank_of[channel.connection.fileno()] = rank
        for stream in self._streams:
            if stream.open:
                poller.register(stream.file, select.POLLIN)
                stream_of[stream.file] = stream
        left = LOOK if until is None else min(LOOK, max(0.0, until - time.monotonic()))
        for file, _ in poller.poll(1000 * left):
            if file in stream_of:
                stream_of[file].take()
            elif file in rank_of:
                self._take(rank_of[file], outcomes)
            else:
                os.read(self._woken, 4096)

    def _flush(self, rank: int) -> None:
        try:
            self._channels[rank].flush()
        except ConnectionError:
            raise _Died(rank) from None

    def _take(self, rank: int, outcomes: list[Outcome]) -> None:
        try:
            come = self._channels[rank].take()
        except ConnectionError:
            raise _Died(rank) from None
        outcomes += (pickle.loads(body) for kind, body in come if kind == OUTCOME)

    def _drain(self) -> None:
        for stream in self._streams:
            stream.drain()

    def _break_off(self, outcomes: list[Outcome], error: BaseException) -> str:
        """Interrupt the functions that still run; return why the ranks are of no use any more, "" if they are."""
        for rank, channel in self._channels.items():
            if all(one.rank != rank for one in outcomes):
                channel.put(INTERRUPT, worker.NUMBER.pack(self._runs))
        until = time.monotonic() + GRACE
        try:
            while len(outcomes) < self._size and time.monotonic() < until:
                self._exchange(outcomes, until)
            self._drain()
        except _Died as died:
            return f"rank {died.rank} ended when it was interrupted by {type(error).__name__}"
        except OSError as trouble:
            return f"after {type(error).__name__}: {in_a_line(trouble)}"
        busy = sorted({*range(self._size)} - {one.rank for one in outcomes})
        if not busy:
            return ""
        named = ", ".join(map(str, busy))
        return f"rank {named} did not end within {GRACE:g} s when interrupted by {type(error).__name__}"

    def _verdict(self, rank: int, otherwise: str = "") -> RunFailed:
        """Return the error that names the rank which the launcher holds responsible.

        If it names none: `rank`, and `otherwise`, or the last line that the launcher said.
        """
        with suppress(subprocess.TimeoutExpired):
            self._launched.wait(VERDICT)
        with suppress(OSError):
            self._drain()
        printed = [line for stream in self._streams for line in stream.tail if f"[{rank}] " in line]
        lines = (self._folder / "said").read_text(errors="replace").splitlines(keepends=True)
        said = "".join(line for line in lines if not line.startswith(SHARED))  # that is no part of what went wrong
        told = read_report(self._report)
        if told["rank"] is None and not otherwise:
            before, _, last = said.rstrip().rpartition("\n")
            return RunFailed(rank, last or "ringcast-launch ended, and said nothing", before)
        if told["rank"] is None:
            return RunFailed(rank, otherwise, "".join(printed) or said)
        return failure("".join(printed) or said, told["exit_code"], told)

    def close(self) -> None:
        """End the ranks: those that are idle leave, those that are busy end at once."""
        if self._closed:
            return
        self._closed = True
        for channel in self._channels.values():
            with suppress(OSError):
                channel.connection.shutdown(socket.SHUT_RDWR)
        if self._launcher is not None:
            _end(self._launcher)
        for channel in self._channels.values():
            channel.connection.close()
        for stream in self._streams:
            os.close(stream.file)
        for end in self._waking, self._woken:
            os.close(end)
        if self._folder != Path(os.devnull):
            shutil.rmtree(self._folder, ignore_errors=True)


def _good(outcomes: Sequence[Outcome]) -> bool:
    return all(one.failure is None for one in outcomes)


def _loaded(outcome: Outcome) -> Any:
    """Return what a rank has returned."""
    return pickle.loads(outcome.result)


def _end(launcher: subprocess.Popen[bytes]) -> None:
    """Wait for the end of the launcher, whose ranks end; make it end if it does not."""
    for urge in launcher.terminate, launcher.kill:
        try:
            launcher.wait(END)
            return
        except subprocess.TimeoutExpired:
            urge()
    launcher.wait()
