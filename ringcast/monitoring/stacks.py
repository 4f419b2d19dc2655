"""The Python stacks of a rank, written by a signal handler in C: also while it is in C code, or waits for a lock.

The launcher sends the signal when the job takes too long, to the ranks that have called `listen`.
"""

from __future__ import annotations

import faulthandler
import os

from ringcast.procs.portable import STACKS

FILE = "stacks-{rank}"  # in the job's directory; the first line is the number of the process

_file: int | None = None  # as long as the process lives


def listen(directory: str, rank: int) -> None:
    """Write the stacks of all threads to a file of the job's directory whenever the signal STACKS comes."""
    global _file
    if STACKS is None:
        return
    path = os.path.join(directory, FILE.format(rank=rank))
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:  # no room: it cannot be seen, but works
        return
    os.write(file, f"{os.getpid()}\n".encode())
    faulthandler.register(STACKS, file=file, all_threads=True, chain=False)
    if _file is not None:
        os.close(_file)
    _file = file
