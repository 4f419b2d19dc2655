"""explain says what the calls do: the same algorithm and blocks, the same errors; and nothing is sent for it."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import ringcast
from ringcast.algorithms import ALGORITHMS
from ringcast.algorithms.cost import TIE
from ringcast.collectives.explain import EXPLAINED
from ringcast.communicator import Communicator
from ringcast.errors import ArgumentError
from ringcast.ops import MAX, SUM, Op
from ringcast.protocol.machine import Protocol
from ringcast.wire.call import Call
from ringcast.wire.collective import COLLECTIVES
from support.jobs import Job

P = 5
CONCAT = Op(lambda a, b: a + b, name="concat")
COUNTS = (0, 70_000, 3, 1, 50)


@pytest.fixture(scope="module")
def job() -> Iterator[Job]:
    job = Job("threads", P)
    yield job
    job.close()


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """Return a list to which rank 0's stages are added as they are run."""
    calls: list[Call] = []
    real = Protocol.begin

    def spy(protocol: Protocol, context: int, call: Call, **how: Any) -> Any:
        if protocol.rank == 0:
            calls.append(call)
        return real(protocol, context, call, **how)

    monkeypatch.setattr(Protocol, "begin", spy)
    return calls


def rows(comm: Communicator) -> np.ndarray[Any, Any]:
    return np.ones((COUNTS[comm.rank], 2), np.int16)


def whole() -> np.ndarray[Any, Any]:
    return np.ones((sum(COUNTS), 2), np.int16)


Arguments = Callable[[Communicator], tuple[Any, dict[str, Any]]]
# The arguments of a call; on the root those that tell what is sent.
CALLS: list[tuple[str, Arguments]] = [
    *(("bcast", lambda comm, m=m: (np.ones(m, np.uint8), {"root": 3})) for m in (0, 100, 10_000, 3_000_000)),
    ("bcast", lambda comm: (np.ones(100, np.uint8), {"root": 1, "nblocks": 7})),
    ("bcast", lambda comm: ({"a": 1}, {"root": 4})),
    *(("reduce", lambda comm, m=m: (np.ones(m), {"root": 2})) for m in (1, 20_000, 500_000)),
    ("reduce", lambda comm: (np.ones(20_000), {"op": np.add})),
    ("reduce", lambda comm: ("text", {"op": CONCAT})),
    *(("allreduce", lambda comm, m=m: (np.ones(m), {"op": MAX})) for m in (1, 1000, 300_000)),
    *(("allreduce", lambda comm, m=m: (np.ones(m, int), {})) for m in (1, 300_000)),
    ("allreduce", lambda comm: (np.float32(1), {})),
    ("allreduce", lambda comm: (np.ones(300_000), {"algorithm": "doubling"})),
    *(("allgather", lambda comm, m=m: (np.ones((m, 3)), {})) for m in (1, 100_000)),
    ("allgather", lambda comm: (3.5, {})),
    ("allgatherv", lambda comm: (rows(comm), {"counts": COUNTS})),
    ("allgatherv", lambda comm: (rows(comm), {"counts": COUNTS, "algorithm": "pipelined_ring", "nblocks": 3})),
    ("allgatherv", lambda comm: (["a"], {})),
    ("gather", lambda comm: (np.ones(1000), {"root": 1})),
    ("gatherv", lambda comm: (rows(comm), {"counts": COUNTS, "root": 4})),
    ("scatter", lambda comm: (np.ones((P, 9)), {"root": 2})),
    *(("alltoall", lambda comm, m=m: (np.ones((P, m)), {})) for m in (0, 1, 100_000)),
    ("alltoall", lambda comm: (list(range(P)), {"algorithm": "ring"})),
    ("alltoallv", lambda comm: (whole(), {"counts": COUNTS})),
    ("alltoallv", lambda comm: (["a"] * P, {"counts": [1] * P})),
    *(("shift", lambda comm, s=s: (np.ones(9), {"distance": s})) for s in (0, 2, -1)),
    ("shift", lambda comm: ("a", {"distance": 3, "algorithm": "ring"})),
    ("scatterv", lambda comm: (whole(), {"counts": COUNTS})),
    ("scatterv", lambda comm: (whole(), {})),
    ("reduce_scatter", lambda comm: (whole(), {"counts": COUNTS, "op": MAX})),
    ("reduce_scatter", lambda comm: (np.ones(20), {})),
    ("reduce_scatter", lambda comm: (["a"] * P, {"op": CONCAT})),
    *(("scan", lambda comm, m=m: (np.ones(m), {"op": MAX})) for m in (1, 300_000)),
    ("exscan", lambda comm: (np.ones(20), {"algorithm": "census"})),
    *((name, lambda comm: ("a", {"op": CONCAT})) for name in ("scan", "exscan")),
]


