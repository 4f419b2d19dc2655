"""Collectives between neighbours in any graph, against lists of Python."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ringcast
from ringcast import (
    ArgumentError,
    CollectiveMismatch,
    CollectiveTimeout,
    Communicator,
    Grid,
    ObjectsRefused,
    PeerFailed,
    Revoked,
    Topology,
)
from ringcast.algorithms.network import NETWORKS
from ringcast.collectives.choice_log import in_words
from ringcast.wire.control_messages import Failing
from ringcast.wire.failure import Failure
from ringcast.wire.flight import decode
from support.jobs import Job, Jobs

Lists = Sequence[Sequence[int]]
SIZES = (1, 2, 3, 5, 7)


@pytest.fixture(scope="module")
def jobs() -> Iterator[Jobs]:
    made = Jobs()
    yield made
    made.close()


@st.composite
def multigraphs(draw: st.DrawFn) -> Lists:
    size = draw(st.sampled_from(SIZES))
    ranks = st.integers(0, size - 1)
    return [draw(st.lists(ranks, max_size=5)) for _ in range(size)]


def arrivals(graph: Lists) -> list[list[tuple[int, int]]]:
    """Return for each rank from where messages come to it, by source and by place there."""
    ranks = range(len(graph))
    return [[(s, i) for s in ranks for i, dest in enumerate(graph[s]) if dest == rank] for rank in ranks]


def check_all(comm: Communicator, graph: Lists, length: int) -> None:
    """Make all calls, with arrays and with objects, and compare."""
    rank, came = comm.rank, arrivals(graph)[comm.rank]
    topology = comm.graph(graph[rank])
    assert topology.destinations == tuple(graph[rank])
    assert topology.sources == tuple(source for source, _ in came)
    check_arrays(topology, graph, came, length)
    check_objects(topology, graph, came)
    topology.comm.free()


def item(sender: int, place: int, length: int) -> np.ndarray[Any, Any]:
    """Return what rank `sender` has for the destination at some place."""
    return (np.arange(length) * 3 + 50 * sender + 7 * place).astype("u1")


def check_arrays(topology: Topology[Communicator], graph: Lists, came: list[tuple[int, int]], length: int) -> None:
    rank = topology.comm.rank
    mine = [item(rank, place, length) for place in range(len(graph[rank]))]
    got = topology.neighbor_allgather(item(rank, 0, length))
    assert (got.shape, got.dtype) == ((len(came), length), np.uint8)
    assert got.tolist() == [item(source, 0, length).tolist() for source, _ in came]
    got = topology.neighbor_alltoall(np.array(mine, np.uint8).reshape(len(mine), length))
    assert got.shape == (len(came), length)
    assert got.tolist() == [item(source, place, length).tolist() for source, place in came]

    lengths = [length * (source % 3) for source, _ in came]
    own, expected = item(rank, 0, length * (rank % 3)), [item(source, 0, length * (source % 3)) for source, _ in came]
    for counts in None, lengths:
        assert topology.neighbor_allgatherv(own, counts).tolist() == [n for each in expected for n in each.tolist()]

    def rows(source: int, place: int) -> int:
        return length * ((source + place) % 3)

    parts = [item(rank, place, rows(rank, place)) for place in range(len(graph[rank]))]
    whole, counts = np.concatenate([np.empty(0, "u1"), *parts]), list(map(len, parts))
    wanted = [n for source, place in came for n in item(source, place, rows(source, place)).tolist()]
    for recvcounts in None, [rows(source, place) for source, place in came]:
        out = np.empty(len(wanted), "u1")
        assert topology.neighbor_alltoallv(whole, counts, recvcounts).tolist() == wanted
        assert topology.neighbor_alltoallv(whole, counts, recvcounts, out=out) is out
        assert out.tolist() == wanted


def check_objects(topology: Topology[Communicator], graph: Lists, came: list[tuple[int, int]]) -> None:
    rank = topology.comm.rank
    texts = [f"{rank}.{place}" for place in range(len(graph[rank]))]
    assert topology.neighbor_allgather(f"{rank}") == [f"{source}" for source, _ in came]
    assert topology.neighbor_alltoall(texts) == [f"{source}.{place}" for source, place in came]
    assert topology.neighbor_allgatherv([rank] * (rank % 3)) == [s for s, _ in came for _ in range(s % 3)]
    lengths = [s % 3 for s, _ in came]
    assert topology.neighbor_allgatherv((rank,) * (rank % 3), lengths) == [s for s, _ in came for _ in range(s % 3)]
    runs = [text for text in texts for _ in range(2)]
    assert topology.neighbor_alltoallv(runs, [2] * len(texts)) == [f"{s}.{i}" for s, i in came for _ in range(2)]


@settings(max_examples=30)
@given(multigraphs(), st.sampled_from([0, 1, 5]))
def test_all_calls_on_multigraphs(jobs: Jobs, graph: Lists, length: int) -> None:
    jobs("threads", len(graph)).ask(lambda comm: check_all(comm, graph, length))


@pytest.mark.long
@settings(max_examples=1000)
@given(multigraphs(), st.sampled_from([0, 1, 5]))
def test_all_calls_on_many_multigraphs(jobs: Jobs, graph: Lists, length: int) -> None:
    jobs("threads", len(graph)).ask(lambda comm: check_all(comm, graph, length))


def test_a_graph_of_33_ranks(jobs: Jobs) -> None:
    random = Random(33)
    graph = [[random.randrange(33) for _ in range(random.randrange(6))] for _ in range(33)]
    jobs("threads", 33).ask(lambda comm: check_all(comm, graph, 3))


@pytest.mark.parametrize("kind", ["shm", "ipc", pytest.param("tcp", marks=pytest.mark.live)])
@pytest.mark.parametrize("length", [1, pytest.param(30_000, marks=pytest.mark.long), 300_000])
def test_over_sockets(jobs: Jobs, kind: str, length: int) -> None:
    """Rows of 300 kB are granted, or asked for where ranks do not know how long they are."""
    graph = [[1, 1, 2, 0], [2, 0], [0], []]
    jobs(kind, 4).ask(lambda comm: check_all(comm, graph, length))


@pytest.mark.parametrize("length", [3, 100_000])
def test_on_a_part_of_the_ranks_in_another_order(jobs: Jobs, length: int) -> None:
    graphs = [[1, 2], [2, 2], [0]], [[1], [0, 1]]

    def work(comm: Communicator) -> None:
        part = comm.split(comm.rank % 2, -comm.rank)
        assert part is not None
        check_all(part, graphs[comm.rank % 2], length)

    jobs("threads", 5).ask(work)


def test_sources_order_the_results(jobs: Jobs) -> None:
    def work(comm: Communicator) -> None:
        others = [rank for rank in range(4) if rank != comm.rank]
        topology = comm.graph(others, others[::-1])
        assert topology.neighbor_allgather(comm.rank) == others[::-1]
        assert topology.neighbor_alltoall([(comm.rank, to) for to in others]) == [(r, comm.rank) for r in others[::-1]]
        mixed = comm.graph(np.array(others), None if comm.rank % 2 else np.array(others[::-1]))
        assert mixed.neighbor_allgather(comm.rank) == (others if comm.rank % 2 else others[::-1])
        assert topology.rounds == mixed.rounds == 3

    jobs("threads", 4).ask(work)


def test_a_value_and_out_may_share_memory(jobs: Jobs) -> None:
    def work(comm: Communicator) -> None:
        p, rank = comm.size, comm.rank
        topology = comm.graph([(rank + 1) % p, (rank - 1) % p], [(rank - 1) % p, (rank + 1) % p])
        rows = np.array([[rank, 1], [rank, 2]])
        assert topology.neighbor_alltoall(rows, out=rows) is rows
        assert rows.tolist() == [[(rank - 1) % p, 1], [(rank + 1) % p, 2]]
        rows[0] = rank
        topology.neighbor_allgather(rows[0], out=rows)
        assert rows.tolist() == [[(rank - 1) % p] * 2, [(rank + 1) % p] * 2]

    jobs("threads", 3).ask(work)


def test_scalars_and_layouts(jobs: Jobs) -> None:
    def work(comm: Communicator) -> None:
        topology = comm.graph([1 - comm.rank])
        got = topology.neighbor_allgather(np.float32(comm.rank))
        assert (got.tolist(), got.dtype) == ([1 - comm.rank], np.float32)
        wide = np.asfortranarray(np.arange(12).reshape(3, 4) + comm.rank)[:, ::2]
        assert topology.neighbor_allgather(wide).tolist() == [(wide + 1 - 2 * comm.rank).tolist()]
        assert topology.neighbor_allgatherv(wide).tolist() == (wide + 1 - 2 * comm.rank).tolist()
        deep = {"array": np.arange(3), "rank": comm.rank}
        (other,) = topology.neighbor_allgather(deep)
        assert other["rank"] == 1 - comm.rank
        assert other["array"].tolist() == [0, 1, 2]

    jobs("threads", 2).ask(work)


# Requests.


@pytest.mark.parametrize("kind", ["threads", "shm", "ipc"])
def test_forms_that_do_not_block_overlap(jobs: Jobs, kind: str) -> None:
    def work(comm: Communicator) -> None:
        p, rank = comm.size, comm.rank
        left, right = (rank - 1) % p, (rank + 1) % p
        topology = comm.graph([right])
        large = np.full((1, 100_000), rank)
        requests = [
            topology.ineighbor_alltoall(large),
            topology.ineighbor_allgather(rank),
            topology.comm.iallreduce(rank),
            topology.ineighbor_allgatherv(np.arange(rank)),
            topology.ineighbor_alltoallv(["a", "b"], [2], [2]),
        ]
        results = ringcast.wait_all(requests[::-1])[::-1]
        assert results[0].tolist() == [[left] * 100_000]
        assert results[1:3] == [[left], sum(range(p))]
        assert results[3].tolist() == list(range(left))
        assert results[4] == ["a", "b"]

    jobs(kind, 3).ask(work)


def test_a_request_that_is_dropped_is_named(jobs: Jobs) -> None:
    def work(comm: Communicator) -> None:
        topology = comm.graph([comm.rank])
        topology.ineighbor_allgather(1)
        with pytest.raises(ringcast.UsageError, match=r"ineighbor_allgather at test_graph.py:\d+"):
            topology.neighbor_allgather(1)

    jobs("threads", 1).ask(work)


# Watching.


def test_observers_and_the_recorder_see_the_rounds(jobs: Jobs) -> None:
    def work(comm: Communicator) -> Any:
        rounds: list[Any] = []
        stages: list[Any] = []
        group = comm._group
        group.observe, group.on_stage = rounds.append, lambda stage, _: stages.append(stage)
        topology = comm.graph([r for r in range(3) if r != comm.rank])
        rounds.clear()
        stages.clear()
        topology.neighbor_allgather(np.zeros(5))
        flight = decode(group.endpoint.recorder.image())
        assert flight is not None
        return rounds, stages, flight.entries[-1], topology._near.schedule.name

    for rounds, stages, entry, name in jobs("threads", 3).ask(work):
        assert [(one.operation, one.round) for one in rounds] == [("neighbor_allgather", n) for n in (0, 0, 1, 1)]
        (stage,) = stages
        assert (stage.nbytes, stage.call.topology) == (2 * 40 + 2 * 40, name)
        said = f"ringcast: neighbor_allgather of 160 bytes on {name}: took 1.000 ms"
        assert in_words(stage, NETWORKS["threads"], 1e-3) == said
        assert (entry.collective, entry.state, entry.rounds) == ("neighbor_allgather", "done", 2)
        assert entry.shape == f"(5,) on {name}"


# Errors.

REFUSED: list[tuple[str, Callable[[Topology[Communicator]], object]]] = [
    ("neighbor_alltoall: argument value: expected an array with 2 rows", lambda t: t.neighbor_alltoall(np.zeros(3))),
    ("neighbor_alltoall: argument value: expected an array with 2 rows", lambda t: t.neighbor_alltoall(5)),
    ("neighbor_alltoall: argument value: expected an array with 2 rows", lambda t: t.ineighbor_alltoall([1])),
    ("neighbor_alltoall: argument out", lambda t: t.neighbor_alltoall([1, 2], out=np.zeros(2))),
    ("neighbor_alltoall: argument out", lambda t: t.neighbor_alltoall(np.zeros(2), out=np.zeros(3))),
    ("neighbor_allgather: argument out", lambda t: t.neighbor_allgather(np.zeros(2), out=np.zeros((2, 3)))),
    ("neighbor_allgather: argument out", lambda t: t.neighbor_allgather("a", out=np.zeros(2))),
    ("neighbor_allgather: argument value", lambda t: t.neighbor_allgather(np.zeros((1,) * np.ndim(DEEP)))),
    ("neighbor_allgatherv: argument value", lambda t: t.neighbor_allgatherv(np.float64(1))),
    ("neighbor_allgatherv: argument value", lambda t: t.neighbor_allgatherv("ab")),
    ("neighbor_allgatherv: argument counts: expected 2 num", lambda t: t.neighbor_allgatherv(np.zeros(1), [1])),
    ("neighbor_allgatherv: argument counts: expected 2 num", lambda t: t.neighbor_allgatherv(np.zeros(1), [1, -1])),
    ("neighbor_allgatherv: argument counts: expected 1 at", lambda t: t.neighbor_allgatherv(np.zeros(1), [1, 2])),
    ("neighbor_allgatherv: argument out", lambda t: t.neighbor_allgatherv(np.zeros(1), out=np.zeros((2, 1)))),
    ("neighbor_allgatherv: argument out", lambda t: t.neighbor_allgatherv(np.zeros(1), [1, 1], out=np.zeros(3))),
    ("neighbor_allgatherv: argument out", lambda t: t.neighbor_allgatherv([1], out=np.zeros(2))),
    ("neighbor_alltoallv: argument counts: expected 2 num", lambda t: t.neighbor_alltoallv(np.zeros(1), [1])),
    ("neighbor_alltoallv: argument counts: expected numbers", lambda t: t.neighbor_alltoallv(np.zeros(1), [1, 1])),
    ("neighbor_alltoallv: argument counts: expected numbers", lambda t: t.neighbor_alltoallv(["a"], [1, 1])),
    ("neighbor_alltoallv: argument recvcounts", lambda t: t.neighbor_alltoallv(np.zeros(2), [1, 1], [1])),
    ("neighbor_alltoallv: argument recvcounts", lambda t: t.neighbor_alltoallv(np.zeros(2), [1, 1], [1, 2])),
    ("neighbor_alltoallv: argument out", lambda t: t.neighbor_alltoallv(["a"], [1, 0], out=np.zeros(1))),
    ("neighbor_allgather: argument timeout", lambda t: t.neighbor_allgather(1, timeout=0)),
]
DEEP = np.zeros((1,) * (64 if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else 32))


def test_arguments_that_cannot_work_are_refused_before_anything_is_sent(jobs: Jobs) -> None:
    def work(comm: Communicator) -> None:
        topology = comm.graph([comm.rank, comm.rank])
        for said, call in REFUSED:
            with pytest.raises(ArgumentError, match=rf"rank {comm.rank}: {said}"):
                call(topology)
        assert topology.neighbor_allgather(1) == [1, 1]

    jobs("threads", 2).ask(work)


@pytest.mark.parametrize("wrong", [5, "01", [2], [-1], [0.0], [None], None, {0}])
def test_no_graph(jobs: Jobs, wrong: Any) -> None:
    def work(comm: Communicator) -> None:
        with pytest.raises(ArgumentError, match=r"graph: argument destinations: expected ranks in 0\.\.1"):
            comm.graph(wrong)
        if wrong is not None:
            with pytest.raises(ArgumentError, match=r"graph: argument sources: expected ranks in 0\.\.1"):
                comm.graph([], wrong)
        comm.barrier()

    jobs("threads", 2).ask(work)


@pytest.mark.parametrize("kind", ["threads", "shm", "ipc"])
def test_ends_that_disagree_are_named_on_all_ranks(jobs: Jobs, kind: str) -> None:
    def work(comm: Communicator) -> None:
        sources = [1, 1] if comm.rank == 2 else None
        with pytest.raises(ArgumentError) as caught:
            comm.graph([2] if comm.rank == 1 else [], sources)
        expected = "expected the same edges at both ends: rank 1 lists 1 edge to rank 2, and rank 2 lists 2 edges from"
        assert f"rank {comm.rank}: graph: argument destinations or sources: {expected} rank 1" == str(caught.value)
        assert comm.graph([2] if comm.rank == 1 else []).rounds == 1  # the communicator can still be used

    jobs(kind, 3).ask(work)


def test_objects_are_refused_where_a_job_takes_none(jobs: Jobs) -> None:
    def work(comm: Communicator) -> None:
        comm._group.pickle = False
        topology = comm.graph([1 - comm.rank])
        for call in (
            lambda: topology.neighbor_allgather("a"),
            lambda: topology.neighbor_allgatherv(["a"]),
            lambda: topology.neighbor_alltoall(["a"]),
            lambda: topology.neighbor_alltoallv(["a"], [1]),
        ):
            with pytest.raises(ObjectsRefused, match="neighbor_all"):
                call()
        assert topology.neighbor_allgather(np.int64(comm.rank)).tolist() == [1 - comm.rank]

    jobs("threads", 2).ask(work)


MISMATCHES: list[tuple[str, Callable[[Topology[Communicator]], object]]] = [
    ("shape", lambda t: t.neighbor_allgather(np.zeros(2 + t.comm.rank))),
    ("dtype", lambda t: t.neighbor_allgather(np.zeros(2, ("i4", "f4")[t.comm.rank]))),
    ("dtype object", lambda t: t.neighbor_allgather((1, np.int64(1))[t.comm.rank])),
    ("shape", lambda t: t.neighbor_alltoall(np.zeros((1, 2 + t.comm.rank)))),
    ("neighbor_alltoall", lambda t: t.neighbor_alltoall([1]) if t.comm.rank else t.neighbor_allgather(1)),
    ("sizes|bytes", lambda t: t.neighbor_allgatherv(np.zeros(2), [2 + t.comm.rank])),
    ("counts left out", lambda t: t.neighbor_allgatherv(np.zeros(2), (None, [2])[t.comm.rank])),
    ("sizes|bytes", lambda t: t.neighbor_alltoallv(np.zeros(2), [2], [2 + t.comm.rank])),
    ("barrier", lambda t: t.neighbor_allgather(1) if t.comm.rank else t.comm.barrier()),
]


@pytest.mark.parametrize(("word", "call"), MISMATCHES)
def test_calls_that_do_not_match(word: str, call: Callable[[Topology[Communicator]], object]) -> None:
    job = Job("threads", 2)

    def work(comm: Communicator) -> None:
        topology = comm.graph([1 - comm.rank])
        call(topology)
        topology.comm.barrier()  # for a rank whose part of the call fits

    errors = job.run(work)
    for error in errors:
        assert isinstance(error, CollectiveMismatch | Revoked)
        assert re.search(word, str(error))
        assert "test_graph.py:" in str(error)
    assert any(isinstance(error, CollectiveMismatch) for error in errors)
    job.close()


@pytest.mark.parametrize("kind", ["threads", "shm", "ipc"])
def test_other_edges_in_the_same_call_are_a_mismatch_in_words(kind: str) -> None:
    """Rank 1 takes the ranks for a row, rank 0 for a column: it waits for nobody, and rank 1 for what never comes."""
    job = Job(kind, 2)

    def work(comm: Communicator) -> None:
        grid = Grid(comm, (2, 1) if comm.rank else (1, 1), [False] * 2)
        grid.neighbor_allgather(comm.rank)
        comm.barrier()

    errors = job.run(work)
    for error in errors:
        assert isinstance(error, CollectiveMismatch), error
        assert "neighbor_allgather(dtype object, shape (), on grid (2, 1), periods (False, False))" in str(error)
        assert "neighbor_allgather(dtype object, shape (), on grid (1, 1), periods (False, False))" in str(error)
        assert all(f"test_graph.py:{work.__code__.co_firstlineno + 2}" == s for s in (error.my_site, error.their_site))
    job.close()


@pytest.mark.usefixtures("soon_stalled")
@pytest.mark.parametrize("kind", ["threads", "shm", "ipc"])
def test_calls_on_different_topologies_are_told_apart(kind: str) -> None:
    """Each topology has a communicator of its own: who waits on one for a rank that waits on another is in a cycle."""
    job = Job(kind, 3)

    def work(comm: Communicator) -> None:
        p, rank = comm.size, comm.rank
        one, other = comm.graph([(rank + 1) % p]), comm.graph([(rank - 1) % p])
        topology = one if rank == 0 else other
        topology.neighbor_allgather(rank)
        topology.comm.barrier()  # for rank 1, which gets what it needs

    for error in job.run(work):
        assert isinstance(error, CollectiveTimeout | Revoked)
        assert "deadlock in neighbor_allgather #1" in str(error)
        assert "in neighbor_allgather(dtype object, shape (), on graph" in str(error)
        assert f"at test_graph.py:{work.__code__.co_firstlineno + 4}" in str(error)
    job.close()


def test_a_dead_neighbour_is_named() -> None:
    job = Job("threads", 3)

    def work(comm: Communicator) -> None:
        topology = comm.graph([(comm.rank + 1) % 3])
        comm.barrier()
        if comm.rank == 2:
            comm._group.endpoint.control.send(Failing(2, Failure("killed")))
        while comm.rank != 2:  # rank 1 needs rank 0 alone, and may come to the next call
            topology.neighbor_allgather(1)

    errors = job.run(work)
    for error in errors[:2]:
        assert isinstance(error, PeerFailed | Revoked)
        assert "killed" in str(error)
    assert isinstance(errors[0], PeerFailed)
    assert errors[0].peer == 2
    job.discard()


def test_a_revoked_topology_leaves_the_others_alone(jobs: Jobs) -> None:
    def work(comm: Communicator) -> None:
        topology, other = comm.graph([1 - comm.rank]), comm.graph([1 - comm.rank])
        if comm.rank == 0:
            topology.comm.revoke()
        with pytest.raises(Revoked):
            topology.neighbor_allgather(1)
        assert other.neighbor_allgather(comm.rank) == [1 - comm.rank]
        other.comm.free()
        with pytest.raises(ringcast.UsageError):
            other.neighbor_allgather(1)
        assert comm.allreduce(1) == 2

    jobs("threads", 2).ask(work)


def test_a_timeout_ends_a_call(jobs: Jobs) -> None:
    def work(comm: Communicator) -> None:
        topology = comm.graph([1 - comm.rank])
        if comm.rank == 0:
            with pytest.raises(CollectiveTimeout, match="neighbor_allgather #1, round 0 did not finish"):
                topology.neighbor_allgather(1, timeout=0.05)
        comm.barrier()

    jobs("threads", 2).ask(work)
