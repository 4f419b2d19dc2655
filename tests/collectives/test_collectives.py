"""Every collective on threads, ipc and tcp, against numpy: all sorts of values, algorithms, sizes, operators."""

from __future__ import annotations

import functools
import operator
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringcast import BAND, BOR, BXOR, LAND, LOR, LXOR, MAX, MIN, PROD, SUM, ArgumentError, Communicator, Op
from ringcast.algorithms import ALGORITHMS, Algorithm, CallFacts, Params
from ringcast.algorithms.cost import choose
from ringcast.algorithms.network import NETWORKS
from ringcast.collectives.rows import even
from support.cases import crossed, long_but
from support.collective_checks import (
    EXAMPLES,
    NUMBERS,
    SIZES,
    STRUCT,
    Array,
    check_alltoall,
    check_alltoallv,
    check_shift,
    concatenate,
    dtypes,
    examples,
    expect,
    fortran,
    groups,
    inputs,
    make,
    parts,
    shapes,
    strided,
    unaligned,
    untouched,
)
from support.jobs import KINDS, Job, Jobs


@pytest.fixture(scope="module")
def jobs() -> Iterator[Jobs]:
    made = Jobs()
    yield made
    made.close()


# Arrays of all sorts.


def stack(arrays: Sequence[Array]) -> Array:
    """numpy's own would make the byte order native."""
    return concatenate([array[None] for array in arrays])


# What each collective has to do.

Check = Callable[..., None]


def check_bcast(job: Job, arrays: list[Array], root: int = 0, buffers: Sequence[Array | None] = (), **how: Any) -> None:
    with untouched([arrays[root]]):
        mine = buffers or [None] * job.size
        results = job.ask(lambda c: c.bcast(arrays[root] if c.rank == root else mine[c.rank], root, **how))
    for rank, result in enumerate(results):
        expect(result, arrays[root])
        assert rank != root or result is arrays[root]
        assert rank == root or mine[rank] is None or result is mine[rank]
        assert rank == root or result.flags.writeable


def fold(op: Any, arrays: Sequence[Array]) -> Array:
    """The combination in rank order; booleans are counted as np.sum and np.prod count them."""
    if arrays[0].dtype == bool and op in (SUM, PROD):
        return np.asarray((np.sum if op is SUM else np.prod)(arrays, axis=0))
    fn = op.fn if isinstance(op, Op) else op
    return functools.reduce(lambda a, b: np.asarray(fn(a, b)).astype(arrays[0].dtype), arrays)


def check_reduce(job: Job, arrays: list[Array], root: int = 0, op: Any = SUM, **how: Any) -> None:
    with untouched(arrays):
        results = job.ask(lambda c: c.reduce(arrays[c.rank], op, root, **how))
    expect(results.pop(root), fold(op, arrays))
    assert results == [None] * (job.size - 1)


def check_allreduce(job: Job, arrays: list[Array], op: Any = SUM, **how: Any) -> None:
    with untouched(arrays):
        results = job.ask(lambda c: c.allreduce(arrays[c.rank], op, **how))
    for result in results:
        expect(result, fold(op, arrays))


def check_gather(job: Job, arrays: list[Array], root: int = 0, **how: Any) -> None:
    with untouched(arrays):
        results = job.ask(lambda c: c.gather(arrays[c.rank], root, **how))
    expect(results.pop(root), stack(arrays))
    assert results == [None] * (job.size - 1)


def check_allgather(job: Job, arrays: list[Array], **how: Any) -> None:
    with untouched(arrays):
        results = job.ask(lambda c: c.allgather(arrays[c.rank], **how))
    for result in results:
        expect(result, stack(arrays))


def check_scatter(job: Job, rows: Array, root: int = 0, **how: Any) -> None:
    with untouched([rows]):
        results = job.ask(lambda c: c.scatter(rows if c.rank == root else None, root, **how))
    for rank, result in enumerate(results):
        if rows.ndim == 1:
            assert result == rows[rank]
            assert type(result) is type(rows[rank])
        else:
            expect(result, rows[rank])
            assert not np.shares_memory(result, rows)


def check_allgatherv(job: Job, arrays: list[Array], told: bool = False, **how: Any) -> None:
    counts = [len(array) for array in arrays] if told else None
    with untouched(arrays):
        results = job.ask(lambda c: c.allgatherv(arrays[c.rank], counts, **how))
    for result in results:
        expect(result, concatenate(arrays))


def check_gatherv(job: Job, arrays: list[Array], root: int = 0, told: bool = False, **how: Any) -> None:
    counts = [len(array) for array in arrays] if told else None
    with untouched(arrays):
        results = job.ask(lambda c: c.gatherv(arrays[c.rank], counts, root, **how))
    expect(results.pop(root), concatenate(arrays))
    assert results == [None] * (job.size - 1)


def check_scatterv(job: Job, whole: Array, counts: Sequence[int] | None, root: int = 0, **how: Any) -> None:
    with untouched([whole]):
        results = job.ask(lambda c: c.scatterv(*((whole, counts) if c.rank == root else (None, None)), root, **how))
    for result, part in zip(results, parts(whole, counts or even(len(whole), job.size)), strict=True):
        expect(result, part)
        assert not np.shares_memory(result, whole)


