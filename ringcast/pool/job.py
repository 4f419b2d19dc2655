"""The job of a pool that has its own: its master and its workers, started and watched by `ringcast-launch`.

The master is rank 0, on the caller's host: content goes to all hosts in one broadcast from there.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from ringcast._util import socket_path
from ringcast._util.streams import flush, write_text
from ringcast.bootstrap.launched import failure, read_report
from ringcast.bootstrap.run import SHARED, TAIL
from ringcast.config.worker import allocated_hosts
from ringcast.errors import RunFailed, UsageError
from ringcast.monitoring import jobs
from ringcast.net.hostlist import Host, is_own
from ringcast.pool.link import Link
from ringcast.pool.messages import Frames, Ready
from ringcast.pool.rank import SOCKET
from ringcast.procs import green_threads

START = 120.0  # seconds that the ranks may take to start, unless the launcher ends before
LOOK = 0.5  # seconds after which we look whether the launcher lives
END = 5.0  # seconds that a launcher may take to end its ranks, in vain so far
_LAUNCHER = "ringcast-launch: "
GRACE = 1.0  # seconds between SIGTERM and SIGKILL for ranks


class Job:
    """A job of a master and workers, from its start to its end."""

    def __init__(self, hosts: Sequence[Host], retries: int) -> None:
        """Start workers, as many on each host as it has slots; a host without a name is this machine.

        Raises:
            RunFailed: they did not start.
        """
        green_threads.refuse("a pool of processes")
        bases = jobs.bases()
        if not bases:
            raise UsageError(f"no folder is fit for the socket of a pool; {socket_path.REMEDY}")
        self._link: Link | None = None
        self._launcher: subprocess.Popen[str] | None = None
        self._copiers: list[threading.Thread] = []
        self._tail: deque[str] = deque(maxlen=TAIL)  # of output
        self._closed = threading.Lock()
        self._quiet = threading.Event()  # what the launcher says of an end that we brought about is no news
        self._report = tempfile.TemporaryFile()  # noqa: SIM115  closed by `close`
        # Nobody else can enter it (mode 0700), so what comes over the socket is this user's.
        self._folder = Path(tempfile.mkdtemp(prefix="ringcast-pool-", dir=bases[0]))
        try:
            with socket.socket(socket.AF_UNIX) as door:
                door.bind(str(self._folder / SOCKET))
                door.listen(1)
                self._launch(hosts)
                self._link = Link(self._admit(door))
            shutil.rmtree(self._folder)  # a caller that is killed could not
            self._link.send((sys.path, retries))
            self.hosts: dict[int, str] = self._ready()
        except BaseException:
            self.end()
            raise

    def _launch(self, hosts: Sequence[Host]) -> None:
        # -P: files of the working directory shadow none of our modules, nor Python's own.
        command = [sys.executable, "-P", "-m", "ringcast_launcher", "--on-failure", "continue"]
        command += ["--json-report", f"/dev/fd/{self._report.fileno()}", "--grace", str(GRACE), *_where(hosts)]
        command += ["python", "-P", "-m", "ringcast.pool.rank", str(self._folder)]
        # In a process group of its own Ctrl-C does not reach it: this process decides on the fate of the ranks.
        self._launcher = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            process_group=0,
            pass_fds=[self._report.fileno()],
            text=True,
            errors="replace",
        )
        for source, name in (self._launcher.stdout, "stdout"), (self._launcher.stderr, "stderr"):
            assert source is not None
            copier = threading.Thread(
                target=_copy, args=(source, name, self._tail, self._quiet), name=f"pool-{name}", daemon=True
            )
            copier.start()
            self._copiers.append(copier)

    def _admit(self, door: socket.socket) -> socket.socket:
        """Return the connection of the master."""
        assert self._launcher is not None
        door.settimeout(LOOK)
        until = time.monotonic() + START
        while True:
            with suppress(TimeoutError):
                return door.accept()[0]
            if self._launcher.poll() is not None:
                raise self.verdict()
            if time.monotonic() > until:
                raise RunFailed(0, f"the ranks of the pool did not start within {START:g} s", "".join(self._tail))

    def _ready(self) -> dict[int, str]:
        assert self._link is not None
        try:
            (message, _), *_ = self._link.receive()
        except EOFError:
            self._link.close()
            raise self.verdict() from None
        assert isinstance(message, Ready)
        return message.hosts

    def tell(self, message: Any, frames: Frames = ()) -> None:
        """Send a message to the master; nothing if it is gone, which `said` shows."""
        assert self._link is not None
        self._link.send(message, frames)

    def said(self) -> Iterator[tuple[Any, Frames]]:
        """Return the messages of the master, as they come, until it is gone."""
        assert self._link is not None
        try:
            while True:
                yield from self._link.receive()
        except EOFError:
            self._link.close()

    def verdict(self) -> RunFailed:
        """Return why the job has ended, in the words of the launcher, which is given time to end."""
        launcher = self._launcher
        if launcher is not None:
            with suppress(subprocess.TimeoutExpired):
                launcher.wait(END)
        for copier in self._copiers:
            copier.join(END)
        with self._closed:
            if self._launcher is None:  # `end` of another thread has given the report back
                return RunFailed(0, "the pool was ended")
            told = read_report(os.pread(self._report.fileno(), os.fstat(self._report.fileno()).st_size, 0))
        output = "".join(self._tail)
        if told["rank"] is None:
            before, _, last = output.rstrip().rpartition("\n")
            return RunFailed(0, last or "ringcast-launch ended without an output", before)
        return failure(output, told["exit_code"], told)

    def end(self, *, at_once: bool = True) -> None:
        """End the ranks, or wait for their end after Stop; give everything back. Idempotent."""
        with self._closed:
            launcher, self._launcher = self._launcher, None
            self._quiet.set()
            if launcher is not None:
                _wait(launcher, at_once)
            for copier in self._copiers:
                if copier is not threading.current_thread():
                    copier.join(END)
            if self._link is not None:
                self._link.shut()
            self._report.close()
            shutil.rmtree(self._folder, ignore_errors=True)


def _wait(launcher: subprocess.Popen[str], at_once: bool) -> None:
    """Wait until a launcher has ended, after its ranks."""
    urges = [launcher.terminate, launcher.terminate, launcher.kill]
    if at_once:
        urges.pop(0)()
    for urge in urges:
        try:
            launcher.wait(END)
            return
        except subprocess.TimeoutExpired:
            urge()
    launcher.wait()


def with_master(hosts: Sequence[Host]) -> list[Host]:
    """Return the hosts with a slot for the master before all others: on this one.

    >>> with_master([Host("h1", 2)])[1:]
    [Host(name='h1', slots=2)]
    >>> with_master([Host("", 2)])
    [Host(name='', slots=3)]
    """
    own = os.uname().nodename
    mine = [host for host in hosts if not host.name or is_own(host.name, own)]
    first = Host(mine[0].name if mine else own, 1 + sum(host.slots for host in mine))
    return [first, *(host for host in hosts if host not in mine)]


def _where(hosts: Sequence[Host]) -> list[str]:
    """Return the launcher's options that place the ranks; without a name they are on this machine."""
    allocated = allocated_hosts()
    if not hosts[0].name:
        # Within an allocation of Slurm the launcher would take its nodes.
        return ["-H", f"localhost:{hosts[0].slots}"] if allocated else ["-n", str(hosts[0].slots)]
    named = (f"{f'[{host.name}]' if ':' in host.name else host.name}:{host.slots}" for host in hosts)
    nodes = len(hosts) > 1 and all(host.name in allocated for host in hosts[1:])  # the first one is this machine
    return [*(["--rsh-agent", "srun"] if nodes else []), "-H", ",".join(named)]


def _copy(source: IO[str], name: str, tail: deque[str], quiet: threading.Event) -> None:
    """Copy output of the ranks to one of Python's streams, so that a notebook shows it."""
    with source:
        for line in source:
            tail.append(line)
            # That the ranks share the processors is no news in a pool.
            if line.startswith(SHARED) or (quiet.is_set() and line.startswith(_LAUNCHER)):
                continue
            sink = getattr(sys, name)
            with suppress(OSError, ValueError, AttributeError):  # closed, or none
                write_text(sink, line)
                flush(sink)
