"""Refuse a job with more ranks than this machine can run, before anything is started."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

from ringcast_launcher.plan.job import USAGE, JobError

FILES = 3  # open files of the launcher for each worker: its output, its errors, and its connection
MEMORY = 1 << 20  # bytes that the smallest program takes; an interpreter with numpy takes about 30 times as much
MOST = 1_000_000  # ranks of a job, wherever they are


def check(ranks: int) -> None:
    """Check that this machine could run `ranks` ranks.

    Raises:
        JobError: the machine cannot; the text names the limit.
    """
    for most, limit in limits():
        if ranks > most:
            raise JobError(f"{ranks} ranks are more than this machine can have: {limit} allows {most} at most", USAGE)


def check_all(ranks: int) -> None:
    """Check that some set of hosts could run `ranks` ranks.

    Raises:
        JobError: no set of hosts can.
    """
    if ranks > MOST:
        raise JobError(f"{ranks} ranks are too many: a job has {MOST} at most", USAGE)


def limits() -> Iterator[tuple[int, str]]:
    """Yield the known limits: the number of ranks, and the name of the limit."""
    for name in ("pid_max", "threads-max"):
        yield from _file(Path("/proc/sys/kernel", name))
    yield from _file(_cgroup() / "pids.max")
    if os.geteuid() != 0:  # of root's processes there may be any number
        yield from _resource(resource.RLIMIT_NPROC, 1, "the limit of processes (ulimit -u)")
    yield from _resource(resource.RLIMIT_NOFILE, FILES, "the limit of open files (ulimit -Hn)")
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    yield memory // MEMORY, f"its memory of {memory / 1e9:.3g} GB"


def _file(path: Path) -> Iterator[tuple[int, str]]:
    try:
        text = path.read_text().strip()
    except OSError:  # no such control group here
        return
    if text.isdecimal():  # and not "max"
        yield int(text), str(path)


def _resource(number: int, each: int, name: str) -> Iterator[tuple[int, str]]:
    hard = resource.getrlimit(number)[1]
    if hard != resource.RLIM_INFINITY:
        yield hard // each, name


def _cgroup() -> Path:
    """Return the directory of this process's control group (version 2)."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        lines = []
    own = next((line[3:] for line in lines if line.startswith("0::")), "/")
    return Path("/sys/fs/cgroup", own.lstrip("/"))