def check_reduce_scatter(
    job: Job, arrays: list[Array], op: Any = SUM, counts: Sequence[int] | None = None, **how: Any
) -> None:
    with untouched(arrays):
        results = job.ask(lambda c: c.reduce_scatter(arrays[c.rank], op, counts, **how))
    for result, part in zip(results, parts(fold(op, arrays), counts or even(len(arrays[0]), job.size)), strict=True):
        expect(result, part)


def check_scan(job: Job, arrays: list[Array], op: Any = SUM, **how: Any) -> None:
    with untouched(arrays):
        results = job.ask(lambda c: c.scan(arrays[c.rank], op, **how))
    for rank, result in enumerate(results):
        expect(result, fold(op, arrays[: rank + 1]))


def check_exscan(job: Job, arrays: list[Array], op: Any = SUM, **how: Any) -> None:
    with untouched(arrays):
        first, *others = job.ask(lambda c: c.exscan(arrays[c.rank], op, **how))
    assert first is None
    for rank, result in enumerate(others, start=1):
        expect(result, fold(op, arrays[:rank]))


def check_sendrecv(job: Job, arrays: list[Array], shift: int = 1, tag: int = 0) -> None:
    p = job.size
    with untouched(arrays):
        results = job.ask(lambda c: c.sendrecv(arrays[c.rank], (c.rank + shift) % p, (c.rank - shift) % p, tag))
    for rank, result in enumerate(results):
        expect(result, arrays[rank - shift % p])
        assert not np.shares_memory(result, arrays[rank - shift % p])


# Values of all sorts.


@pytest.mark.parametrize("kind", KINDS)
def test_bcast_of_any_array(jobs: Jobs, kind: str) -> None:
    @examples(kind)
    @given(st.data(), groups, shapes, dtypes)
    def check(data: st.DataObject, p: int, shape: tuple[int, ...], dtype: Any) -> None:
        arrays, root = data.draw(inputs(p, shape, dtype)), data.draw(st.integers(0, p - 1))
        buffers = [
            data.draw(st.sampled_from([None, np.copy, fortran, unaligned, strided]))
            if data.draw(st.booleans())
            else None
            for _ in range(p)
        ]
        given_ = [None if lay is None or lay is strided else lay(np.zeros(shape, dtype)) for lay in buffers]
        nblocks = data.draw(st.sampled_from([None, None, 1, 2, 7, 300]))
        check_bcast(jobs(kind, p), arrays, root, given_, nblocks=nblocks)

    check()


@pytest.mark.parametrize("kind", KINDS)
def test_gather_and_allgather_of_any_array(jobs: Jobs, kind: str) -> None:
    @examples(kind)
    @given(st.data(), groups, shapes, dtypes)
    def check(data: st.DataObject, p: int, shape: tuple[int, ...], dtype: Any) -> None:
        arrays = data.draw(inputs(p, shape, dtype))
        check_gather(jobs(kind, p), arrays, data.draw(st.integers(0, p - 1)))
        check_allgather(jobs(kind, p), arrays)

    check()


@pytest.mark.parametrize("kind", KINDS)
def test_scatter_and_scatterv_of_any_array(jobs: Jobs, kind: str) -> None:
    @examples(kind)
    @given(st.data(), groups, shapes, dtypes)
    def check(data: st.DataObject, p: int, shape: tuple[int, ...], dtype: Any) -> None:
        root = data.draw(st.integers(0, p - 1))
        check_scatter(jobs(kind, p), data.draw(inputs(1, (p, *shape), dtype))[0], root)
        counts = data.draw(st.lists(st.integers(0, 5), min_size=p, max_size=p))
        check_scatterv(jobs(kind, p), data.draw(inputs(1, (sum(counts), *shape[1:]), dtype))[0], counts, root)
        check_scatterv(jobs(kind, p), data.draw(inputs(1, (sum(counts), *shape[1:]), dtype))[0], None, root)

    check()


@pytest.mark.parametrize("kind", KINDS)
def test_gatherv_and_allgatherv_of_any_array(jobs: Jobs, kind: str) -> None:
    @examples(kind)
    @given(st.data(), groups, shapes, dtypes, st.booleans())
    def check(data: st.DataObject, p: int, shape: tuple[int, ...], dtype: Any, told: bool) -> None:
        counts = data.draw(st.lists(st.integers(0, 5), min_size=p, max_size=p))
        arrays = [data.draw(inputs(1, (n, *shape[1:]), dtype))[0] for n in counts]
        algorithm = data.draw(st.sampled_from([None, *ALGORITHMS["allgatherv"]]))
        check_gatherv(jobs(kind, p), arrays, data.draw(st.integers(0, p - 1)), told)
        check_allgatherv(jobs(kind, p), arrays, told, algorithm=algorithm)

    check()


@pytest.mark.parametrize("kind", KINDS)
def test_sums_of_any_numbers(jobs: Jobs, kind: str) -> None:
    @examples(kind)
    @given(st.data(), groups, shapes, st.sampled_from(NUMBERS))
    def check(data: st.DataObject, p: int, shape: tuple[int, ...], dtype: Any) -> None:
        arrays = data.draw(inputs(p, shape, dtype))
        job = jobs(kind, p)
        check_reduce(job, arrays, data.draw(st.integers(0, p - 1)), nblocks=data.draw(st.sampled_from([None, 1, 3])))
        exact = np.dtype(dtype).kind in "iu"
        names = [None, *(name for name, entry in ALGORITHMS["allreduce"].items() if exact or not entry.exact)]
        check_allreduce(job, arrays, algorithm=data.draw(st.sampled_from(names)))
        if shape:
            check_reduce_scatter(job, arrays)
            cuts = sorted(data.draw(st.lists(st.integers(0, shape[0]), min_size=p - 1, max_size=p - 1)))
            counts = [b - a for a, b in zip([0, *cuts], [*cuts, shape[0]], strict=True)]
            algorithm = data.draw(st.sampled_from([None, *ALGORITHMS["reduce_scatter"]]))
            check_reduce_scatter(job, arrays, SUM, counts, algorithm=algorithm)

    check()