@pytest.mark.parametrize(("collective", "arguments"), CALLS, ids=[name for name, _ in CALLS])
def test_what_is_explained_is_what_is_done(
    job: Job, planned: list[Call], collective: str, arguments: Arguments
) -> None:
    def both(comm: Communicator) -> object:
        value, options = arguments(comm)
        told = comm.explain(collective, value, **options)
        getattr(comm, collective)(value, **options)
        return told

    first, *others = job.ask(both)
    assert others == [first] * (P - 1)
    done = planned[-1]  # a description of what comes may be a stage before it
    assert (first.chosen.algorithm, first.chosen.nblocks) == (done.algorithm, done.nblocks)
    assert first.collective == done.collective == collective


def test_the_barrier_is_explained(job: Job, planned: list[Call]) -> None:
    told = job.ask(lambda comm: (comm.explain("barrier"), comm.barrier())[0])[0]
    assert (told.chosen.algorithm, told.chosen.rounds, told.nbytes) == (planned[-1].algorithm, 3, 0)


def one(job: Job, collective: str, *arguments: Any, **options: Any) -> Any:
    """Return the explanation on the last rank; the others do nothing, so that any message would be noticed."""
    return job.ask(lambda comm: comm.explain(collective, *arguments, **options) if comm.rank == P - 1 else None)[-1]


@pytest.mark.parametrize("collective", EXPLAINED)
@pytest.mark.parametrize("nbytes", [0, 8000, 80_000_000])
def test_every_algorithm_is_an_option_or_excluded_with_a_reason(job: Job, collective: str, nbytes: int) -> None:
    told = one(job, collective, nbytes=nbytes)
    table = ALGORITHMS[COLLECTIVES[collective].algorithms]
    names = [option.algorithm for option in told.options]
    assert sorted([*names, *told.excluded]) == sorted(table)
    assert all(reason.startswith("it ") for reason in told.excluded.values())
    chosen, *others = told.options
    assert told.chosen == chosen
    times = [option.seconds for option in others]
    assert times == sorted(times)
    assert all(chosen.seconds <= TIE * seconds for seconds in times)
    assert told.nbytes == (0 if collective == "barrier" else nbytes)
    if collective != "barrier":
        assert told == one(job, collective, nbytes=nbytes, dtype=float)


def test_nothing_of_a_call_that_was_explained_is_kept(job: Job) -> None:
    def work(comm: Communicator) -> bool:
        array = np.ones(1000)
        seen = weakref.ref(array)
        comm.explain("allreduce", array)  # some algorithms object, by an error each
        del array
        return seen() is None

    gc.disable()  # which would find what is only kept by a cycle
    try:
        assert job.run(work) == [True] * P
    finally:
        gc.enable()


def test_sizes_can_be_told_in_three_ways(job: Job) -> None:
    counts = (10, 20, 30, 40, 50)
    by_counts = one(job, "allgatherv", counts=counts, dtype=np.int32)
    assert by_counts == one(job, "allgatherv", np.ones(50, np.int32), counts=counts)
    assert by_counts.nbytes == 150 * 4
    assert one(job, "scatterv", nbytes=96) == one(job, "scatterv", np.ones(12))
    assert one(job, "allgather", nbytes=P * 800) == one(job, "allgather", np.ones(100))


def test_a_dtype_may_repeat_that_of_the_value(job: Job) -> None:
    for value in np.ones(50, np.int32), np.ones(50), np.float32(1):
        assert one(job, "allreduce", value) == one(job, "allreduce", value, dtype=value.dtype)
    assert one(job, "gather", nbytes=P * 12, dtype="U3").nbytes == P * 12


def test_uneven_parts_may_be_of_any_number_of_items(job: Job) -> None:
    for collective in "gatherv", "scatterv", "allgatherv", "reduce_scatter", "bcast", "reduce", "allreduce":
        assert one(job, collective, nbytes=8 * P + 8).nbytes == 8 * P + 8


def test_the_root_counts_where_parts_are_uneven(job: Job) -> None:
    counts = (1_000_000, 0, 0, 0, 0)
    from_the_rich = one(job, "scatterv", counts=counts, root=0).chosen.seconds
    assert from_the_rich < one(job, "scatterv", counts=counts, root=1).chosen.seconds


def test_it_prints_as_a_table(job: Job) -> None:
    text = str(one(job, "allreduce", nbytes=8, op=CONCAT))
    assert text.splitlines() == [
        "allreduce on 5 ranks, 8 bytes in all",
        "   algorithm  blocks  rounds    predicted",
        f"-> doubling        1       4 {one(job, 'allreduce', nbytes=8, op=CONCAT).chosen.seconds * 1e3:9.3f} ms",
        "   not census: it needs a commutative operator and an operator that is exact in any order",
        "   not circulant: it needs a commutative operator and an elementwise operator",
        "   not pipelined_ring: it needs a commutative operator and an elementwise operator",
        "   not ordered_census: it needs an operator that is exact in any order",
        "   not dual_root: it needs an elementwise operator",
        "   not rabenseifner: it needs an elementwise operator",
        "   not hypercube: it needs a commutative operator and an elementwise operator",
        "   not full_lane: it needs a commutative operator and an elementwise operator",
    ]
    assert "rides along" in str(one(job, "bcast", nbytes=8))
    assert "before it: the root's description" in str(one(job, "bcast", nbytes=80_000))
    assert "Python objects" in str(one(job, "allreduce", [1], op=CONCAT))


