"""The directory of a job's sockets: for its owner only, and removed at the end, if need be by the next launcher."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ringcast.config import directories
from ringcast.errors import ConfigError
from ringcast.jobs import LOCK, PREFIX, bases, is_ours, places
from ringcast.socketpath import REMEDY, objection

_NEW = "ringcast-new-"


@contextmanager
def job_directory() -> Iterator[str]:
    """Make the directory, hold a lock in it as long as the launcher lives, and remove it at the end.

    Raises:
        ConfigError: it can be made nowhere; the text says what to set.
    """
    if problem := objection(directories()[0]):
        raise ConfigError(problem)
    for place in places():
        _remove_orphans(Path(place))
    made = _make(bases())
    name = os.path.join(os.path.dirname(made), PREFIX + os.path.basename(made).removeprefix(_NEW))
    lock = os.open(os.path.join(made, LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.rename(made, name)  # only now, locked, can it be found by others
        yield name
    finally:
        shutil.rmtree(name, ignore_errors=True)
        os.close(lock)


def _make(folders: list[str]) -> str:
    """Make a directory that only we may enter in the first of these folders in which that is possible."""
    problems = []
    for folder in folders:
        try:
            return tempfile.mkdtemp(prefix=_NEW, dir=folder)
        except OSError as error:
            problems.append(f"{folder}: {error.strerror}")
    reason = ", ".join(problems) or "the path of the directory for temporary files is too long"
    raise ConfigError(f"there is no place for the sockets of the job ({reason}); {REMEDY}, with a short path")


def _remove_orphans(base: Path) -> None:
    """Remove what launchers left behind that were killed: the kernel has let go of their locks."""
    for folder in base.glob(f"{PREFIX}*"):
        try:
            if not is_ours(folder):
                continue
            lock = os.open(folder / LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:  # gone meanwhile
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except BlockingIOError:  # its launcher lives
            pass
        finally:
            os.close(lock)
