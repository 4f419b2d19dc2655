"""Recognise a process by its number, on the host where it runs: others may have that number elsewhere, or later."""

from __future__ import annotations

import os
from contextlib import suppress

from ringcast.procs.colocation import kernel
from ringcast.procs.procfs import started


def mark(pid: int) -> str:
    """Return kernel, PID namespace and start time of a process in this process's namespace; "" where they are unknown.

    The start time is 0 if there is no such process.

    >>> mark(os.getpid()) == mark(os.getpid())
    True
    """
    with suppress(OSError):
        if system := kernel():
            return f"{system} {os.stat('/proc/self/ns/pid').st_ino} {started(pid)}"
    return ""


def lives_here(pid: int, its_mark: str) -> bool | None:
    """Return whether the process with this number and mark lives; None if it has its number elsewhere.

    >>> lives_here(os.getpid(), mark(os.getpid())), lives_here(os.getpid(), "elsewhere 1 2")
    (True, None)
    """
    now = mark(pid)
    if not now or now.rpartition(" ")[0] != its_mark.rpartition(" ")[0]:
        return None
    return now == its_mark
