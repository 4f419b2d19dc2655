"""Collect the Python stacks of all workers, for a job that takes too long (see `ringcast.monitoring.stacks`)."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from ringcast._util.dataclass import dataclass
from ringcast.monitoring.stacks import FILE
from ringcast.procs.portable import STACKS
from ringcast_launcher.decide.program_stacks import of_program

LIMIT = 1.0  # seconds for all ranks together
STILL = 0.05  # seconds without growth after which a file counts as written
MOST = 1 << 16  # bytes of a rank's stacks that are shown
_STEP = 0.005


@dataclass(slots=True)
class _Growing:
    """A file of stacks: its last known length, and the time when it last grew."""

    path: Path
    start: int
    size: int
    grown: float | None = None


def collect(directory: str, workers: Mapping[int, int], *, whole: bool = False) -> dict[int, str]:
    """Return the stacks of each rank after at most a second; `workers` are the ranks' processes, by rank.

    Only the program's own threads are in them; with `whole` all threads with all frames.
    """
    files = {rank: _ask(Path(directory, FILE.format(rank=rank)), worker) for rank, worker in workers.items()}
    deadline = time.monotonic() + LIMIT
    while any(_grows(file) for file in files.values() if file is not None) and time.monotonic() < deadline:
        time.sleep(_STEP)
    return {rank: _written(file, whole) for rank, file in files.items()}


def _ask(path: Path, worker: int) -> _Growing | None:
    """Send the signal to the rank's process if it has a handler; without one the signal would kill it."""
    try:
        pid, size = int(path.read_bytes().split(b"\n", 1)[0]), path.stat().st_size
        if STACKS is None or os.getsid(pid) != worker or not _listens(pid, STACKS):
            return None
        os.kill(pid, STACKS)
    except (OSError, ValueError):  # the rank has ended
        return None
    return _Growing(path, size, size)


def _listens(pid: int, number: int) -> bool:
    """Return True if the process, which may have become another program, has a handler for the signal."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> number - 1 & 1)
    return False


def _grows(file: _Growing) -> bool:
    """Return True if the file may still grow."""
    now, size = time.monotonic(), file.path.stat().st_size
    if size > file.size:
        file.size, file.grown = size, now
    return file.grown is None or now - file.grown < STILL


def _written(file: _Growing | None, whole: bool) -> str:
    if STACKS is None:
        return f"  no stacks: {sys.platform} has no signal for them\n"
    if file is None:
        return "  no stacks: it has not called ringcast.init, or has ended\n"
    with file.path.open("rb") as stream:
        stream.seek(file.start)
        text = stream.read(MOST).decode("utf-8", "replace")
    lines = [f"  {line}" for line in (text if whole else of_program(text)).splitlines() if line]
    return "\n".join(lines or ["  no stacks: it did not answer within a second"]) + "\n"