@pytest.mark.parametrize(
    ("collective", "options"),
    [
        ("reduce", {"root": P}),
        ("reduce", {"algorithm": "magic"}),
        ("reduce", {"algorithm": "circulant", "op": CONCAT}),
        ("allreduce", {"op": "sum"}),
        ("allreduce", {"op": np.bitwise_and}),
        ("allreduce", {"nblocks": 0}),
        ("allreduce", {"nblocks": 1.5}),
        ("allgatherv", {"counts": [1, 2]}),
        ("allgatherv", {"counts": [1] * P}),
        ("reduce_scatter", {"counts": [1] * P}),
        ("scatterv", {"counts": [1] * P, "root": P - 1}),
        ("scatterv", {"counts": "abcde", "root": P - 1}),
        ("alltoallv", {"counts": [1] * P}),
        ("shift", {"distance": 0.5}),
        ("shift", {"distance": 1, "algorithm": "hypercube"}),
    ],
)
def test_wrong_arguments_are_the_errors_of_the_call(job: Job, collective: str, options: dict[str, Any]) -> None:
    def both(comm: Communicator) -> list[str]:
        words = []
        for call in (lambda *a, **k: comm.explain(collective, *a, **k)), getattr(comm, collective):
            with pytest.raises(ArgumentError) as caught:
                call(np.ones(8), **options)
            words.append(str(caught.value))
        return words

    explained, called = job.ask(lambda comm: both(comm) if comm.rank == P - 1 else None)[-1]
    assert explained == called


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        (["sendrecv"], {}, "explain: argument collective: expected one of bcast, reduce"),
        (["bcast"], {}, "bcast: argument nbytes: expected the size of the whole buffer"),
        (["bcast"], {"nbytes": -8}, "got -8"),
        (["bcast"], {"nbytes": 12}, r"a multiple of 8 \(dtype float64\)"),
        (["bcast"], {"nbytes": 1.0}, "got 1.0"),
        (["bcast"], {"nbytes": 8, "dtype": "fast"}, "argument dtype: expected a dtype of numpy, got 'fast'"),
        (["bcast"], {"nbytes": 8, "dtype": "U"}, "argument dtype: expected items of a fixed size without Python obj"),
        (["bcast"], {"nbytes": 8, "dtype": "V"}, r"got dtype\('V'\); explain objects by a value"),
        (["bcast"], {"nbytes": 8, "dtype": object}, r"got dtype\('O'\)"),
        (["bcast"], {"nbytes": 16, "dtype": [("a", object), ("b", int)]}, "argument dtype: expected items of a fixed"),
        (["gatherv"], {"counts": [1] * P, "dtype": "S"}, r"got dtype\('S'\)"),
        (["bcast", np.ones(1, int)], {"dtype": "f4"}, "expected the dtype of the value, int64, got 'f4'"),
        (["allgatherv", np.ones(1)], {"counts": [1] * P, "dtype": int}, "expected the dtype of the value, float64"),
        (["bcast", {}], {"dtype": int}, "argument dtype: expected the dtype of the value, a Python object, got"),
        (["bcast", np.ones(1)], {"dtype": "fast"}, "argument dtype: expected a dtype of numpy, got 'fast'"),
        (["gather"], {"nbytes": 8 * P + 8}, r"a multiple of 40 \(dtype float64, 5 equal parts\), or a .* got 48"),
        (["scatter"], {"nbytes": 8 * P - 8}, "a multiple of 40"),
        (["allgather"], {"nbytes": P - 1, "dtype": "u1"}, r"a multiple of 5 \(dtype uint8, 5 equal parts\)"),
        (["bcast"], {"counts": [1] * P}, "argument counts: expected None: only allgatherv"),
        (["bcast", np.ones(1)], {"nbytes": 8}, "argument nbytes: expected None, as a value or counts"),
        (["allgatherv", np.ones(1)], {}, "argument counts: expected the counts of all ranks"),
        (["gatherv", {}], {"counts": [1] * P}, "argument value: expected an array of 1 dimension or more, got dict"),
    ],
)
def test_a_size_that_is_not_told_is_an_error(job: Job, arguments: list[Any], options: Any, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        one(job, *arguments, **options)


def test_a_world_of_one_can_explain() -> None:
    (told,) = ringcast.run(lambda comm: comm.explain("bcast", nbytes=800, op=SUM), 1, backend="threads")
    assert (told.size, told.chosen.rounds, told.chosen.seconds) == (1, 0, 0.0)
