"""The jobs of this user on this machine: a directory each, in which the launcher holds a lock and describes them."""

from __future__ import annotations

import fcntl
import json
import os
import stat
from dataclasses import asdict
from pathlib import Path

from ringcast._util import socket_path
from ringcast._util.dataclass import dataclass
from ringcast._util.output_files import write_text
from ringcast.config import worker

PREFIX = "ringcast-job-"  # of the directory's name; the job's name follows
LOCK = "lock"
DESCRIPTION = "job.json"
INQUIRIES = "ask"  # a socket: each client gets a file with the states of the ranks on all hosts, as JSON
_LONGEST_SOCKET = f"{PREFIX}12345678/rank-999999"


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job that runs, of `size` ranks, as far as it is on this machine: `ranks`, and their `pids`.

    `started` in seconds since 1970; `launcher` is a pid, of the job's agent where the launcher is on another host.
    """

    directory: str
    size: int
    launcher: int
    command: tuple[str, ...]
    started: float
    pids: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        return Path(self.directory).name.removeprefix(PREFIX)


def bases() -> list[str]:
    """Return the folders in which the directory of a job may be made with this environment, the best first."""
    return socket_path.folders(_LONGEST_SOCKET, worker.directories()[1])


def places() -> list[str]:
    """Return all folders in which jobs of this user may have their directories, with any TMPDIR."""
    return socket_path.everywhere(worker.directories()[1])


def describe(job: RunningJob) -> None:
    """Write the description of a job into its directory.

    Raises:
        OSError: it cannot be written.
    """
    write_text(Path(job.directory, DESCRIPTION), json.dumps(asdict(job)))


def running() -> list[RunningJob]:
    """Return the jobs of this user that run, the oldest first; none that is only about to start."""
    folders = [folder for place in bases() for folder in Path(place).glob(f"{PREFIX}*") if _alive(folder)]
    found = [job for folder in folders if (job := _read(folder)) is not None]
    return sorted(found, key=lambda job: (job.started, job.name))


def is_ours(folder: Path) -> bool:
    """Return whether this is a directory of ours, and no link to one.

    Raises:
        OSError: it is not there.
    """
    status = folder.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()


def _alive(folder: Path) -> bool:
    """Return whether the directory is ours and its lock is held, as it is while the launcher lives."""
    try:
        if not is_ours(folder):
            return False
        lock = os.open(folder / LOCK, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:  # gone meanwhile
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def _read(folder: Path) -> RunningJob | None:
    try:
        match json.loads((folder / DESCRIPTION).read_text()):
            case {
                "size": int(size),
                "launcher": int(launcher),
                "command": list(command),
                "started": float(started),
                "pids": list(pids),
                "ranks": list(ranks),
            } if len(pids) == len(ranks):
                numbers = tuple(map(int, pids)), tuple(map(int, ranks))
                return RunningJob(str(folder), size, launcher, tuple(map(str, command)), started, *numbers)
    except (OSError, ValueError, TypeError, RecursionError):  # the job has ended, or the file is not a job's
        pass
    return None
