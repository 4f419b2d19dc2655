"""The directory of a job's sockets: for its owner only, and removed at the end, if need be by the next launcher."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ringcast.jobs import LOCK, PREFIX, base


@contextmanager
def job_directory() -> Iterator[str]:
    """Make the directory, hold a lock in it as long as the launcher lives, and remove it at the end."""
    folder = base()
    _remove_orphans(Path(folder))
    made = tempfile.mkdtemp(prefix="ringcast-new-", dir=folder)
    name = made.replace("ringcast-new-", PREFIX)
    lock = os.open(os.path.join(made, LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.rename(made, name)  # only now, locked, can it be found by others
        yield name
    finally:
        shutil.rmtree(name, ignore_errors=True)
        os.close(lock)


def _remove_orphans(base: Path) -> None:
    """Remove what launchers left behind that were killed: the kernel has let go of their locks."""
    for folder in base.glob(f"{PREFIX}*"):
        try:
            if folder.stat().st_uid != os.getuid():
                continue
            lock = os.open(folder / LOCK, os.O_RDWR | os.O_CLOEXEC)
        except OSError:  # gone meanwhile
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except BlockingIOError:  # its launcher lives
            pass
        finally:
            os.close(lock)
