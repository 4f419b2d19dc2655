"""Jobs that the launcher starts on emulated hosts over real ssh, and what of them is on each host."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ringcast.commands.bench.bed import Bed
from support import store
from support.beds import ENVIRONMENT, run_on
from support.patience import patience
from support.sshd import ssh_bed

LAUNCH = [sys.executable, "-m", "ringcast_launcher"]
AGENT = rf"{re.escape(sys.executable)} -P -m ringcast_launcher\.hosts\.agent"  # the command line of one
LIMIT = 100.0  # seconds that a job may take on a busy machine
QUIET = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class Fleet:
    """Hosts, and a directory of their own for the programs and all temporary files."""

    def __init__(self, bed: Bed, folder: Path) -> None:
        self.bed, self.folder = bed, folder
        self.temporary = folder / "jobs"
        self.environment = {**ENVIRONMENT, **QUIET, "TMPDIR": str(self.temporary)}
        self._spaces = {_space(pid): i for i in range(len(bed.hosts)) if (pid := bed._holder(i))}
        self._holders = {bed._holder(i) for i in range(len(bed.hosts))}

    def program(self, text: str) -> str:
        """Write a program, and return where it is; all hosts have the same files."""
        path = self.folder / "program.py"
        path.write_text(text)
        return str(path)

    def launch(self, *arguments: str, host: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run the launcher on a host to its end."""
        return run_on(self.bed, host, [*LAUNCH, *arguments], LIMIT, {**self.environment, **environment})

    @contextmanager
    def started(self, *arguments: str, host: int = 0, **environment: str) -> Iterator[subprocess.Popen[str]]:
        """Start the launcher on a host; it is killed at the end if it still runs."""
        files = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        env = {**self.environment, **environment}
        with self.bed.start(host, [*LAUNCH, *arguments], env=env, **files) as process:
            try:
                yield process
            finally:
                if process.poll() is None:
                    process.kill()

    def processes(self, host: int | None = None) -> dict[int, str]:
        """Return the processes of the hosts, or of one of them, by pid of this machine; not those of sshd."""
        return {pid: command for pid, command in self._all(host) if not re.match(r"\S*sshd", command)}

    def _all(self, host: int | None) -> Iterator[tuple[int, str]]:
        for name in os.listdir("/proc"):
            with suppress(OSError, ValueError):
                pid = int(name)
                if (on := self._spaces.get(_space(pid))) is None or pid in self._holders or host not in (None, on):
                    continue
                command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
                if command:  # else it has ended, and waits to be reaped
                    yield pid, command

    def pid_of(self, host: int, pattern: str) -> int:
        """Return the process of a host whose command begins so; there must be one."""
        (pid,) = (pid for pid, command in self.processes(host).items() if re.match(pattern, command))
        return pid

    def sessions(self, host: int) -> list[int]:
        """Return what sshd has started for its sessions on a host, by pid of this machine."""
        return [pid for pid, command in self._all(host) if re.match(r"sshd(-session)?: .*@", command)]

    def workers(self, host: int) -> list[int]:
        """Return the workers of a host."""
        return [pid for pid in self.processes(host) if b"RINGCAST_RANK=" in _environment(pid)]

    def assert_empty(self, seconds: float = 10.0) -> None:
        """Nothing of a job is on any host any more, or not for long."""
        until(lambda: not self.processes() and not list(self.temporary.iterdir()), seconds, self._left)

    def clear(self) -> None:
        """End what a test has left."""
        for pid in self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _left(self) -> str:
        return f"left: {self.processes()} {list(self.temporary.iterdir())}"


@contextmanager
def fleet(text: str, folder: Path, **options: Any) -> Iterator[Fleet]:
    """Make hosts as `sshd.ssh_bed` does."""
    (folder / "jobs").mkdir()
    with ssh_bed(text, profile={"TMPDIR": str(folder / "jobs")}, **options) as bed:
        yield Fleet(bed, folder)


@contextmanager
def serving(made: Fleet, nbytes: int, rate: int, most: int) -> Iterator[str]:
    """Run a store on h0 that gives each of `most` connections `rate` bytes in a second; yield the URL of a file."""
    program = [sys.executable, str(Path(store.__file__)), "8123", str(nbytes), str(rate), str(most)]
    with made.bed.start(0, program, env=made.environment, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        yield f"http://{made.bed.hosts[0].address}:8123/model.bin"
        server.kill()


def until(done: Callable[[], Any], seconds: float = 60.0, why: Callable[[], str] = lambda: "it never came") -> Any:
    """Call `done` until it returns a true value, for `patience(seconds)` at most; return that value."""
    deadline = time.monotonic() + patience(seconds)
    while not (found := done()):
        assert time.monotonic() < deadline, why()
        time.sleep(0.02)
    return found


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    """Return the launcher's last word."""
    return done.stderr.splitlines()[-1]


def finished(process: subprocess.Popen[str], seconds: float = LIMIT) -> subprocess.CompletedProcess[str]:
    """Wait for the end of a launcher that was started."""
    out, err = process.communicate(timeout=patience(seconds))
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def variables(pid: int) -> Mapping[str, str]:
    """Return the environment that a process was started with."""
    entries = _environment(pid).decode("utf-8", "replace").split("\0")
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


def _environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def _space(pid: int) -> str:
    return os.readlink(f"/proc/{pid}/ns/pid")
