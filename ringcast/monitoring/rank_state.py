"""State of a rank of a running job, as plain data, and as the rows of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ringcast._util.dataclass import dataclass
from ringcast.monitoring.jobs import RunningJob

HEADINGS = ("rank", "host", "pid", "operation", "round", "waits for", "since", "memory", "cpu")


@dataclass(frozen=True, slots=True)
class RankState:
    """State of a rank; None for unknown values. `since` are the seconds that it has been in `state`."""

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


@dataclass(frozen=True, slots=True)
class States:
    """The states of several ranks, as they travel."""

    states: tuple[RankState, ...]


def cells(state: RankState) -> tuple[str, ...]:
    """Return the state as a row under HEADINGS.

    >>> cells(RankState(1, 77, "running", "#3 bcast", 2, 5, (0,), "rank 0", 61.24, 52_000_000, 99.6, "a"))
    ('1', 'a', '77', '#3 bcast', '2/5', 'rank 0', '61.2 s', '52 MB', '100%')
    >>> cells(RankState(0, 76, "done", "#2 barrier", None, None, (), "", 0.5, 52_000_000, 0.0, "b"))
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


def rows(states: Sequence[RankState]) -> list[tuple[str, ...]]:
    """Return the headings and a row for each state; hosts are shown where there is more than one."""
    found = [HEADINGS, *map(cells, states)]
    one = len({state.host for state in states}) == 1
    return [(row[0], *row[2:]) for row in found] if one else found


def table(states: Sequence[RankState]) -> list[str]:
    """Return the lines of a plain table of the states, in columns with two spaces between them."""
    found = rows(states)
    widths = [max(map(len, column)) for column in zip(*found, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in found]


def as_data(job: RunningJob, states: Sequence[RankState]) -> dict[str, Any]:
    """Return a job and its ranks as data for JSON."""
    return {"job": job.name, **asdict(job), "ranks": [asdict(state) for state in states]}
