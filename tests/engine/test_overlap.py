"""Rounds that overlap: what the executor begins, for whom it waits, and what it reports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ringcast import collectives
from ringcast.algorithms.network import NETWORKS
from ringcast.bootstrap.in_process import drive_together, simulated_endpoints
from ringcast.collectives.stage import Choice, Group
from ringcast.engine.endpoint import Endpoint
from ringcast.engine.execute import UNDER_WAY, Steps
from ringcast.engine.task import begin
from ringcast.errors import PeerFailed
from ringcast.events import Event, RoundEnd, RoundStart
from ringcast.ops import Array
from ringcast.transports.simulated import SimulatedWire
from ringcast.wire.header import EAGER_LIMIT

LARGE = EAGER_LIMIT + 1  # bytes of a message that waits for its receiver


def part(source: int, dest: int, size: int) -> Array:
    return np.full(size, (16 * source + dest) % 251, np.uint8)


def exchange(endpoint: Endpoint, sizes: Array, observe: Callable[[Event], None] | None = None) -> Steps[Any]:
    """Exchange `sizes[i, j]` bytes from rank i to rank j."""
    group, rank = Group(endpoint, 3, NETWORKS["threads"], observe), endpoint.rank
    given = np.concatenate([part(rank, j, size) for j, size in enumerate(sizes[rank].tolist())])
    return collectives.alltoall.alltoallv(group, given, sizes[rank], sizes[:, rank], None, Choice("scattered"))


def expected(rank: int, sizes: Array) -> Array:
    return np.concatenate([part(j, rank, size) for j, size in enumerate(sizes[:, rank].tolist())])


def mixed(p: int) -> Array:
    """Sizes: some empty, some small and some large, and no two rows alike."""
    return np.array([[(0, 1, LARGE, 40, 3 * LARGE)[(3 * i + j * j) % 5] for j in range(p)] for i in range(p)])


def run_until_quiet(wire: SimulatedWire, made: list[Endpoint]) -> None:
    """Deliver all that is under way."""
    while (rank := wire.deliver()) is not None:
        while wire.ends[rank].inbox:
            made[rank].progress(wire.now)


@pytest.mark.parametrize("p", [1, 2, 3, 8, UNDER_WAY + 8])
def test_the_transfers_under_way_are_several_and_bounded(p: int) -> None:
    sizes = np.full((p, p), LARGE)
    wire, made = simulated_endpoints(p)
    pending: list[int] = []

    def counted(steps: Steps[Any]) -> Steps[Any]:
        try:
            exchange = next(steps)
            while True:
                pending.append(len(exchange.operation.pending))
                yield exchange
                exchange = next(steps)
        except StopIteration as stop:
            return stop.value

    results = drive_together(wire, made, [counted(exchange(e, sizes)) for e in made])
    for rank, result in enumerate(results):
        assert np.array_equal(result, expected(rank, sizes))
    # Noted as each round begins: all of the rounds before, which are large, or as many as may be under way.
    assert max(pending, default=0) == min(max(2 * (p - 2), 0), UNDER_WAY)


@pytest.mark.parametrize("p", [2, 3, 5, 8])
def test_a_rank_that_is_late_holds_up_no_other(p: int) -> None:
    sizes = mixed(p) + LARGE
    wire, made = simulated_endpoints(p)
    late = p - 1
    tasks = [begin(e, exchange(e, sizes)) for e in made[:late]]
    run_until_quiet(wire, made)
    for task in tasks:
        assert task.operation is not None
        assert task.operation.waiting_for == (late,)  # between the others all is through
        assert (task.operation.round, task.operation.rounds) == (p - 2, p - 1)
    tasks.append(begin(made[late], exchange(made[late], sizes)))
    run_until_quiet(wire, made)
    for rank, task in enumerate(tasks):
        assert np.array_equal(task.result, expected(rank, sizes))


def test_a_failed_peer_is_named_with_operation_and_round() -> None:
    sizes = mixed(4) + LARGE
    wire, made = simulated_endpoints(4)
    tasks = [begin(e, exchange(e, sizes)) for e in made[:3]]
    run_until_quiet(wire, made)
    for endpoint, task in zip(made, tasks, strict=False):
        endpoint.protocol.lose(3, "it was killed")
        endpoint.progress(wire.now)
        with pytest.raises(PeerFailed, match="it was killed") as error:
            _ = task.result
        where = error.value.where
        assert where is not None
        assert (error.value.rank, error.value.peer) == (endpoint.rank, 3)
        assert (where.operation, where.number, where.round) == ("alltoallv", 1, 2)


def test_every_round_is_reported_with_its_bytes() -> None:
    p, sizes = 5, mixed(5)
    wire, made = simulated_endpoints(p)
    events: list[Event] = []
    drive_together(wire, made, [exchange(e, sizes, events.append) for e in made])
    for rank in range(p):
        starts = [e for e in events if isinstance(e, RoundStart) and e.rank == rank]
        ends = {e.round: e for e in events if isinstance(e, RoundEnd) and e.rank == rank}
        assert [e.round for e in starts] == sorted(ends) == list(range(p - 1))
        for start in starts:
            end = ends[start.round]
            assert start.send_to is not None
            assert start.recv_from is not None
            assert start.sent == sizes[rank, start.send_to]
            assert end.received == sizes[start.recv_from, rank]
            assert end.wait == end.time - start.time >= 0
            if end.received:
                assert end.arrived is not None
                assert start.time <= end.arrived <= end.time
