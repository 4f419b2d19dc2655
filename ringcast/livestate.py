"""What the ranks of a running job are doing: their flight records, and what the system knows of their processes."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from ringcast import flight
from ringcast.jobs import INQUIRIES, Job
from ringcast.recorder import Flight

SAMPLE = 0.1  # seconds over which the use of the CPU is measured
ANSWER = 6.0  # seconds that a launcher has to ask all hosts
HEADINGS = ("rank", "host", "pid", "operation", "round", "waits for", "since", "memory", "cpu")


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
    host: str


def look(job: Job) -> list[State]:
    """Return what the ranks of a job do now: those on all hosts if its launcher is here and tells, else those here."""
    told = _ask(str(Path(job.directory, INQUIRIES)))
    return look_here(job.directory, dict(zip(job.ranks, job.pids, strict=True))) if told is None else told


def _ask(path: str) -> list[State] | None:
    """Return what a launcher tells; None if it has no hosts to ask, is stopped, or about to end."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asker:
        asker.settimeout(ANSWER)
        try:
            asker.connect(path)
            with asker.makefile("rb") as told:
                return [from_plain(state) for state in json.load(told)]
        except (OSError, ValueError, TypeError):
            return None


def from_plain(state: Mapping[str, Any]) -> State:
    """Return what `asdict` made plain, and JSON or msgpack has carried."""
    return State(**{**state, "waiting_for": tuple(state["waiting_for"])})


def look_here(directory: str, pids: Mapping[int, int]) -> list[State]:
    """Return what those ranks of a job do now that are on this machine; takes a tenth of a second.

    `pids` are those of their processes, by rank; `directory` the job's.
    """
    usages = measure([*pids.values()])
    flights, now = flight.read(directory, pids), time.monotonic()
    found = zip(pids.items(), flights, usages, strict=True)
    return [state_of(rank, pid, known, usage, now) for (rank, pid), known, usage in found]


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
        socket.gethostname(),
    )


def cells(state: State) -> tuple[str, ...]:
    """Return the state as a row under HEADINGS.

    >>> cells(State(1, 77, "running", "#3 bcast", 2, 5, (0,), "rank 0", 61.24, 52_000_000, 99.6, "a"))
    ('1', 'a', '77', '#3 bcast', '2/5', 'rank 0', '61.2 s', '52 MB', '100%')
    >>> cells(State(0, 76, "done", "#2 barrier", None, None, (), "", 0.5, 52_000_000, 0.0, "b"))
    ('0', 'b', '76', 'after #2 barrier', '-', '-', '0.5 s', '52 MB', '0%')
    """
    words = {"running": state.operation, "done": f"after {state.operation}", "failed": f"failed in {state.operation}"}
    round_ = "-" if state.round is None else f"{state.round}/{'?' if state.rounds is None else state.rounds}"
    return (
        str(state.rank),
        state.host,
        str(state.pid),
        words.get(state.state, state.state),
        round_,
        state.waits or "-",
        "-" if state.since is None else f"{state.since:.1f} s",
        "-" if state.memory is None else f"{state.memory / 1e6:.0f} MB",
        "-" if state.cpu is None else f"{state.cpu:.0f}%",
    )


def rows(states: Sequence[State]) -> list[tuple[str, ...]]:
    """Return the headings and a row for each state; hosts are told where there is more than one."""
    found = [HEADINGS, *map(cells, states)]
    one = len({state.host for state in states}) == 1
    return [(row[0], *row[2:]) for row in found] if one else found


def table(states: Sequence[State]) -> list[str]:
    """Return the lines of a plain table of the states, in columns with two spaces between them."""
    widths = [max(map(len, column)) for column in zip(*rows(states), strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows(states)
    ]


def as_data(job: Job, states: Sequence[State]) -> dict[str, Any]:
    """Return a job and its ranks as JSON has them."""
    return {"job": job.name, **asdict(job), "ranks": [asdict(state) for state in states]}
