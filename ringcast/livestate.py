"""What the ranks of a running job are doing: their flight records, and what the system knows of their processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import psutil

from ringcast import flight
from ringcast.jobs import Job
from ringcast.recorder import Flight

SAMPLE = 0.1  # seconds over which the use of the CPU is measured
HEADINGS = ("rank", "pid", "operation", "round", "waits for", "since", "memory", "cpu")


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process takes: bytes of memory, and percent of one CPU."""

    memory: int
    cpu: float


@dataclass(frozen=True, slots=True)
class State:
    """What a rank is doing; None where that is not known. `since` are the seconds that it has been in `state`."""

    rank: int
    pid: int
    state: str  # starting, idle (nothing called but init), running, done (between calls), failed, left, ended
    operation: str
    round: int | None
    rounds: int | None
    waiting_for: tuple[int, ...]
    waits: str  # the same in words
    since: float | None
    memory: int | None
    cpu: float | None


def look(job: Job) -> list[State]:
    """Return what the ranks of a job do now; takes a tenth of a second."""
    usages = measure(job.pids)
    flights, now = flight.read(job.directory, job.ranks), time.monotonic()
    found = zip(job.ranks, job.pids, flights, usages, strict=True)
    return [state_of(rank, pid, known, usage, now) for rank, pid, known, usage in found]


def measure(pids: Sequence[int]) -> list[Usage | None]:
    """Return what the processes take, all measured at the same time; None for those that have ended."""
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


def state_of(rank: int, pid: int, known: Flight | None, usage: Usage | None, now: float) -> State:
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
    return State(
        rank,
        pid,
        state,
        flight.name(entry) if entry is not None else "",
        entry.round if moving and entry else None,
        entry.rounds if moving and entry else None,
        entry.waiting_for if entry else (),
        flight.waits(entry) if entry else "",
        None if since is None else max(0.0, now - since),
        memory,
        cpu,
    )


def cells(state: State) -> tuple[str, ...]:
    """Return the state as a row under HEADINGS.

    >>> cells(State(1, 77, "running", "#3 bcast", 2, 5, (0,), "rank 0", 61.24, 52_000_000, 99.6))
    ('1', '77', '#3 bcast', '2/5', 'rank 0', '61.2 s', '52 MB', '100%')
    >>> cells(State(0, 76, "done", "#2 barrier", None, None, (), "", 0.5, 52_000_000, 0.0))
    ('0', '76', 'after #2 barrier', '-', '-', '0.5 s', '52 MB', '0%')
    """
    words = {"running": state.operation, "done": f"after {state.operation}", "failed": f"failed in {state.operation}"}
    round_ = "-" if state.round is None else f"{state.round}/{'?' if state.rounds is None else state.rounds}"
    return (
        str(state.rank),
        str(state.pid),
        words.get(state.state, state.state),
        round_,
        state.waits or "-",
        "-" if state.since is None else f"{state.since:.1f} s",
        "-" if state.memory is None else f"{state.memory / 1e6:.0f} MB",
        "-" if state.cpu is None else f"{state.cpu:.0f}%",
    )


def table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Return the lines of a plain table under HEADINGS, in columns of two spaces between them."""
    rows = [HEADINGS, *rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADINGS))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def as_data(job: Job, states: Sequence[State]) -> dict[str, Any]:
    """Return a job and its ranks as JSON has them."""
    return {"job": job.name, **asdict(job), "ranks": [asdict(state) for state in states]}
