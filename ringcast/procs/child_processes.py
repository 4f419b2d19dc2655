"""Detect a child process of a rank that calls `init`, and end the rank with one error.

multiprocessing runs the program's file again in each process that it spawns. Where `init` is not guarded by
`if __name__ == "__main__"`, the process would join as the rank that started it; and when it fails, a pool starts
another one, without end. So a rank listens at a pipe, and puts the pipe's number into its environment
(RINGCAST_JOINED). A child of multiprocessing writes to that pipe, and waits until the rank has ended. The child finds
the pipe in /proc; on systems without /proc it only raises.
"""

from __future__ import annotations

import os
import select
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

from ringcast._util.dataclass import dataclass
from ringcast.errors import UsageError
from ringcast.procs.portable import end_of

LONGEST = select.PIPE_BUF  # bytes of an error that are written at once or not at all
PATIENCE = 10.0  # seconds that a child which called `init` waits for the end of its rank
GUARD = "if __name__ == '__main__'"


@dataclass(frozen=True, slots=True)
class RankProcess:
    """The process that has joined a job as a rank, and the pipe by which its children report errors."""

    nonce: int
    rank: int
    pid: int
    file: int  # descriptor of the pipe's writing end
    inode: int  # of the pipe

    def __str__(self) -> str:
        """Return the text that `parse` reads back."""
        return f"{self.nonce}:{self.rank}:{self.pid}:{self.file}:{self.inode}"


def parse(text: str) -> RankProcess | None:
    """Return the process that RINGCAST_JOINED describes; None if the text describes none.

    >>> parse(str(RankProcess(7, 0, 4711, 5, 99)))
    RankProcess(nonce=7, rank=0, pid=4711, file=5, inode=99)
    >>> parse("")
    """
    try:
        return RankProcess(*map(int, text.split(":")))
    except (TypeError, ValueError):
        return None


def listen(nonce: int, rank: int, fail: Callable[[str], None]) -> RankProcess:
    """Register this process as a rank; `fail` is called, in a thread, with the error of the first child."""
    reading, writing = os.pipe()

    def wait() -> None:
        with open(reading, "rb", buffering=0) as pipe:
            fail(pipe.read(LONGEST).decode("utf-8", "replace"))

    threading.Thread(target=wait, name="ringcast-children", daemon=True).start()
    return RankProcess(nonce, rank, os.getpid(), writing, os.fstat(writing).st_ino)


def refuse(parent: RankProcess) -> None:
    """Check that this process is the rank itself, and not a child of it.

    Raises:
        UsageError: this process is a child; the text says what to do.
    """
    if parent.pid == os.getpid():
        return
    text = (
        f"rank {parent.rank}: {_caller()} calls ringcast.init in process {os.getpid()}, which was started by this rank "
        f"(process {parent.pid}) and cannot join as the same one: put init under `{GUARD}`, as multiprocessing runs "
        "the program's file again in its processes; for a job of its own use ringcast-launch or ringcast.run"
    )
    if _of_multiprocessing():
        _tell(parent, text)
        if _ended(parent.pid):
            os._exit(1)  # the rank has printed the error
    raise UsageError(text)


def _of_multiprocessing() -> bool:
    process = sys.modules.get("multiprocessing.process")  # each process of multiprocessing has imported it
    if process is None:
        return False
    # The fork server imports the program's file before `parent_process` returns anything.
    return process.parent_process() is not None or getattr(process.current_process(), "_inheriting", False)


def _caller() -> str:
    """Return the line of the user's program that calls the library, as file:line."""
    library, frame = os.path.dirname(os.path.dirname(__file__)), sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(library):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _tell(parent: RankProcess, text: str) -> None:
    """Write to the rank's pipe; do nothing if the pipe cannot be opened, because the rank ends."""
    with suppress(OSError):
        pipe = os.open(f"/proc/{parent.pid}/fd/{parent.file}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            if os.fstat(pipe).st_ino == parent.inode:
                os.write(pipe, text.encode("utf-8", "replace")[:LONGEST])
        finally:
            os.close(pipe)


def _ended(pid: int) -> bool:
    """Wait at most PATIENCE seconds for the end of a process; return whether it has ended."""
    try:
        file = end_of(pid)
    except OSError as error:
        return isinstance(error, ProcessLookupError)
    if file is None:
        return False
    try:
        poller = select.poll()
        poller.register(file, select.POLLIN)
        return bool(poller.poll(1000 * PATIENCE))
    finally:
        os.close(file)
