"""Replace on other systems the functions that only Linux has: no other module asks which system this is.

Where a system has no replacement, a function says so by its result (None, False), and the features that need it are
off: docs/operate/platforms.md lists them. Imports little, as the watchdog and every start wait for it.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from contextlib import suppress

TYPE_CHECKING = False  # as in `typing`, for which the watchdog does not wait
if TYPE_CHECKING:
    import subprocess

REAL_TIME = range(signal.SIGRTMIN, signal.SIGRTMAX + 1) if hasattr(signal, "SIGRTMIN") else range(0)  # signals
STACKS: int | None = REAL_TIME[5] if REAL_TIME else None  # a signal that no other library is known to use
_ONE = (1).to_bytes(8, sys.byteorder)  # as an eventfd takes it
_AT_ONCE, _LARGE = 4096, 1 << 16  # bytes
Seen = tuple[int, int, int, str]  # parent, process group, session and state of a process
_PS = ("ps", "-A", "-o", "pid=,ppid=,pgid=,stat=")


class Bell:
    """A file that becomes readable when another thread, or a handler of a signal, rings."""

    def __init__(self, *, rung: bool = False) -> None:
        """Open the bell's file: an eventfd, or else a pipe.

        Raises:
            OSError: too many files are open.
        """
        if hasattr(os, "eventfd"):
            self._file = self._other = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        else:
            self._file, self._other = os.pipe()
            os.set_blocking(self._file, False)
            os.set_blocking(self._other, False)
        if rung:
            self.ring()

    def fileno(self) -> int:
        """Return the file's descriptor, for `select` and the like."""
        return self._file

    def ring(self) -> None:
        """Make the file readable; from any thread."""
        with suppress(BlockingIOError):  # the pipe or counter is full, so the file is readable already
            os.write(self._other, _ONE)

    def silence(self) -> bool:
        """Return whether it was rung, and make the file unreadable until it is rung again."""
        rung, more = False, True
        with suppress(BlockingIOError):
            while more:  # a pipe may be full
                more = len(os.read(self._file, _AT_ONCE)) == _AT_ONCE
                rung = True
        return rung

    def close(self) -> None:
        """Close the file; call this once."""
        os.close(self._file)
        if self._other != self._file:
            os.close(self._other)


def signal_name(number: int) -> str:
    """Return the name of a signal.

    >>> signal_name(9), signal_name(40)
    ('SIGKILL', 'SIGRTMIN+6')
    """
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIGRTMIN+{REAL_TIME.index(number)}" if number in REAL_TIME else f"signal {number}"


def reason_not_sockets() -> str:
    """Return why the transport `sockets` cannot be used here; empty if it can."""
    return "" if hasattr(select, "epoll") else f"{sys.platform} has no epoll"


def processors() -> int:
    """Return how many processors this process may use."""
    return len(bound()) or os.cpu_count() or 1


def bound() -> list[int]:
    """Return the numbers of the processors that this process may use; none if they are unknown."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def starved(thread: int) -> float | None:
    """Return for how many seconds a thread of this process was ready to run and had no processor; None if unknown."""
    try:
        return int(content(f"/proc/self/task/{thread}/schedstat").split()[1]) / 1e9
    except (OSError, IndexError):
        return None


def end_of(pid: int) -> int | None:
    """Return a file that becomes readable when the process has ended; None where there are no such files.

    Raises:
        ProcessLookupError: there is no such process.
        OSError: too many files are open.
    """
    return os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None


def nameless_file(name: str) -> int:
    """Return a new file that needs no removal; `name` shows only in listings of this process's descriptors.

    Raises:
        OSError: there is no room for it.
    """
    if hasattr(os, "memfd_create"):
        with suppress(OSError):  # as in a container that forbids it
            return os.memfd_create(name, os.MFD_CLOEXEC)
    import tempfile

    with tempfile.TemporaryFile(prefix=name) as file:
        return os.dup(file.fileno())


def reserve(file: int, size: int) -> None:
    """Give an empty file `size` bytes, and allocate room for them.

    Raises:
        OSError: there is no room.
    """
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, size)
    else:
        os.write(file, bytes(size))


def allocate(file: int, size: int) -> None:
    """Allocate room for a file of `size` bytes without a change of its content; do nothing where the system cannot.

    Raises:
        OSError: there is no room.
    """
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, size)


def exit_code(child: subprocess.Popen[bytes]) -> int | None:
    """Return the exit code of a child, or minus the signal that killed it; None while it runs.

    The child stays a zombie, so that no other process gets its number; but where the system cannot show the code of a
    zombie, the child is reaped.
    """
    if not hasattr(os, "waitid"):
        return child.poll()
    info = os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if info is None:
        return None
    return info.si_status if info.si_code == os.CLD_EXITED else -info.si_status


def processes() -> dict[int, Seen]:
    """Return parent, process group, session and state of every process, from /proc or the output of `ps`."""
    try:
        names = os.listdir("/proc")
    except OSError:
        names = []
    return _from_proc(names) if "self" in names else _from_ps()


def content(path: str) -> bytes:
    """Return the content of a file of /proc; a look at all processes takes a third of the time that `open` would need.

    Raises:
        OSError: the file cannot be read.
    """
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        pieces = [os.read(file, _AT_ONCE)]
        while pieces[-1]:  # how much there is, its size does not say
            pieces.append(os.read(file, _LARGE))
    finally:
        os.close(file)
    return b"".join(pieces)


def _from_proc(names: list[str]) -> dict[int, Seen]:
    seen: dict[int, Seen] = {}
    for name in names:
        if name.isdigit():
            with suppress(OSError):  # the process has ended meanwhile
                state, parent, group, session = content(f"/proc/{name}/stat").rpartition(b")")[2].split()[:4]
                seen[int(name)] = int(parent), int(group), int(session), state.decode()
    return seen


def _from_ps() -> dict[int, Seen]:
    import subprocess

    seen: dict[int, Seen] = {}
    for line in subprocess.run(_PS, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False).stdout.splitlines():
        pid, parent, group, state = line.split()[:4]
        with suppress(OSError):  # the process has ended meanwhile, or is another user's, as `ps` itself
            seen[int(pid)] = int(parent), int(group), os.getsid(int(pid)), state[:1].decode()
    return seen
