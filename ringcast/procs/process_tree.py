"""Find and kill the processes of a job, also processes that left its sessions.

A process belongs to a job when it is a worker, or in the session or process group of one; when it has the tags of the
job in its environment, or the imprint of a worker; or when it descends from such a process. Imports little: the
watchdog uses it too.

The imprint finds processes that left the session, cleared their environment, and have no parent any more. It is a
number in the limit on file locks (RLIMIT_LOCKS), which no kernel since Linux 2.4.25 enforces: every process inherits
the number, whatever it runs, and loses it only by setting that very limit.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import time
from collections.abc import Callable, Collection, Mapping

from ringcast.procs.portable import Seen, content, processes
from ringcast.procs.timing import TIMING

PATIENCE = TIMING.kill
STEP = 0.005
IMPRINTS = 1 << 20  # of a job on one host; its ranks have consecutive ones
_LOCKS = 10  # RLIMIT_LOCKS, which the module resource does not name


def new_imprints() -> range:
    """Return random numbers for a job's imprints: another job hardly draws them, and no real limit is as large."""
    first = 1 << 60 | int.from_bytes(os.urandom(5), "big") << 20
    return range(first, first + IMPRINTS)


def take_imprint(number: int | None) -> None:
    """Set the imprint of this process, None for none; does nothing where the system does not allow it."""
    with contextlib.suppress(ValueError, OSError):
        most = resource.getrlimit(_LOCKS)[1]
        resource.setrlimit(_LOCKS, (most if number is None else number, most))


def members(
    leaders: Collection[int],
    tags: Collection[bytes],
    imprints: range = range(0),
    seen: Mapping[int, Seen] | None = None,
) -> set[int]:
    """Return the living processes of a job or a rank.

    Args:
        leaders: process numbers of workers that were not reaped yet, so that no other process has these numbers.
        tags: environment entries (NAME=value); a process of the job has all of them.
        imprints: of the job's workers.
        seen: all processes, if the caller has just looked at them.
    """
    seen = processes() if seen is None else seen
    wanted, found = set(leaders), set()
    for pid, (_, *groups, _) in seen.items():
        if pid in wanted or wanted.intersection(groups) or has_tags(pid, tags) or _imprinted(pid, imprints):
            found.add(pid)
    while born := {pid for pid, (parent, *_) in seen.items() if parent in found} - found:
        found |= born
    return {pid for pid in found if seen[pid][3] not in "ZX"} - {os.getpid()}


def orphans(parent: int, known: Collection[int], seen: Mapping[int, Seen] | None = None) -> set[int]:
    """Return the children of `parent` that are not `known`: it got them when their own parent ended."""
    seen = processes() if seen is None else seen
    return {pid for pid, (above, *_) in seen.items() if above == parent} - set(known)


def kill(find: Callable[[], set[int]]) -> None:
    """Kill the processes that `find` returns, again and again, until it returns none."""
    deadline = time.monotonic() + PATIENCE
    while (found := find()) and time.monotonic() < deadline:
        send(found, signal.SIGKILL)
        time.sleep(STEP)


def send(pids: Collection[int], number: int) -> None:
    """Send a signal to each of these processes that still exists and belongs to this user."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def has_tags(pid: int, tags: Collection[bytes]) -> bool:
    """Return whether a process was started with all these entries in its environment; False if `tags` is empty."""
    try:
        return bool(tags) and set(tags) <= set(content(f"/proc/{pid}/environ").split(b"\0"))
    except OSError:  # the process has ended, or is another user's
        return False


def _imprinted(pid: int, imprints: range) -> bool:
    if not imprints:
        return False
    try:
        _, _, limit = content(f"/proc/{pid}/limits").partition(b"Max file locks")
    except OSError:  # the process has ended
        return False
    soft = limit.split(maxsplit=1)[:1]
    return bool(soft) and soft[0].isdigit() and int(soft[0]) in imprints
