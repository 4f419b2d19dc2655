"""Lateness against an oracle: on the simulated wire ranks make their calls at known times, and waits follow exactly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringcast import collectives
from ringcast.algorithms.network import NETWORKS
from ringcast.bootstrap.in_process import simulated_endpoints
from ringcast.collectives.announced import move
from ringcast.collectives.stage import AUTOMATIC, Choice, Data, Group, plan
from ringcast.engine.task import Task, begin
from ringcast.ops import SUM
from ringcast.profiling.attach import attach, detach
from ringcast.profiling.clocks import compared
from ringcast.profiling.lateness import calls_of
from ringcast.profiling.report import report
from ringcast.wire.header import STAGES

SIZES = (1, 2, 3, 5, 8, 33, 65)
Make = Callable[[Group], Any]


def total(group: Group) -> Any:
    return collectives.reduce.allreduce(group, np.ones(3), SUM, None, AUTOMATIC)


def broadcast(root: int, algorithm: str, group: Group) -> Any:
    line = np.ones(4)
    return move(group, line, plan(group, "bcast", Choice(algorithm), Data.of(line), root=root))


def parts_of(size: int, calls: Sequence[tuple[Sequence[float], Make]]) -> list[dict[str, Any]]:
    """Return the parts of ranks that make calls at these times, or as soon as the call before is over."""
    wire, endpoints = simulated_endpoints(size)
    groups = [Group(endpoint, 1, NETWORKS["threads"]) for endpoint in endpoints]
    for group in groups:
        attach(group)
    for times, make in calls:
        tasks: dict[int, Task[Any]] = {}
        base = wire.now
        waiting = sorted((base + time, rank) for rank, time in enumerate(times))
        while waiting or not all(task.poll() for task in tasks.values()):
            while waiting and waiting[0][0] <= wire.now:
                _, rank = waiting.pop(0)
                tasks[rank] = begin(endpoints[rank], make(groups[rank]), ("prog.py", 7), blocks=True)
            rank_told = wire.deliver(waiting[0][0] if waiting else None)
            if rank_told is not None:
                while wire.ends[rank_told].inbox:
                    endpoints[rank_told].progress(wire.now)
            else:
                assert waiting or all(task.poll() for task in tasks.values())
        assert all(task.error is None for task in tasks.values())
    return [detach(group) for group in groups]


def late_by_rank(made: dict[str, Any]) -> list[float]:
    return [rank["late"] for rank in made["ranks"]]


@pytest.mark.parametrize("size", SIZES)
def test_all_wait_in_an_allreduce_for_the_last_rank(size: int) -> None:
    times = [0.25 * (rank == size - 1) for rank in range(size)]
    made = report(parts_of(size, [(times, total)] * 3), size)
    assert late_by_rank(made) == pytest.approx([0.75] * (size - 1) + [0.0])
    if size > 1:
        (site,) = made["sites"]
        assert site["blame"][0] == (size - 1, 3, pytest.approx(0.75 * (size - 1)))
        assert made["ranks"][-1]["blamed"] == pytest.approx(0.75 * (size - 1))


@given(times=st.lists(st.floats(0, 1), min_size=2, max_size=9))
@settings(max_examples=30, deadline=None)
def test_a_rank_waits_until_the_last_one_has_made_the_call(times: list[float]) -> None:
    made = report(parts_of(len(times), [(times, total)]), len(times))
    others = [max(times[:rank] + times[rank + 1 :]) for rank in range(len(times))]
    assert late_by_rank(made) == pytest.approx([max(0.0, o - t) for o, t in zip(others, times, strict=True)], abs=1e-9)


@pytest.mark.parametrize("size", SIZES[1:])
@pytest.mark.parametrize("late", ["root", "before", "after"])
@pytest.mark.parametrize("algorithm", ["binomial", "circulant", "linear"])
def test_in_a_broadcast_ranks_wait_for_the_root_and_for_ranks_between(size: int, late: str, algorithm: str) -> None:
    """The oracle: where a rank is late by a quarter of a second, the calls that take longer have waited for it."""
    root = size // 2
    slow = (root + {"root": 0, "before": -1, "after": 1}[late]) % size
    parts = parts_of(size, [([0.25 * (rank == slow) for rank in range(size)], partial(broadcast, root, algorithm))])
    took = [part["moments"][0][4] - part["moments"][0][3] for part in parts]
    assert late_by_rank(report(parts, size)) == pytest.approx([0.25 * (seconds > 0.2) for seconds in took], abs=1e-9)


@pytest.mark.parametrize("host", ["other", "vm"])
def test_clocks_of_hosts_are_aligned_by_the_calls(host: str) -> None:
    """Hosts may have the same name."""
    parts = parts_of(4, [([0.01 * rank for rank in range(4)], total)] * 5)
    for part in parts[:2]:
        part["host"] = "vm"
    for part in parts[2:]:
        part["host"], part["boot"] = host, "another run of a system"
        part["start"] += 1000.0
        part["end"] += 1000.0
        part["moments"] = [(tally, n, m, *(1000.0 + when for when in times)) for tally, n, m, *times in part["moments"]]
    found, apart = compared(parts, list(calls_of(parts, [0.0] * 4)))
    assert found[:2] == [0.0, 0.0]
    assert apart == {}
    assert found[2:] == pytest.approx([-1000.0] * 2, abs=0.035)


@pytest.mark.parametrize("jump", [0.0, 0.5])
def test_a_clock_that_jumps_is_named(jump: float) -> None:
    parts = parts_of(3, [([0.01 * rank for rank in range(3)], total)] * 6)
    parts[2]["host"], parts[2]["boot"] = "h2", "another run of a system"
    parts[2]["moments"] = [
        (tally, n, m, *(when + jump * (i > 2) for when in times))
        for i, (tally, n, m, *times) in enumerate(parts[2]["moments"])
    ]
    notes = [note for note in report(parts, 3)["notes"] if note.startswith("The clocks of hosts ")]
    assert len(notes) == (jump > 0)
    assert all(" and h2 have run apart by " in note for note in notes)


def test_the_slowest_call_is_in_the_timeline_also_where_it_was_not_kept() -> None:
    parts = parts_of(2, [([0.0, 0.1 if n == 2 else 0.0], total) for n in range(6)])
    for part in parts:
        part["moments"] = part["moments"][::2][:1]
        part["stride"] = 2
    events = report(parts, 2)["timeline"]["events"]
    assert max(end - start for rank, _, start, end, _ in events if rank == 0) == pytest.approx(0.1, abs=0.01)


@pytest.mark.parametrize("apart", [-100.0, 0.0, 100.0])
def test_calls_among_neighbours_bound_the_clocks_of_hosts(apart: float) -> None:
    """Rank 0 leaves the call first, and has its neighbour on its own host: it tells nothing."""
    call = {"context": 1, "collective": "neighbor_allgather", "root": None, "messages": [], "ends": None}
    began, ended, sources = (1.0, 1.0, 3.0, 1.0), (2.0, 3.1, 3.1, 3.1), ([1], [0, 2], [1, 3], [2])
    parts = []
    for rank in range(4):
        by = apart * (rank // 2)
        moment = 0, STAGES, 0, began[rank] + by, ended[rank] + by, began[rank] + by
        parts.append({
            "rank": rank, "size": 4, "stride": 1, "contexts": {}, "start": 0.0, "began": 0.0, "host": f"h{rank // 2}",
            "tallies": [{**call, "sources": sources[rank]}], "moments": [moment],
        })  # fmt: skip
    shift, contradictions = compared(parts, list(calls_of(parts, [0.0] * 4)))
    assert contradictions == {}
    assert shift[2:] == pytest.approx([-apart] * 2, abs=1.1)
