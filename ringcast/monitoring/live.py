"""States of a running job's ranks, from their flight records and the system's data on their processes."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from ringcast._util.dataclass import dataclass
from ringcast.monitoring import flight_record
from ringcast.monitoring.jobs import INQUIRIES, RunningJob
from ringcast.monitoring.rank_state import RankState, States
from ringcast.wire.codec import decode
from ringcast.wire.flight import Flight

SAMPLE = 0.1  # seconds over which the use of the CPU is measured
ANSWER = 6.0  # seconds that a launcher has to ask all hosts


@dataclass(frozen=True, slots=True)
class Usage:
    """Resource use of a process: bytes of memory, and percent of one CPU."""

    memory: int
    cpu: float


def look(job: RunningJob) -> list[RankState]:
    """Return the states of a job's ranks: of all hosts if its launcher is here and answers, else of this one."""
    stopped = _try(lambda: psutil.Process(job.launcher).status()) == psutil.STATUS_STOPPED
    told = None if stopped else _ask(str(Path(job.directory, INQUIRIES)))
    return look_here(job.directory, dict(zip(job.ranks, job.pids, strict=True))) if told is None else told


def _ask(path: str) -> list[RankState] | None:
    """Return the launcher's answer; None if there is none, as it has no other hosts, or is about to end."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asker:
        asker.settimeout(ANSWER)
        try:
            asker.connect(path)
            _, files, _, _ = socket.recv_fds(asker, 1, 1)
            return [*decode(_content(files[0]), (States,)).states] if files else None
        except (OSError, ValueError):
            return None


def _content(file: int) -> bytes:
    """Return the content of a file, and close it; its position, shared with other clients, is not used."""
    try:
        return os.pread(file, os.fstat(file).st_size, 0)
    finally:
        os.close(file)


def look_here(directory: str, pids: Mapping[int, int]) -> list[RankState]:
    """Return the states of a job's ranks on this machine; takes a tenth of a second.

    `pids` are their process ids, by rank; `directory` is the job's.
    """
    usages = measure([*pids.values()])
    flights, now = flight_record.read(directory, pids), time.monotonic()
    found = zip(pids.items(), flights, usages, strict=True)
    return [state_of(rank, pid, known, usage, now) for (rank, pid), known, usage in found]


def measure(pids: Sequence[int]) -> list[Usage | None]:
    """Return the resource use of processes, measured at the same time; None for processes that have ended."""
    processes = [_try(partial(psutil.Process, pid)) for pid in pids]
    before, start = [_seconds(process) for process in processes], time.monotonic()
    time.sleep(SAMPLE)
    after, seconds = [_seconds(process) for process in processes], time.monotonic() - start
    found: list[Usage | None] = []
    for process, old, new in zip(processes, before, after, strict=True):
        memory = None if process is None else _try(process.memory_info)
        if memory is None or old is None or new is None:
            found.append(None)
        else:
            found.append(Usage(memory.rss, 100 * (new - old) / seconds))
    return found


def _seconds(process: Any) -> float | None:
    times = _try(process.cpu_times) if process is not None and _alive(process) else None
    return None if times is None else times.user + times.system


def _alive(process: Any) -> bool:
    return _try(process.status) not in (None, psutil.STATUS_ZOMBIE)


def _try(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except psutil.Error:
        return None


def state_of(rank: int, pid: int, known: Flight | None, usage: Usage | None, now: float) -> RankState:
    """Return the state of a rank at `now`, on the monotonic clock."""
    memory, cpu = (None, None) if usage is None else (usage.memory, usage.cpu)
    entry = known.entries[-1] if known is not None and known.entries else None
    state, since = "starting", None
    if known is not None:
        state, since = "idle", known.start
        if entry is not None:
            state, since = entry.state, entry.start if entry.end is None else entry.end
        if known.left is not None and state != "failed":
            state, since = "left", known.left
    if usage is None:
        state, since = "ended", None
    moving = entry is not None and entry.state != "done"
    return RankState(
        rank,
        pid,
        state,
        flight_record.name(entry) if entry is not None else "",
        entry.round if moving and entry else None,
        entry.rounds if moving and entry else None,
        entry.waiting_for if entry else (),
        flight_record.waits(entry) if entry else "",
        None if since is None else max(0.0, now - since),
        memory,
        cpu,
        socket.gethostname(),
    )
