"""Calls that a program repeats give each time what the first one gives: values, memory of their own, and errors."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from ringcast import MAX, ArgumentError, CollectiveMismatch, Communicator
from ringcast.collectives.announced import RIDE_ALONG, head_of
from ringcast.engine.datatypes import described
from ringcast.engine.objects import pack_record
from support.any_order import AnyOrder
from support.cases import crossed
from support.jobs import Job, Jobs

KINDS = ("shm", "sockets", "threads")  # of jobs; between threads nothing is made again
TIMES = 4
CALLS = 5.0  # seconds of virtual time that a call may take
STRUCTURED = np.dtype([("a", "i1"), ("b", ">f8", (2,)), ("c", "U3")], align=True)


class Sub(np.ndarray[Any, Any]):
    """An array of another class travels as an object."""


ARRAYS = {
    "one": np.array([1.5]),
    "none": np.zeros(0),
    "no rows": np.zeros((0, 3), np.int16),
    "no dimension": np.array(7),
    "rows": np.arange(6).reshape(2, 3),
    "columns": np.arange(6).reshape(3, 2),
    "Fortran order": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "a part": np.arange(20)[::3],
    "a part of rows": np.arange(24).reshape(4, 6)[:, 1:4],
    "big-endian": np.arange(3, dtype=">i4"),
    "booleans": np.array([True, False]),
    "complex": np.array([1 + 2j]),
    "texts": np.array(["a", "bcd"]),
    "bytes": np.array([b"a", b"bcd"]),
    "days": np.array(["2024-02-29"], "M8[D]"),
    "structured": np.array([(1, (2.0, 3.0), "x")], STRUCTURED),
    "read-only": np.frombuffer(b"12345678", np.int64),
    "as many bytes as fit": np.arange(RIDE_ALONG, dtype=np.uint8),
    "more": np.arange(RIDE_ALONG + 1, dtype=np.uint8),
    "many": np.arange(100_000.0),
    "many in Fortran order": np.asfortranarray(np.arange(60_000.0).reshape(200, 300)),
}
OTHERS = {
    "scalar": np.float32(2.5),
    "time": np.datetime64("2024-02-29"),
    "None": None,
    "number": 5,
    "text": "text",
    "dict": {"a": [1, 2], "b": np.arange(3)},
    "with a large array": [np.arange(5000.0), "b"],
    "large": list(range(20_000)),
    "of objects": np.array([1, None, "x"]),
    "subclass": np.arange(4).view(Sub),
    "masked": np.ma.array([1, 2], mask=[0, 1]),
}
VALUES = {**ARRAYS, **OTHERS}


@pytest.fixture(scope="module")
def jobs() -> Iterator[Jobs]:
    made = Jobs()
    yield made
    made.close()


def assert_equal(got: Any, right: Any) -> None:
    assert type(got) is type(right), (got, right)
    if isinstance(right, np.ndarray):
        assert (got.dtype, got.shape) == (right.dtype, right.shape)
        assert got.flags.fnc == right.flags.fnc
    if isinstance(right, list | dict):
        assert str(got) == str(right)
    else:
        np.testing.assert_array_equal(got, right)


def broadcast(comm: Communicator, value: Any, root: int, buffer: bool = False) -> Any:
    """Return what comes of a broadcast; into a buffer, which must be what is returned, if that is wanted."""
    if comm.rank == root:
        assert comm.bcast(value, root) is value
        return value
    given = np.empty_like(value, subok=False) if buffer else None
    result = comm.bcast(given, root)
    assert not buffer or result is given
    return result


@pytest.mark.parametrize(("kind", "p"), crossed(KINDS, [1, 2, 3, 5]))
def test_any_value_is_broadcast_again(jobs: Jobs, kind: str, p: int) -> None:
    def work(comm: Communicator) -> None:
        for root in {0, p - 1}:
            for name, value in VALUES.items():
                results = [broadcast(comm, value, root) for _ in range(TIMES)]
                for result in results:
                    assert_equal(result, value)
                if comm.rank != root and isinstance(value, np.ndarray):
                    assert all(result.flags.writeable for result in results)
                    assert not any(np.may_share_memory(results[0], other) for other in results[1:]), name

    jobs(kind, p).ask(work)


@pytest.mark.parametrize(("kind", "p"), crossed(KINDS, [1, 2, 3]))
def test_arrays_are_broadcast_into_buffers_again(jobs: Jobs, kind: str, p: int) -> None:
    def work(comm: Communicator) -> None:
        for value in ARRAYS.values():
            for _ in range(TIMES):
                np.testing.assert_array_equal(broadcast(comm, value, p - 1, buffer=True), value)
            if comm.rank != p - 1 and value.ndim == 2:  # a buffer of another order than the items come in
                other = np.empty(value.shape, value.dtype, order="F" if value.flags.c_contiguous else "C")
                assert comm.bcast(other, p - 1) is other
                np.testing.assert_array_equal(other, value)
            elif value.ndim == 2:
                comm.bcast(value, p - 1)

    jobs(kind, p).ask(work)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("kind", KINDS[:2])
def test_broadcasts_of_all_values_by_all_roots_alternate(jobs: Jobs, kind: str, seed: int) -> None:
    """A rank cannot know which value comes next, and gives a buffer, or none, as it likes."""
    p = 1 + seed % 5

    def work(comm: Communicator) -> None:
        alike, own = random.Random(seed), random.Random(seed * p + comm.rank)
        for _ in range(60):
            name, root = alike.choice([*VALUES]), alike.randrange(p)
            buffer = own.random() < 0.5 and name in ARRAYS
            result = broadcast(comm, VALUES[name], root, buffer)
            if not buffer:
                assert_equal(result, VALUES[name])
            else:
                np.testing.assert_array_equal(result, VALUES[name])

    jobs(kind, p).ask(work)


def test_the_announcement_of_a_small_array_ends_with_its_items() -> None:
    for value in (*ARRAYS.values(), *(OTHERS[name] for name in ("scalar", "time"))):
        known = described(value)
        assert known is not None
        description, line = known
        if line.nbytes <= RIDE_ALONG:
            assert head_of(description) + line.tobytes() == pack_record(description.record | {"data": line.tobytes()})


# Wrong arguments.

WRONG: dict[str, Callable[[Communicator], Any]] = {
    "root of another type": lambda c: c.bcast(np.ones(2), 1.0),  # type: ignore[arg-type]
    "root in a list": lambda c: c.reduce(np.ones(2), root=[1]),  # type: ignore[arg-type]
    "no root": lambda c: c.gather(np.ones(2), root=5),
    "counts that are none": lambda c: c.allgatherv(np.ones(2), [[2], [2]]),  # type: ignore[list-item]
    "one count": lambda c: c.allgatherv(np.ones(2), 2),  # type: ignore[arg-type]
    "too few counts": lambda c: c.gatherv(np.ones(2), [2], 1),
    "counts of others": lambda c: c.allgatherv(np.ones(2), np.array([3, 3])),
    "a sum of other rows": lambda c: c.reduce_scatter(np.ones(4), counts=[2, 3]),
    "out of another shape": lambda c: c.scan(np.ones(2), out=np.ones(3)),
    "out of another dtype": lambda c: c.exscan(np.ones(2), out=np.ones(2, int)),
    "out that is no array": lambda c: c.alltoall(np.ones(2), out=[1.0, 2.0]),  # type: ignore[arg-type]
    "out of other rows": lambda c: c.allgatherv(np.ones(2), [2, 2], out=np.ones(2)),
    "a read-only buffer": lambda c: c.bcast(np.frombuffer(b"12345678"), 1 - c.rank),
}


def right_calls(comm: Communicator) -> None:
    """Make all calls of WRONG as they should be."""
    for root in (0, 1):
        comm.bcast(np.ones(1), root)
    for value in (np.ones(2), np.ones(4)):
        counts = [len(value)] * 2
        comm.reduce(value, root=1)
        comm.gather(value)
        comm.gatherv(value, counts, 1)
        comm.allgatherv(value, counts)
        comm.reduce_scatter(value, counts=[len(value) // 2] * 2)
        comm.scan(value)
        comm.exscan(value)
        comm.alltoall(np.ones(2))


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_arguments_are_found_in_a_repeated_call_as_in_the_first(jobs: Jobs, wrong: str) -> None:
    """Nothing is sent: the ranks go on."""

    def work(comm: Communicator) -> list[str]:
        errors = []
        for _ in range(TIMES):
            with pytest.raises(ArgumentError) as caught:
                WRONG[wrong](comm)
            errors.append(str(caught.value))
            right_calls(comm)
        return errors

    for errors in jobs("shm", 2).ask(work):
        assert len({*errors}) == 1, errors


UNFIT = {"of another shape": np.ones(3), "of another dtype": np.ones(2, int), "for an object": np.ones(2)}


@pytest.mark.parametrize("calls", [0, 1, TIMES])
@pytest.mark.parametrize("name", UNFIT)
@pytest.mark.parametrize("p", [2, 3])
def test_a_buffer_that_does_not_fit_gives_the_communicator_up(p: int, name: str, calls: int) -> None:
    told = []
    for lanes in (True, False):
        job = AnyOrder(p, 0)
        job.lanes = lanes

        def work(comm: Communicator) -> Any:
            for _ in range(calls):
                comm.bcast(np.ones(2))
            value = ["object"] if name == "for an object" else np.ones(2)
            result = comm.bcast(value if comm.rank == 0 else UNFIT[name] if comm.rank == 1 else None)
            comm.barrier()
            return result

        results = job.run(work, timeout=CALLS)
        assert not job.left_over()
        assert isinstance(results[1], ArgumentError)
        assert all(isinstance(result, BaseException) for result in results)
        told.append([(type(result).__name__, str(result)) for result in results])
    assert told[0] == told[1]


OTHER = {
    "root": lambda c, odd: c.bcast(np.ones(2), 1 if odd else 0),
    "counts": lambda c, odd: c.reduce_scatter(np.ones(4), counts=[1, 3] if odd else [2, 2]),
    "shape": lambda c, odd: c.alltoall(np.ones((2, 2 if odd else 3))),
    "call": lambda c, odd: c.scan(np.ones(2)) if odd else c.exscan(np.ones(2)),
    "dtype": lambda c, odd: c.gather(np.ones(2, np.int8 if odd else np.uint8)),
    "row": lambda c, odd: c.allgatherv(np.ones((2, 1 + odd))),
}


@pytest.mark.parametrize("name", OTHER)
@pytest.mark.parametrize("seed", range(6))
def test_calls_that_differ_are_a_mismatch_however_often_they_were_made(name: str, seed: int) -> None:
    def work(comm: Communicator) -> None:
        for odd in (False, True):
            for _ in range(seed // 2):
                OTHER[name](comm, odd)
        OTHER[name](comm, comm.rank == 1)
        comm.barrier()

    results = AnyOrder(2, seed).run(work, timeout=CALLS)
    assert any(isinstance(result, CollectiveMismatch) for result in results), results
    assert all(isinstance(result, BaseException) for result in results), results


# Results.


@pytest.mark.parametrize(("kind", "p"), crossed(KINDS, [2, 3, 4, 5]))
def test_counts_may_be_any_sequence_and_change_between_calls(jobs: Jobs, kind: str, p: int) -> None:
    """A call with some counts, or without, does not disturb one with others."""

    def work(comm: Communicator) -> None:
        for turn in range(6):
            counts = [(rank + turn) % 3 for rank in range(p)]
            parts = [np.full((count, 2), rank * 10.0 + turn) for rank, count in enumerate(counts)]
            whole, mine = np.concatenate(parts), parts[comm.rank]
            for given in (counts, tuple(counts), np.array(counts), [*map(float, counts)], None):
                for out in (None, np.empty_like(whole)):
                    result = comm.allgatherv(mine, given, out=out)
                    np.testing.assert_array_equal(result, whole)
                    assert out is None or result is out
                gathered = comm.gatherv(mine, given, p - 1)
                assert (gathered is None) == (comm.rank != p - 1)
                assert gathered is None or np.array_equal(gathered, whole)
                if sum(counts) and given is not None:
                    np.testing.assert_array_equal(comm.reduce_scatter(whole, counts=given), p * mine)

    jobs(kind, p).ask(work)


@pytest.mark.parametrize(("kind", "p"), crossed(KINDS, [1, 2, 3, 4]))
def test_results_are_memory_of_their_own_or_out(jobs: Jobs, kind: str, p: int) -> None:
    def work(comm: Communicator) -> None:
        root, rank = p - 1, comm.rank
        for dtype in (np.float32, ">i2", np.complex128):
            values = [(np.arange(p * 3).reshape(p, 3) + r).astype(dtype) for r in range(p)]
            mine, total = values[rank], sum(values[1:], values[0]).astype(dtype)
            before = sum(values[1:rank], values[0]).astype(dtype) if rank else None
            right = {
                "reduce": total if rank == root else None,
                "gather": np.stack(values) if rank == root else None,
                "scan": sum(values[1 : rank + 1], values[0]).astype(dtype),
                "exscan": before,
                "alltoall": np.stack([value[rank] for value in values]),
            }
            for name, expected in right.items():
                how = {"root": root} if name in ("reduce", "gather") else {}
                call, results = getattr(comm, name), []
                for _ in range(TIMES):
                    results.append(call(mine, **how))
                    out = np.zeros((p, *mine.shape) if name == "gather" else mine.shape, dtype)
                    given = call(mine, out=out, **how)
                    kept = name == "exscan" and not rank  # as it was
                    assert given is (out if expected is not None or kept else None)
                    np.testing.assert_array_equal(out, expected if expected is not None else np.zeros_like(out))
                for number, result in enumerate(results):
                    assert (result is None) == (expected is None)
                    if result is not None:
                        np.testing.assert_array_equal(result, expected)
                        assert result.dtype == np.dtype(dtype)
                        result[...] = number
                assert expected is None or [result.flat[0].real for result in results] == [*range(TIMES)]

    jobs(kind, p).ask(work)


def test_an_exchange_in_place_reads_the_value_first(jobs: Jobs) -> None:
    def work(comm: Communicator) -> None:
        for _ in range(TIMES):
            value = np.arange(6).reshape(3, 2) + 10 * comm.rank
            assert comm.alltoall(value, out=value) is value
            assert value[:, 0].tolist() == [2 * comm.rank + 10 * rank for rank in range(3)]
            value = np.full(2, comm.rank + 1.0)
            assert comm.scan(value, out=value) is value
            assert value.tolist() == [sum(range(comm.rank + 2))] * 2

    job: Job = jobs("shm", 3)
    job.ask(work)


def ways_to_lie(array: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    """Return equal arrays that lie in memory in different ways, one of which cannot be written."""
    wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
    wide[..., ::2] = array
    read_only = array.copy()
    read_only.flags.writeable = False
    return [array, np.asfortranarray(array), wide[..., ::2], array[::-1].copy()[::-1], read_only]


MOVED = {
    "numbers": np.arange(60),
    "big-endian": np.arange(60, dtype=">f4"),
    "booleans": np.arange(60) % 7 == 0,
    "texts": np.arange(60).astype("U3"),
    "seconds": np.arange(60).astype("m8[s]"),
    "structured": np.array([(i, (i, -i), str(i)) for i in range(60)], STRUCTURED),
}


@pytest.mark.parametrize(("kind", "p"), crossed(KINDS, [2, 3]))
def test_items_are_moved_however_they_lie(jobs: Jobs, kind: str, p: int) -> None:
    def work(comm: Communicator) -> None:
        for items in MOVED.values():
            tables = [np.roll(items, r)[: 4 * p].reshape(p, 4) for r in range(p)]
            for mine in ways_to_lie(tables[comm.rank]):
                stacked, whole = np.stack(tables), np.concatenate(tables)
                for _ in range(2):
                    np.testing.assert_array_equal(comm.allgather(mine), stacked)
                    np.testing.assert_array_equal(comm.allgatherv(mine, [p] * p), whole)
                    np.testing.assert_array_equal(comm.allgatherv(mine), whole)
                    np.testing.assert_array_equal(comm.alltoall(mine), stacked[:, comm.rank])
                    gathered = comm.gather(mine, p - 1), comm.gatherv(mine, [p] * p, p - 1)
                    for got, right in zip(gathered, (stacked, whole), strict=True):
                        assert (got is None) == (comm.rank != p - 1)
                        assert got is None or np.array_equal(got, right)

    jobs(kind, p).ask(work)


@pytest.mark.parametrize(("kind", "p"), crossed(KINDS, [2, 3]))
def test_items_are_combined_however_they_lie(jobs: Jobs, kind: str, p: int) -> None:
    """By operators and numpy's functions that stand for them, alternately."""

    def work(comm: Communicator) -> None:
        rank = comm.rank
        for dtype in (int, float, bool, ">i4"):
            tables = [(np.arange(4 * p).reshape(p, 4) % 5 - r).astype(dtype) for r in range(p)]
            for number, mine in enumerate(ways_to_lie(tables[rank])):
                op: Any = (MAX, np.maximum, np.max)[number % 3]
                whole = np.max(tables, 0)
                before = np.max(tables[:rank], 0) if rank else None
                for _ in range(2):
                    np.testing.assert_array_equal(comm.allreduce(mine, op), whole)
                    np.testing.assert_array_equal(comm.reduce_scatter(mine, op), whole[rank : rank + 1])
                    np.testing.assert_array_equal(comm.reduce_scatter(mine, op, [1] * p), whole[rank : rank + 1])
                    np.testing.assert_array_equal(comm.scan(mine, op), np.max(tables[: rank + 1], 0))
                    assert np.array_equal(comm.exscan(mine, op), before) or (before is None and not rank)
                    reduced = comm.reduce(mine, op, p - 1)
                    assert (reduced is None) if rank != p - 1 else np.array_equal(reduced, whole)

    jobs(kind, p).ask(work)
