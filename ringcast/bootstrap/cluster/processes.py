"""The ranks of a cluster as processes, started and watched by `ringcast-launch`.

`HereRanks` has the ranks of this machine, `ThereRanks` the ranks of another host. The thread that waits for a function
also reads all reports while the function runs: there is no other thread.
"""

from __future__ import annotations

import os
import pickle
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from ringcast._util import socket_path
from ringcast.bootstrap.cluster.call import Call, packed
from ringcast.bootstrap.cluster.host import SETTINGS, Event, HereRanks, HostRanks, Kind
from ringcast.bootstrap.cluster.interrupts import Interrupts
from ringcast.bootstrap.cluster.outcome import Outcome
from ringcast.bootstrap.cluster.output import Screen, Stream, width
from ringcast.bootstrap.cluster.ranks import BrokenOff
from ringcast.bootstrap.cluster.relay import ThereRanks
from ringcast.bootstrap.launched import failure, read_report
from ringcast.bootstrap.run import SHARED
from ringcast.bootstrap.time_limit import GRACE
from ringcast.errors import RunFailed, UsageError
from ringcast.monitoring import jobs
from ringcast.net.hostlist import Host, is_own, place
from ringcast.procs import green_threads
from ringcast.wire.error_text import in_a_line

START = 120.0  # seconds that the ranks may take to start, unless the launcher reports an error before
LOOK = 0.5  # seconds after which we look whether the launcher lives
VERDICT = 10.0  # seconds in which the launcher says why a rank has ended
END = 5.0  # seconds that idle ranks, or the launcher, may take to end


class _Died(Exception):
    """The process of a rank is gone."""

    def __init__(self, rank: int) -> None:
        super().__init__(rank)
        self.rank = rank