@pytest.mark.parametrize("kind", KINDS)
def test_sendrecv_of_any_array(jobs: Jobs, kind: str) -> None:
    @examples(kind)
    @given(st.data(), groups, shapes, dtypes, st.integers(-8, 8), st.sampled_from([0, 1, 77, (1 << 32) - 1]))
    def check(data: st.DataObject, p: int, shape: tuple[int, ...], dtype: Any, shift: int, tag: int) -> None:
        check_sendrecv(jobs(kind, p), data.draw(inputs(p, shape, dtype)), shift, tag)

    check()


@pytest.mark.parametrize("kind", KINDS)
def test_many_calls_in_a_row_without_waiting(jobs: Jobs, kind: str) -> None:
    """Ranks run ahead of each other; what comes early is kept for the call that it belongs to."""

    def call(c: Communicator, what: int, size: int) -> Any:
        mine, root = np.arange(size) * (c.rank + 1), what % c.size
        return (
            lambda: c.bcast(mine if c.rank == root else None, root),
            lambda: c.reduce(mine, SUM, root),
            lambda: c.allreduce(mine),
            lambda: c.gather(mine, root),
            lambda: c.allgather(mine),
            lambda: c.allgatherv(mine[: c.rank]),
            lambda: c.reduce_scatter(mine),
            lambda: c.scatter([size + r for r in range(c.size)], root),
            lambda: c.scatterv(mine, root=root),
            lambda: c.sendrecv(mine, (c.rank + 1) % c.size, (c.rank - 1) % c.size, what),
            lambda: c.barrier(),
        )[what % 11]()

    def alone(p: int, rank: int, what: int, size: int) -> Any:
        each, root = [np.arange(size) * (r + 1) for r in range(p)], what % p
        return (
            lambda: each[root],
            lambda: sum(each) if rank == root else None,
            lambda: sum(each),
            lambda: stack(each) if rank == root else None,
            lambda: stack(each),
            lambda: np.concatenate([a[:r] for r, a in enumerate(each)]),
            lambda: parts(np.asarray(sum(each)), even(size, p))[rank],
            lambda: size + rank,
            lambda: parts(each[root], even(size, p))[rank],
            lambda: each[rank - 1],
            lambda: None,
        )[what % 11]()

    @settings(max_examples=EXAMPLES[kind] // 2, database=None)
    @given(groups, st.lists(st.tuples(st.integers(0, 87), st.sampled_from([0, 1, 9, 2049, 3000])), max_size=25))
    def check(p: int, program: list[tuple[int, int]]) -> None:
        for rank, results in enumerate(jobs(kind, p).ask(lambda c: [call(c, *step) for step in program])):
            for step, result in zip(program, results, strict=True):
                want = alone(p, rank, *step)
                assert type(result) is type(want)
                assert np.array_equal(result, want)

    check()


# Every algorithm, forced.


def force(job: Job, collective: str, how: dict[str, Any], size: int, root: int) -> None:
    p = job.size
    arrays = [make("i4", (size,), r) for r in range(p)]
    counts = [7 * r % 5 * (r % 3) * size // 4 for r in range(p)]
    uneven = [make("i4", (n, 2), n) for n in counts]
    wide = [make("i4", (sum(counts), 2), r) for r in range(p)]
    if collective == "bcast":
        check_bcast(job, arrays, root, **how)
    elif collective == "reduce":
        check_reduce(job, arrays, root, **how)
    elif collective == "allreduce":
        check_allreduce(job, arrays, **how)
    elif collective == "gather":
        check_gather(job, arrays, root, **how)
        check_gatherv(job, uneven, root, told=True, **how)
        check_gatherv(job, uneven, root, **how)
    elif collective == "scatter":
        check_scatter(job, stack(arrays), root, **how)
        check_scatterv(job, wide[0], counts, root, **how)
    elif collective == "allgather":
        check_allgather(job, arrays, **how)
    elif collective == "allgatherv":
        check_allgatherv(job, uneven, told=True, **how)
        check_allgatherv(job, uneven, **how)
    elif collective == "reduce_scatter":
        check_reduce_scatter(job, arrays, **how)
        check_reduce_scatter(job, wide, SUM, counts, **how)
    elif collective == "scan":
        check_scan(job, arrays, **how)
    elif collective == "exscan":
        check_exscan(job, arrays, **how)
    elif collective == "alltoall":
        check_alltoall(job, [make("i4", (p, size // p), r) for r in range(p)], **how)
    elif collective == "alltoallv":
        table = np.array([counts[r:] + counts[:r] for r in range(p)]) // p
        check_alltoallv(job, [make("i4", (sum(row), 2), r) for r, row in enumerate(table)], table, **how)
    elif collective == "shift":
        for distance in {1, root, p - 1}:
            check_shift(job, arrays, distance, **how)
    elif collective == "merge_sorted":
        runs = [np.sort(array[:, 0]) for array in uneven]
        whole = np.sort(np.concatenate(runs))
        for merged in job.ask(lambda c: c.merge_sorted(runs[c.rank], **how)):
            assert np.array_equal(merged, whole)
    else:
        assert collective == "barrier"
        assert job.ask(lambda c: c.barrier()) == [None] * p


ENTRIES = [entry for named in ALGORITHMS.values() for entry in named.values()]


def name_of(entry: Algorithm) -> str:
    return f"{entry.collective}-{entry.name}"


def one_of(entry: Algorithm, choices: Sequence[Any]) -> Any:
    """Choose by the name: every test run uses each algorithm in one test and way, the long tests in all."""
    return choices[crc32(name_of(entry).encode()) % len(choices)]


def in_ways(kind: str, ways: Sequence[Any]) -> list[Any]:
    def marks(entry: Algorithm, way: Any) -> list[pytest.MarkDecorator]:
        return [pytest.mark.long] * ((kind, way) != (one_of(entry, TESTS), one_of(entry, ways)))

    return [
        pytest.param(entry, way, id=f"{name_of(entry)}-{way}", marks=marks(entry, way))
        for entry in ENTRIES
        for way in ways
    ]


TESTS = "small", "small", "many", "large"


@pytest.mark.parametrize(("entry", "kind"), in_ways("small", KINDS))
def test_every_algorithm(jobs: Jobs, kind: str, entry: Any) -> None:
    for p in SIZES if kind == "threads" else (3, 8):
        if entry.fits(Params(p)):
            continue
        for nblocks, size in (
            ((None, 37), (1, 0), (2, 1), (5, 37), (200, 37)) if entry.blocks else ((None, 1), (None, 37))
        ):
            how: dict[str, Any] = {"algorithm": entry.name} | ({"nblocks": nblocks} if entry.blocks else {})
            force(jobs(kind, p), entry.collective, how, size, (3 * size + 1) % p)


@pytest.mark.parametrize(("entry", "p"), in_ways("many", [33, 65]))
def test_every_algorithm_on_many_ranks(jobs: Jobs, p: int, entry: Any) -> None:
    if entry.fits(Params(p)):
        p = 1 << p.bit_length() - 1
    how: dict[str, Any] = {"algorithm": entry.name} | ({"nblocks": 3} if entry.blocks else {})
    force(jobs("threads", p), entry.collective, how, 100, p // 2)


# Sizes around what the protocol does differently: eager, announced, granted, in segments, with a window.

BOUNDARIES = (16_319, 16_320, 16_383, 16_384, 16_385, 20_000, 262_143, 262_145, 300_000)


def all_collectives(job: Job, dtype: Any, items: int) -> None:
    p = job.size
    arrays = [make(dtype, (items,), r) for r in range(p)]
    check_bcast(job, arrays, p - 1)
    check_gather(job, arrays, p - 1)
    check_allgather(job, arrays)
    check_scatter(job, stack(arrays), p - 1)
    giant = [arrays[r] if r == p // 2 else arrays[r][:r] for r in range(p)]
    check_allgatherv(job, giant)
    check_gatherv(job, giant, p - 1)
    check_scatterv(job, arrays[0], [items - p + 1 if r == p // 2 else 1 for r in range(p)], p - 1)
    check_sendrecv(job, arrays)
    if np.dtype(dtype).kind in "iuf":
        for root in 0, p - 1:
            check_reduce(job, arrays, root)
        check_allreduce(job, arrays)
        check_reduce_scatter(job, arrays)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("nbytes", BOUNDARIES)
def test_sizes_at_which_the_protocol_changes(jobs: Jobs, kind: str, nbytes: int) -> None:
    all_collectives(jobs(kind, 3), "u1", nbytes)


@pytest.mark.parametrize(("kind", "dtype"), crossed(KINDS, ["S7", STRUCT, "f8", "S90000", "S300000"]), ids=str)
def test_segments_are_cut_between_items(jobs: Jobs, kind: str, dtype: Any) -> None:
    all_collectives(jobs(kind, 3), dtype, max(700_000 // np.dtype(dtype).itemsize, 3))


@pytest.mark.parametrize(("kind", "p"), crossed(KINDS, [2, 5]))
def test_large_arrays(jobs: Jobs, kind: str, p: int) -> None:
    all_collectives(jobs(kind, p), "i4", 3_000_000 // 4 + 1)


@pytest.mark.parametrize(("entry", "kind"), in_ways("large", KINDS))
def test_every_algorithm_on_large_arrays(jobs: Jobs, kind: str, entry: Any) -> None:
    how: dict[str, Any] = {"algorithm": entry.name} | ({"nblocks": 3} if entry.blocks else {})
    force(jobs(kind, 4 if entry.fits(Params(5)) else 5), entry.collective, how, 150_000, 2)
    if kind == "threads":
        check_large_values_in_whole(jobs(kind, 5), entry)


def check_large_values_in_whole(job: Job, entry: Any) -> None:
    """One block of 2.4 MB: more than the window of credits."""
    if entry.collective in ("bcast", "reduce", "allreduce"):
        how: dict[str, Any] = {"nblocks": 1} if entry.blocks else {}
        force(job, entry.collective, {"algorithm": entry.name, **how}, 1_200_000, 1)


@pytest.mark.parametrize(
    ("kind", "p"),
    [
        *(pytest.param("threads", p, marks=[pytest.mark.long] * (p not in (1, 2, 7))) for p in SIZES),
        *(pytest.param("ipc", p, marks=[pytest.mark.long] * (p != 3)) for p in SIZES),
        *(pytest.param("tcp", p, marks=[pytest.mark.long] * (p != 5)) for p in SIZES),
    ],
)
def test_irregular_counts(jobs: Jobs, kind: str, p: int) -> None:
    job = jobs(kind, p)
    giant, lonely = [1] * p, [0] * p
    giant[p // 3], lonely[p // 2] = 30_000, 20_000
    for counts in (giant, lonely, [0] * p, [r % 2 * 9 for r in range(p)])[slice(0, 4 if kind == "threads" else 2)]:
        arrays = [make("i4", (n, 2), n + r) for r, n in enumerate(counts)]
        for algorithm in None, *ALGORITHMS["allgatherv"]:
            for told in False, True:
                check_allgatherv(job, arrays, told, algorithm=algorithm)
        for algorithm in "circulant_blocks", "pipelined_ring":
            check_allgatherv(job, arrays, nblocks=11, algorithm=algorithm)
        wide = [make("i4", (sum(counts), 2), r) for r in range(p)]
        for algorithm in None, *ALGORITHMS["reduce_scatter"]:
            check_reduce_scatter(job, wide, SUM, counts, algorithm=algorithm)
        check_reduce_scatter(job, wide, SUM, counts, algorithm="circulant_blocks", nblocks=11)
        for root in {0, p - 1}:
            check_gatherv(job, arrays, root, told=True)
            check_gatherv(job, arrays, root)
            check_scatterv(job, wide[0], counts, root)


# Results in memory of the caller's choice.


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [0, 1, 9, 5000, 200_000])
def test_results_in_place(jobs: Jobs, kind: str, size: int) -> None:
    def work(c: Communicator) -> None:
        mine = np.arange(size) + c.rank
        total = np.arange(size) * c.size + c.size * (c.size - 1) // 2
        every = np.arange(size) + np.arange(c.size)[:, None]
        out = mine.copy()
        assert c.allreduce(out, out=out) is out
        expect(out, total)
        out = np.full(size, -1)
        assert c.allreduce(mine, out=out) is out
        expect(out, total)
        out = mine.copy()
        assert c.reduce(out, root=1, out=out) is (out if c.rank == 1 else None)
        expect(out, total if c.rank == 1 else mine)
        table = np.full((c.size, size), -1)
        assert c.gather(mine, 2, out=table) is (table if c.rank == 2 else None)
        expect(table, every if c.rank == 2 else np.full((c.size, size), -1))
        table = np.full((c.size, size), -1)
        table[c.rank] = mine
        assert c.allgather(table[c.rank], out=table) is table
        expect(table, every)
        line = np.full(c.size * size, -1)
        place = line[c.rank * size : (c.rank + 1) * size]
        place[...] = mine
        assert c.allgatherv(place, out=line) is line
        expect(line, every.ravel())
        line[...] = -1
        assert c.gatherv(mine, [size] * c.size, 1, out=line) is (line if c.rank == 1 else None)
        expect(line, every.ravel() if c.rank == 1 else np.full(c.size * size, -1))
        part = np.full(even(size, c.size)[c.rank], -1)
        assert c.reduce_scatter(mine, out=part) is part
        expect(part, parts(total, even(size, c.size))[c.rank])
        expect(mine, np.arange(size) + c.rank)
        first = sum(even(size, c.size)[: c.rank])
        part = mine[first : first + len(part)]
        assert c.reduce_scatter(mine, out=part) is part
        expect(part, parts(total, even(size, c.size))[c.rank])

    jobs(kind, 3).ask(work)


def test_a_part_of_the_input_can_be_where_the_result_goes(jobs: Jobs) -> None:
    def work(c: Communicator) -> Array:
        mine = np.arange(9_000) + c.rank
        c.reduce_scatter(mine, out=mine[c.rank * 3000 : c.rank * 3000 + 3000])
        return mine[c.rank * 3000 : c.rank * 3000 + 3000]

    expect(np.concatenate(jobs("threads", 3).ask(work)), np.arange(9_000) * 3 + 3)


def test_a_working_copy_is_made_unless_the_result_goes_to_the_own_rows(jobs: Jobs) -> None:
    def work(c: Communicator) -> list[bool]:
        kept = []
        for shift in 0, 1:
            mine = np.arange(9_001)
            first = c.rank * 3000 + shift
            part = c.reduce_scatter(mine[:9000], out=mine[first : first + 3000], algorithm="pipelined_ring")
            expect(part, np.arange(9_000)[c.rank * 3000 :][:3000] * 3)
            others = np.r_[0:first, first + 3000 : 9001]
            kept.append(bool(np.array_equal(mine[others], others)))
        return kept

    # In place the other rows hold partial sums; with any other memory the input stays as it is.
    assert jobs("threads", 3).ask(work) == [[False, True]] * 3


@pytest.mark.parametrize("kind", KINDS)
def test_memory_maps(jobs: Jobs, kind: str, tmp_path: Path) -> None:
    maps = [np.memmap(tmp_path / str(r), "f4", "w+", shape=(5000,)) for r in range(3)]
    for r, mapped in enumerate(maps):
        mapped[:] = make("f4", (5000,), r)
    plain: list[Array] = [np.array(mapped) for mapped in maps]
    fixed: list[Any] = [np.memmap(tmp_path / str(r), "f4", "r") for r in range(3)]
    job = jobs(kind, 3)
    for mapped in maps:
        mapped.flush()
    check_allreduce(job, fixed)
    check_allgather(job, fixed)
    check_sendrecv(job, fixed)
    check_reduce_scatter(job, fixed)
    for result in job.ask(lambda c: c.bcast(fixed[1] if c.rank == 1 else None, 1)):
        assert np.array_equal(result, plain[1])
    job.ask(lambda c: c.allreduce(maps[c.rank], out=maps[c.rank]))
    for mapped in maps:
        assert np.array_equal(mapped, fold(SUM, plain))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("p", SIZES)
def test_numpy_scalars(jobs: Jobs, kind: str, p: int) -> None:
    def work(c: Communicator) -> None:
        mine = np.float32(c.rank + 1)
        for value in mine, np.datetime64("2026-01-01"), np.str_("äb"), np.bool_(True), np.complex128(1j):
            got = c.bcast(value, c.size - 1)
            assert type(got) is type(value)
        assert c.bcast(mine, c.size - 1) == np.float32(c.size), "a scalar of another rank is no buffer"
        total = c.allreduce(mine)
        assert (type(total), total) == (np.float32, np.float32(p * (p + 1) // 2))
        total = c.reduce(mine, MAX, p - 1)
        assert (type(total), total) == ((np.float32, np.float32(p)) if c.rank == p - 1 else (type(None), None))
        expect(c.allgather(mine), np.arange(1, p + 1, dtype="f4"))
        got = c.sendrecv(mine, (c.rank + 1) % p, (c.rank - 1) % p)
        assert (type(got), got) == (np.float32, np.float32((c.rank - 1) % p + 1))
        record = c.bcast(np.zeros(1, STRUCT)[0], 0)
        assert (type(record), record.dtype) == (np.void, STRUCT)

    jobs(kind, p).ask(work)


@pytest.mark.parametrize("kind", KINDS)
def test_all_bits_arrive(jobs: Jobs, kind: str) -> None:
    """NaN with payloads, negative zeros, infinities: moving is not converting."""
    bits = [np.random.default_rng(r).integers(0, 256, 8 * 3000, np.uint8) for r in range(3)]
    arrays = [b.view("f8") for b in bits]
    arrays[0][:4] = -0.0, np.inf, -np.inf, np.nan
    job = jobs(kind, 3)
    everything = b"".join(array.tobytes() for array in arrays)
    assert {r.tobytes() for r in job.ask(lambda c: c.bcast(arrays[1] if c.rank == 1 else None, 1))} == {
        arrays[1].tobytes()
    }
    assert {r.tobytes() for r in job.ask(lambda c: c.allgather(arrays[c.rank]))} == {everything}
    assert {r.tobytes() for r in job.ask(lambda c: c.allgatherv(arrays[c.rank]))} == {everything}
    scattered = job.ask(lambda c: c.scatter(stack(arrays) if c.rank == 0 else None))
    assert b"".join(part.tobytes() for part in scattered) == everything


def test_fields_out_of_order(jobs: Jobs) -> None:
    """An array whose dtype numpy cannot describe in a text travels as an object."""
    table = np.zeros(3, [("a", "i4"), ("b", "f8"), ("c", "i2")])
    table["a"] = 1, 2, 3

    def work(c: Communicator) -> None:
        chosen = table[["c", "a"]]
        assert c.bcast(chosen if c.rank == 0 else None).tolist() == chosen.tolist()
        assert [part.tolist() for part in c.allgather(chosen)] == [chosen.tolist()] * c.size
        assert c.allgather(np.str_("")).tolist() == [""] * c.size

    jobs("threads", 3).ask(work)


# Tags and pairs.


@pytest.mark.parametrize("kind", KINDS)
def test_sendrecv_with_one_end_and_with_tags(jobs: Jobs, kind: str) -> None:
    def work(c: Communicator) -> list[Any]:
        if c.rank == 0:
            return [c.sendrecv(word, 1, None, tag) for tag, word in ((1, "a"), (2, "b"), (1, "c"))]
        return [c.sendrecv(None, None, 0, tag) for tag in (2, 1, 1)]

    assert jobs(kind, 2).ask(work) == [[None] * 3, ["b", "a", "c"]]


def test_sendrecv_with_nobody_or_oneself(jobs: Jobs) -> None:
    def work(c: Communicator) -> None:
        mine = np.arange(4)
        assert c.sendrecv(mine, None, None) is None
        got = c.sendrecv(mine, c.rank, c.rank)
        expect(got, mine)
        assert not np.shares_memory(got, mine)

    for p in 1, 3:
        jobs("threads", p).ask(work)


def test_sendrecv_between_collectives(jobs: Jobs) -> None:
    def work(c: Communicator) -> Any:
        if c.rank == 0:
            c.sendrecv("early", 2, None)
        c.barrier()
        total = c.allreduce(c.rank)
        return total, c.sendrecv(None, None, 0) if c.rank == 2 else None

    assert jobs("threads", 3).ask(work) == [(3, None), (3, None), (3, "early")]


# Operators.

LEGAL = {
    SUM: ("?", "i4", "u8", "f2", "f8", "g", "D", "m8[s]", ">f4"),
    PROD: ("?", "i4", "u8", "f8", "D", ">i2"),
    MIN: ("?", "i4", "u8", "f2", "f8", "g", "D", "m8[s]", "M8[s]", ">f4"),
    MAX: ("?", "i4", "u8", "f2", "f8", "g", "D", "m8[s]", "M8[s]", ">f4"),
    LAND: ("?", "i4", "u1", "f8", "D"),
    LOR: ("?", "i4", "u1", "f8", "D"),
    BAND: ("?", "i4", "u1", "i8", ">i8"),
    BOR: ("?", "i4", "u1", "i8", ">i8"),
    LXOR: ("?", "i4", "u1", "f8"),
    BXOR: ("?", "i4", "u1", ">i8"),
}
ILLEGAL = {
    SUM: ("M8[s]", "S5", "U3", STRUCT),
    PROD: ("M8[s]", "m8[s]", "U3", STRUCT),
    MIN: (STRUCT, "V4"),
    LAND: ("M8[s]", STRUCT),
    BAND: ("f4", "f8", "D", "m8[s]", "S3"),
    BOR: ("f2", "G", "M8[s]", STRUCT),
}


@pytest.mark.parametrize("p", [1, 2, 3, 5])
@pytest.mark.parametrize("op", LEGAL, ids=str)
def test_every_operator_on_every_legal_dtype(jobs: Jobs, op: Op, p: int) -> None:
    job = jobs("threads", p)
    for dtype in LEGAL[op]:
        for size in 1, 40, 3000:
            arrays = [make(dtype, (size,), r, below=3) for r in range(p)]
            check_reduce(job, arrays, p // 2, op)
            check_allreduce(job, arrays, op)
            check_reduce_scatter(job, arrays, op)


@pytest.mark.parametrize("op", ILLEGAL, ids=str)
def test_an_operator_on_an_illegal_dtype_is_refused_and_nothing_is_sent(jobs: Jobs, op: Op) -> None:
    def work(c: Communicator, dtype: Any) -> Any:
        value = make(dtype, (3,), 0)
        for call in c.reduce, c.allreduce, c.reduce_scatter:
            with pytest.raises(ArgumentError, match=rf"^rank {c.rank}: {call.__name__}: argument op: {op}"):
                call(value, op)
        return c.allreduce(1)

    for dtype in ILLEGAL[op]:
        assert jobs("threads", 3).ask(lambda c, dtype=dtype: work(c, dtype)) == [3] * 3


@pytest.mark.parametrize(("kind", "p"), crossed(KINDS, SIZES))
def test_functions_are_applied_in_rank_order_to_whole_values(jobs: Jobs, kind: str, p: int) -> None:
    def product(a: Array, b: Array) -> Array:
        assert a.shape == b.shape == (a.shape[0], 2, 2)
        assert a.flags.c_contiguous
        return a @ b

    for count in (1, 7, 3000) if kind == "threads" else (7, 3000):
        arrays = [make("i8", (count, 2, 2), r, below=4) for r in range(p)]
        for op in product, np.matmul, Op(product, name="product"), Op(product, commutative=False, elementwise=False):
            check_allreduce(jobs(kind, p), arrays, op)
        for root in range(p):
            check_reduce(jobs(kind, p), arrays, root, product)
        check_reduce_scatter(jobs(kind, p), arrays, product)
        check_reduce_scatter(jobs(kind, p), arrays, product, [count] + [0] * (p - 1))


@pytest.mark.parametrize("p", long_but((1, 2, 3, 4, 7, 8, 13, 33), [*range(1, 18), 33]))
def test_order_of_operands_for_any_number_of_ranks(jobs: Jobs, p: int) -> None:
    arrays = [make("i8", (2, 2), r, below=5) for r in range(p)]
    last, first = Op(lambda a, b: b.copy(), elementwise=True), Op(lambda a, b: a.copy(), elementwise=True)
    job = jobs("threads", p)
    for op in np.matmul, last, first:
        check_allreduce(job, arrays, op)
        check_reduce_scatter(job, arrays, op)
        for root in range(p) if p <= 9 else (0, 1, p // 2, p - 1):
            check_reduce(job, arrays, root, op)
    letters = [chr(ord("a") + r % 26) for r in range(p)]
    word = "".join(letters)
    assert job.ask(lambda c: c.allreduce(letters[c.rank], operator.add)) == [word] * p
    assert job.ask(lambda c: c.reduce_scatter([letters[c.rank]] * p, operator.add)) == [word] * p
    for root in range(p) if p <= 9 else (0, 1, p // 2, p - 1):
        assert job.ask(lambda c, root=root: c.reduce(letters[c.rank], operator.add, root))[root] == word


def test_a_plain_function_gets_arrays_of_the_shape_of_the_value(jobs: Jobs) -> None:
    for shape in (), (5,), (2, 3), (1, 2, 3), (0, 4):
        seen: set[tuple[int, ...]] = set()

        def plus(a: Array, b: Array, seen: set[tuple[int, ...]] = seen) -> Array:
            seen.update((a.shape, b.shape))
            return a + b

        arrays = [np.asarray(make("f8", shape, r)) for r in range(5)]
        check_allreduce(jobs("threads", 5), arrays, plus)
        check_reduce(jobs("threads", 5), arrays, 3, plus)
        assert seen == {shape}


def test_a_commutative_elementwise_function_is_given_pieces(jobs: Jobs) -> None:
    seen: set[tuple[int, ...]] = set()

    def plus(a: Array, b: Array) -> Array:
        if threading.current_thread() is not threading.main_thread():  # where the oracle is computed
            seen.update((a.shape, b.shape))
        return a + b

    op = Op(plus, commutative=True, elementwise=True)
    arrays = [make("i8", (100, 300), r) for r in range(5)]
    check_allreduce(jobs("threads", 5), arrays, op)
    check_reduce(jobs("threads", 5), arrays, 3, op, nblocks=7)
    check_reduce_scatter(jobs("threads", 5), arrays, op, algorithm="circulant_blocks", nblocks=3)
    assert all(len(shape) == 1 for shape in seen)
    assert max(seen) < (30_000,)


# The same bits everywhere.


def ill_conditioned(dtype: str, size: int, rank: int) -> Array:
    rng = np.random.default_rng(rank)
    top = 4 if dtype == "f2" else 12
    values = rng.standard_normal(size) * 10.0 ** rng.integers(-top, top, size) * (0.1 if dtype == "f2" else 1)
    return (values + 1j * values[::-1]).astype(dtype) if dtype in "FD" else values.astype(dtype)


INEXACT = [entry.name for entry in ALGORITHMS["allreduce"].values() if not entry.exact]


@pytest.mark.parametrize("p", [1, 2, 7, 33, *(pytest.param(p, marks=pytest.mark.long) for p in (3, 5, 6, 8, 13, 65))])
@pytest.mark.parametrize("algorithm", [None, *INEXACT])
def test_allreduce_gives_every_rank_the_same_bits(jobs: Jobs, p: int, algorithm: str | None) -> None:
    hypot = Op(lambda a, b: np.hypot(a, b), commutative=True, elementwise=True, name="hypot")
    for dtype in "f2", "f4", "f8", "g", "F", "D":
        for size in (1, 40, 5000) if p <= 13 else (40,):
            arrays = [ill_conditioned(dtype, size, r) for r in range(p)]
            results = jobs("threads", p).ask(lambda c: c.allreduce(arrays[c.rank], algorithm=algorithm))  # noqa: B023
            if dtype == "g":  # has bytes of padding
                assert all(np.array_equal(result, results[0]) for result in results)
            else:
                assert len({result.tobytes() for result in results}) == 1
            sizes = sum(np.abs(array).astype("D" if dtype in "FD" else "g") for array in arrays)
            assert np.all(
                np.abs(results[0] - sum(a.astype(sizes.dtype) for a in arrays)) <= sizes * p * np.finfo(dtype).eps
            )
    arrays = [ill_conditioned("f8", 3000, r) for r in range(p)]
    results = jobs("threads", p).ask(lambda c: c.allreduce(arrays[c.rank], hypot, algorithm=algorithm))
    assert len({result.tobytes() for result in results}) == 1


@pytest.mark.parametrize("kind", ["shm", "ipc", "tcp"])
@pytest.mark.parametrize("p", [3, 5, 8])
def test_allreduce_gives_every_rank_the_same_bits_over_sockets(jobs: Jobs, kind: str, p: int) -> None:
    for size in 1, 2000, 50_000:
        arrays = [ill_conditioned("f8", size, r) for r in range(p)]
        for function in SUM, lambda a, b: a + b:
            results = jobs(kind, p).ask(lambda c: c.allreduce(arrays[c.rank], function))  # noqa: B023
            assert len({result.tobytes() for result in results}) == 1


def test_allreduce_of_python_floats_gives_every_rank_the_same_bits(jobs: Jobs) -> None:
    for p in 3, 5, 7, 33:
        values = [float(ill_conditioned("f8", 1, r)[0]) for r in range(p)]
        assert len(set(jobs("threads", p).ask(lambda c, v=values: c.allreduce(v[c.rank])))) == 1


def test_census_is_refused_where_it_could_give_ranks_different_bits(jobs: Jobs) -> None:
    def work(c: Communicator) -> int:
        for value, op in (
            (np.ones(3), SUM),
            (np.ones(3), MAX),
            (np.ones(3, "D"), SUM),
            (np.ones(3, int), lambda a, b: a + b),
            (np.ones(3, int), Op(lambda a, b: a + b, commutative=True, elementwise=True)),
            (1.0, SUM),
            ("a", SUM),
        ):
            with pytest.raises(ArgumentError, match="'census': it needs"):
                c.allreduce(value, op, algorithm="census")
        return int(c.allreduce(1))

    assert jobs("threads", 3).ask(work) == [3, 3, 3]


@pytest.mark.parametrize("p", [2, 3, 8, 33])
def test_census_is_never_chosen_for_inexact_operators(p: int) -> None:
    for network in NETWORKS.values():
        for nbytes in 0, 8, 100, 10_000, 1_000_000:
            for elementwise in False, True:
                name, _ = choose(
                    "allreduce", CallFacts(size=p, nbytes=nbytes, exact=False, elementwise=elementwise), network
                )
                assert name != "census"
    for op in SUM, MIN, PROD:
        assert not op.exact(np.dtype("f8"))
        assert not op.exact(np.dtype("D"))
        assert not op.exact(np.dtype("m8[s]"))
        assert op.exact(np.dtype("i4"))
    assert not Op(lambda a, b: a + b, commutative=True, elementwise=True).exact(np.dtype("i4"))


def test_barrier_holds_everyone_until_the_last_comes(jobs: Jobs) -> None:
    for kind in KINDS:
        for p in SIZES:
            came: list[int] = []

            def work(c: Communicator, came: list[int] = came) -> int:
                if c.rank:
                    c.sendrecv(None, None, c.rank - 1)
                came.append(c.rank)
                if c.rank < c.size - 1:
                    c.sendrecv("go on", c.rank + 1, None)
                c.barrier()
                return len(came)

            assert jobs(kind, p).ask(work) == [p] * p
