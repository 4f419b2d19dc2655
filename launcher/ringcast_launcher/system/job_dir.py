"""Make the private directory of a job's sockets, and remove it at the end; clean up after killed launchers."""

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
_MAKING = 3600.0  # seconds after which a directory without a lock is abandoned: to make one takes less than a second


@contextmanager
def job_directory() -> Iterator[str]:
    """Make the directory, hold a lock in it as long as the launcher lives, and remove it at the end.

    Raises:
        ConfigError: no directory can be made; the text says what to set.
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
    """Make a directory that only we may enter, in the first of these folders where this is possible."""
    problems = []
    for folder in folders:
        try:
            return tempfile.mkdtemp(prefix=_NEW, dir=folder)
        except OSError as error:
            problems.append(f"{folder}: {error.strerror}")
    reason = ", ".join(problems) or "the path of the directory for temporary files is too long"
    raise ConfigError(f"there is no place for the sockets of the job ({reason}); {REMEDY}, with a short path")


def _remove_orphans(base: Path) -> None:
    """Remove directories of killed launchers, also half made and half removed ones."""
    try:
        names = os.listdir(base)
    except OSError:  # there is nothing that we could remove
        return
    folders = [base / name for name in names if name.startswith((PREFIX, _NEW))]
    for folder in [each for each in folders if each.name.startswith(PREFIX) or _is_old(each)]:
        with suppress(OSError):  # gone meanwhile, or not to be read
            if is_ours(folder):
                _remove_unlocked(folder)


def _remove_unlocked(folder: Path) -> None:
    """Remove a directory unless its launcher lives, and holds the lock; without a lock it is half made or half removed.

    A job's directory gets its name only after its lock: so one without a lock is being removed by another process.
    """
    with ExitStack() as stack:
        try:
            lock = os.open(folder / LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            stack.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except FileNotFoundError:
            pass
        except BlockingIOError:  # the launcher lives
            return
        shutil.rmtree(folder, ignore_errors=True)


def _is_old(folder: Path) -> bool:
    """Return whether a directory was unchanged for `_MAKING` seconds, so that no launcher is still making it."""
    try:
        return time.time() - folder.lstat().st_ctime > _MAKING
    except OSError:
        return False