class ProcessRanks:
    """Ranks that wait in processes for calls, on this machine or on several hosts; fulfils `Ranks`."""

    def __init__(self, hosts: Sequence[Host]) -> None:
        """Start as many ranks on each host as it has slots; without a name it is this machine."""
        green_threads.refuse("a cluster of processes")
        self._placed = place(hosts)
        self._size, self._runs, self._closed = len(self._placed), 0, False
        self._hosts: list[HostRanks] = []
        self._host_of: dict[int, HostRanks] = {}
        screens = Screen("stdout"), Screen("stderr")
        self._streams = [tuple(Stream(rank, screen) for screen in screens) for rank in range(self._size)]
        self._launcher: subprocess.Popen[bytes] | None = None
        # Of the launcher; without names, as nothing would remove them after the end of a caller that is killed.
        self._report, self._said = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115  closed by `close`
        self._waking, self._woken = os.pipe()[::-1]
        for end in self._waking, self._woken:
            os.set_blocking(end, False)
        self._folder = Path(os.devnull)
        try:
            with Interrupts(self.wake) as interrupts:
                self._start(hosts, interrupts)
        except BaseException:
            self.close()
            raise

    def wake(self) -> None:
        with suppress(BlockingIOError):
            os.write(self._waking, b"!")

    def _start(self, hosts: Sequence[Host], interrupts: Interrupts) -> None:
        bases = jobs.bases()
        if not bases:
            raise UsageError(f"no folder is fit for the sockets of a cluster; {socket_path.REMEDY}")
        self._folder = Path(tempfile.mkdtemp(prefix="ringcast-cluster-", dir=bases[0]))  # mode 0700: pickles are safe
        settings = pickle.dumps((sys.path, width("stderr")))
        for number, host in enumerate(hosts):
            self._connect(host.name, [each.rank for each in self._placed if each.node == number], settings)
        if any(isinstance(each, HereRanks) for each in self._hosts):
            (self._folder / SETTINGS).write_bytes(settings)
        else:
            self._folder.rmdir()  # ranks of this host alone would remove it
        away = sum(isinstance(each, ThereRanks) for each in self._hosts)
        self._await(Kind.READY, away, interrupts)
        # -P: files of the working directory shadow none of our modules, nor Python's own.
        command = [sys.executable, "-P", "-m", "ringcast_launcher"]
        command += ["--json-report", f"/dev/fd/{self._report.fileno()}", *_where(hosts)]
        command += ["python", "-P", "-m", "ringcast.bootstrap.cluster.worker", str(self._folder)]
        command += [",".join(str(each.rank) for each in self._placed if each.local_rank == 0)]
        # In a process group of its own Ctrl-C does not reach it: this process decides on the fate of the ranks.
        self._launcher = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self._said,
            stderr=self._said,
            process_group=0,
            pass_fds=[self._report.fileno()],
        )
        self._await(Kind.JOINED, self._size, interrupts)

    def _connect(self, host: str, ranks: list[int], settings: bytes) -> None:
        """Prepare for the ranks of a host."""
        made: HostRanks
        if not host or is_own(host, os.uname().nodename):
            made = HereRanks(self._folder, len(ranks))
        else:
            made = ThereRanks(host, self._folder.name, ranks, settings)
        self._hosts.append(made)
        self._host_of |= dict.fromkeys(ranks, made)

    def _await(self, kind: Kind, times: int, interrupts: Interrupts) -> None:
        """Wait until an event of this kind has come `times` times.

        Raises:
            RunFailed: they have not come within START, a rank has died, or the launcher has ended.
        """
        until, seen = time.monotonic() + START, 0
        while seen < times:
            try:
                seen += sum(event.kind == kind for event in self._events(LOOK))
            except _Died as died:
                host = self._host_of[died.rank]
                words = f": {host.words}" if isinstance(host, ThereRanks) else ""
                where = self._placed[died.rank].host
                raise self._verdict(died.rank, f"it did not start on host {where}{words}") from None
            interrupts.deliver()
            if self._launcher is not None and self._launcher.poll() is not None:
                raise self._verdict(0)
            if time.monotonic() > until:
                raise self._verdict(0, f"the ranks did not start within {START:g} s")

    def prepare(self, fn: Callable[..., Any], args: Sequence[Any]) -> Call:
        return packed(fn, args)

    def run(self, call: Call, until: float | None, interrupts: Interrupts) -> list[Outcome]:
        self._runs += 1
        outcomes: list[Outcome] = []
        try:
            with call.memory() as memory:
                for host in self._hosts:
                    host.call(call.body, memory)
            while len(outcomes) < self._size:
                interrupts.deliver()
                self._exchange(outcomes, until)
                if until is not None and time.monotonic() >= until and len(outcomes) < self._size:
                    raise TimeoutError
            self._drain()
            return [replace(one, result=_loaded(one)) for one in outcomes] if _good(outcomes) else outcomes
        except _Died as died:
            raise self._verdict(died.rank, "its process ended in the middle of a run") from None
        except BaseException as error:  # an interrupt, or an error of a signal's handler
            unended = self._unended(outcomes)
            raise BrokenOff(error, unended, outcomes, self._break_off(outcomes, error)) from error

    def _unended(self, outcomes: list[Outcome]) -> list[int]:
        return sorted({*range(self._size)} - {one.rank for one in outcomes})

    def _exchange(self, outcomes: list[Outcome], until: float | None) -> None:
        """Send, take outcomes and show output, until something has come, or `until`, or LOOK.

        Raises:
            _Died: a rank is gone.
        """
        left = LOOK if until is None else min(LOOK, max(0.0, until - time.monotonic()))
        outcomes += (pickle.loads(event.data) for event in self._events(left) if event.kind == Kind.OUTCOME)

    def _events(self, seconds: float) -> Iterator[Event]:
        """Send, wait until something has come, and show output; return the other events.

        Raises:
            _Died: a rank is gone.
        """
        poller = select.poll()
        poller.register(self._woken, select.POLLIN)
        host_of = {file: host for host in self._hosts for file in host.register(poller)}
        for file, _ in poller.poll(1000 * seconds):
            if file not in host_of:
                os.read(self._woken, 4096)
                continue
            for event in host_of[file].take(file):
                if event.kind == Kind.DIED:
                    raise _Died(event.rank)
                if not self._shown(event):
                    yield event

    def _shown(self, event: Event) -> bool:
        """If an event is output, show it and return True; else return False."""
        if event.kind not in (Kind.STDOUT, Kind.STDERR):
            return False
        self._streams[event.rank][event.kind - Kind.STDOUT].feed(event.data)
        return True

    def _drain(self) -> None:
        for host in self._hosts:
            for event in host.drain():
                self._shown(event)
        for streams in self._streams:
            for stream in streams:
                stream.end_line()

    def _break_off(self, outcomes: list[Outcome], error: BaseException) -> str:
        """Interrupt the functions that still run; return why the ranks are of no use any more, "" if they are."""
        for rank, host in self._host_of.items():
            if all(one.rank != rank for one in outcomes):
                host.interrupt(rank, self._runs)
        until = time.monotonic() + GRACE
        try:
            while len(outcomes) < self._size and time.monotonic() < until:
                self._exchange(outcomes, until)
            self._drain()
        except _Died as died:
            return f"rank {died.rank} ended when it was interrupted by {type(error).__name__}"
        except OSError as trouble:
            return f"after {type(error).__name__}: {in_a_line(trouble)}"
        busy = self._unended(outcomes)
        if not busy:
            return ""
        named = ", ".join(map(str, busy))
        return f"rank {named} did not end within {GRACE:g} s when interrupted by {type(error).__name__}"

    def _verdict(self, rank: int, otherwise: str = "") -> RunFailed:
        """Return the error that names the rank that the launcher holds responsible.

        If it names none: `rank`, and `otherwise`, or the last line that the launcher said.
        """
        if self._launcher is None:
            return RunFailed(rank, otherwise)
        with suppress(subprocess.TimeoutExpired):
            self._launcher.wait(VERDICT)
        with suppress(OSError):
            self._drain()
        printed = [line for stream in self._streams[rank] for line in stream.tail]
        lines = _contents(self._said).decode("utf-8", "replace").splitlines(keepends=True)
        said = "".join(line for line in lines if not line.startswith(SHARED))  # that is no part of the error
        told = read_report(_contents(self._report))
        if told["rank"] is None and not otherwise:
            before, _, last = said.rstrip().rpartition("\n")
            return RunFailed(rank, last or "ringcast-launch ended without an output", before)
        if told["rank"] is None:
            return RunFailed(rank, otherwise, "".join(printed) or said)
        return failure("".join(printed) or said, told["exit_code"], told)

    def close(self) -> None:
        """End the ranks: idle ones leave, busy ones are ended at once."""
        if self._closed:
            return
        self._closed = True
        for host in self._hosts:
            host.leave()
        if self._launcher is not None:
            _end(self._launcher)
        for host in self._hosts:
            host.close()
        for end in self._waking, self._woken:
            os.close(end)
        for file in self._report, self._said:
            file.close()
        if self._folder != Path(os.devnull):
            shutil.rmtree(self._folder, ignore_errors=True)


def _contents(file: IO[bytes]) -> bytes:
    """Return all bytes of a file, whose position stays: the launcher shares it."""
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0)


def _where(hosts: Sequence[Host]) -> list[str]:
    """Return the launcher's options that place the ranks."""
    if not hosts[0].name:
        return ["-n", str(hosts[0].slots)]
    named = ",".join(f"{f'[{host.name}]' if ':' in host.name else host.name}:{host.slots}" for host in hosts)
    return ["-H", named]


def _good(outcomes: Sequence[Outcome]) -> bool:
    return all(one.failure is None for one in outcomes)


def _loaded(outcome: Outcome) -> Any:
    """Return the result of a rank."""
    return pickle.loads(outcome.result)


def _end(launcher: subprocess.Popen[bytes]) -> None:
    """Wait until the launcher has ended, after its ranks; end it if it does not."""
    for urge in launcher.terminate, launcher.kill:
        try:
            launcher.wait(END)
            return
        except subprocess.TimeoutExpired:
            urge()
    launcher.wait()
