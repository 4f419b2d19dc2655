"""The directory of a job's sockets: private to its owner, and removed at the end, if need be by the next launcher."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from ringcast._util.socket_path import REMEDY, reason_not
from ringcast.config.worker import directories
from ringcast.errors import ConfigError
from ringcast.monitoring.jobs import LOCK, PREFIX, bases, is_ours, places

_NEW = "ringcast-new-"
_MAKING = 3600.0  # seconds after which nobody makes a directory any more: it takes less than one


@contextmanager
def job_directory() -> Iterator[str]:
    """Make the directory, hold a lock in it as long as the launcher lives, and remove it at the end.

    Raises:
        ConfigError: it can be made nowhere; the text says what to set.
    """
    if problem := reason_not(directories()[0]):
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
    """Remove what launchers left behind that were killed, also while they made or removed a directory."""
    for folder in [*base.glob(f"{PREFIX}*"), *filter(_is_old, base.glob(f"{_NEW}*"))]:
        with suppress(OSError):  # gone meanwhile, or not to be read
            if is_ours(folder):
                _remove_unlocked(folder)


def _remove_unlocked(folder: Path) -> None:
    """Remove a directory unless its launcher lives, and holds the lock; without a lock it is half made or half removed.

    A job's directory has its name only after it has its lock: one without is being removed, by whomever.
    """
    with ExitStack() as stack:
        try:
            lock = os.open(folder / LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            stack.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except FileNotFoundError:
            pass
        except BlockingIOError:  # its launcher lives
            return
        shutil.rmtree(folder, ignore_errors=True)


def _is_old(folder: Path) -> bool:
    """Return whether nothing was changed in a directory for so long that nobody is making it, still without a lock."""
    try:
        return time.time() - folder.lstat().st_ctime > _MAKING
    except OSError:
        return False
