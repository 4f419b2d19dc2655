"""Read a whole file that the user names, with bounds on size and time: it may be a device or a silent pipe."""

from __future__ import annotations

import os
import select
import stat
import time

LARGEST = 1 << 20  # bytes; files that people write by hand are far smaller
PATIENCE = 10.0  # seconds that the writer of a pipe may take


def read(path: str | os.PathLike[str]) -> bytes:
    """Return the content of a file, or of a pipe such as `<(command)`.

    Raises:
        OSError: the file cannot be read, has more than 1 MB, or a pipe did not end in time; `strerror` says which.
    """
    # Without O_NONBLOCK the open of a pipe without a writer would wait for ever.
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
