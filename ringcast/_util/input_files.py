"""Files that a user names are read whole, but never without end: not a device, nor a pipe into which nobody writes."""

from __future__ import annotations

import os
import select
import stat
import time

LARGEST = 1 << 20  # bytes; what people write by hand is far below
PATIENCE = 10.0  # seconds that whoever writes into a pipe may take


def read(path: str | os.PathLike[str]) -> bytes:
    """Return what a file, or a pipe such as that of `<(command)`, holds.

    Raises:
        OSError: it cannot be read, has more than 1 MB, or a pipe did not end in time; `strerror` tells.
    """
    # Without O_NONBLOCK a pipe that nobody writes into would not even open.
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        waits = not stat.S_ISREG(os.fstat(file).st_mode)
        deadline, found = time.monotonic() + PATIENCE, b""
        while len(found) <= LARGEST:
            if waits and not _readable(file, deadline):
                raise OSError(0, f"it did not end within {PATIENCE:g} s")
            if not (data := os.read(file, LARGEST)):
                return found
            found += data
        raise OSError(0, f"it has more than {LARGEST >> 20} MB")
    finally:
        os.close(file)


def _readable(file: int, deadline: float) -> bool:
    poller = select.poll()
    poller.register(file, select.POLLIN)
    return bool(poller.poll(max(0.0, 1000 * (deadline - time.monotonic()))))
