"""Prefix sums: the skips of the papers, and scan and exscan on threads, ipc and tcp, in rank order."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringcast import MAX, SUM, ArgumentError, Communicator, Op
from ringcast.algorithms import ALGORITHMS, Params, build
from ringcast.analysis.simulate import simulate
from ringcast.schedules.scan import Skips, census_skips, skips_123, two_phase_skips
from support.cases import long_but
from support.jobs import KINDS, Job, Jobs
from support.places import golden_collectives

Array = np.ndarray[Any, Any]
GOLDEN = golden_collectives()
SCANS, EXSCANS = list(ALGORITHMS["scan"]), list(ALGORITHMS["exscan"])
SIZES = {"threads": (1, 2, 3, 5, 8, 33, 65), **dict.fromkeys(("shm", "sockets", "tcp"), (2, 5))}


@pytest.fixture(scope="module")
def jobs() -> Iterator[Jobs]:
    made = Jobs()
    yield made
    made.close()


# Schedules.


@pytest.mark.parametrize(
    ("skips", "key"),
    [(two_phase_skips, "exscan_two_phase"), (skips_123, "exscan_123"), (census_skips, "census_rounds")],
)
def test_skips_are_the_known_ones(skips: Callable[[int], Skips], key: str) -> None:
    for p, known in GOLDEN[key].items():
        assert skips(int(p)) == tuple((skip, bool(inclusive)) for skip, inclusive in known), p


@pytest.mark.parametrize("skips", [two_phase_skips, skips_123, census_skips])
def test_skips_reach_just_all_ranks_before_the_last(skips: Callable[[int], Skips]) -> None:
    for p in range(1, 3000):
        covered = 0
        for skip, inclusive in skips(p):
            assert skip == covered + inclusive
            assert skip < p
            covered += skip
        assert covered >= p - 1


def test_two_phases_take_the_fewest_rounds_and_inclusive_rounds() -> None:
    def inclusive(skips: Skips) -> int:
        return sum(with_own for _, with_own in skips)

    for p in range(2, 3000):
        q, two_phase, census, doubling_123 = (p - 1).bit_length(), two_phase_skips(p), census_skips(p), skips_123(p)
        assert len(two_phase) == len(census) == q <= len(doubling_123) <= q + 1
        assert len(doubling_123) == next(k for k in range(20) if 3 * 2**k >= 4 * (p - 1))
        assert inclusive(two_phase) <= inclusive(census) == (p - 1).bit_count()
        assert inclusive(two_phase) <= inclusive(doubling_123) or len(doubling_123) > q


def test_on_a_hypercube_every_rank_exchanges_with_its_neighbour_of_each_dimension() -> None:
    for d in range(8):
        schedules = [build("scan", "hypercube", Params(2**d), r) for r in range(2**d)]
        for rank, schedule in enumerate(schedules):
            peers = [rank ^ 1 << i for i in range(d)]
            assert [step.send_to for step in schedule][:d] == peers
            assert [step.recv_from for step in schedule][:d] == peers
        assert simulate(schedules).messages == d * 2**d


@pytest.mark.parametrize("name", EXSCANS)
def test_an_exscan_sends_nothing_empty(name: str) -> None:
    """Rank 0 sends its own value, in inclusive rounds only."""
    for p in range(2, 70):
        schedules = [build("exscan", name, Params(p), r) for r in range(p)]
        skips = {"two_phase": two_phase_skips, "census": census_skips, "doubling_123": skips_123}[name](p)
        assert simulate(schedules).messages == sum(p - skip - (not inclusive) for skip, inclusive in skips)


# Live, on arrays.


def expect(got: Any, want: Array) -> None:
    assert type(got) is np.ndarray
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    assert np.array_equal(got, want)


def check(job: Job, arrays: list[Array], op: Any = SUM, scan: str | None = None, exscan: str | None = None) -> None:
    fn = op.fn if isinstance(op, Op) else op
    wanted = list(accumulate(arrays, lambda a, b: np.asarray(fn(a, b)).astype(a.dtype)))
    given_ = [array.copy() for array in arrays]
    results = job.ask(
        lambda c: (c.scan(given_[c.rank], op, algorithm=scan), c.exscan(given_[c.rank], op, algorithm=exscan))
    )
    for rank, (upto, before) in enumerate(results):
        expect(upto, wanted[rank])
        if rank == 0:
            assert before is None
        else:
            expect(before, wanted[rank - 1])
    assert all(map(np.array_equal, given_, arrays)), "an input was changed"


def numbers(p: int, shape: tuple[int, ...], dtype: str) -> list[Array]:
    return [np.asarray(np.random.default_rng(r).integers(0, 100, shape)).astype(dtype) for r in range(p)]


@pytest.mark.parametrize("kind", KINDS)
def test_sums_are_those_of_numpy(jobs: Jobs, kind: str) -> None:
    @settings(max_examples=40 if kind == "threads" else 12, database=None)
    @given(
        st.sampled_from((1, 2, 3, 5, 8)),
        st.lists(st.integers(0, 4), max_size=3).map(tuple) | st.sampled_from([(2049,), (5000,), (3, 30, 20)]),
        st.sampled_from(("i1", "u1", "i4", "u8", "f4", "f8", "D", ">i4")),
        st.sampled_from([None, *SCANS]),
        st.sampled_from([None, *EXSCANS]),
        st.sampled_from([SUM, MAX]),
    )
    def run(p: int, shape: tuple[int, ...], dtype: str, scan: str | None, exscan: str | None, op: Op) -> None:
        check(jobs(kind, p), numbers(p, shape, dtype), op, scan, exscan)

    run()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("nbytes", [0, 1, 16_385, 262_145, 1_200_000])
def test_all_sizes_from_nothing_to_more_than_fits_into_a_segment(jobs: Jobs, kind: str, nbytes: int) -> None:
    for scan, exscan in zip(SCANS + SCANS[:1], EXSCANS, strict=True):
        check(jobs(kind, 5), numbers(5, (nbytes,), "u1"), SUM, scan, exscan)


@pytest.mark.parametrize("p", long_but((1, 2, 3, 4, 7, 8, 13, 33), [*range(1, 18), 33, 65]))
def test_order_of_operands_for_any_number_of_ranks(jobs: Jobs, p: int) -> None:
    arrays = numbers(p, (3, 2, 2), "i8")
    last, first = Op(lambda a, b: b.copy(), elementwise=True), Op(lambda a, b: a.copy(), elementwise=True)
    for scan, exscan in zip(SCANS + SCANS[:1], EXSCANS, strict=True):
        for op in np.matmul, Op(np.matmul), last, first:
            check(jobs("threads", p), arrays, op, scan, exscan)


# Live, on objects.


@pytest.mark.parametrize(("kind", "p"), [(kind, p) for kind in KINDS for p in SIZES[kind]])
def test_texts_are_joined_in_rank_order(jobs: Jobs, kind: str, p: int) -> None:
    words = [f"{r}," * (r % 3) for r in range(p)]
    joined = list(accumulate(words))
    for scan in [None, *SCANS]:
        got = jobs(kind, p).ask(lambda c, scan=scan: c.scan(words[c.rank], operator.add, algorithm=scan))
        assert got == joined
    for exscan in [None, *EXSCANS]:
        got = jobs(kind, p).ask(lambda c, exscan=exscan: c.exscan(words[c.rank], operator.add, algorithm=exscan))
        assert got == [None, *joined[:-1]]


def test_values_of_other_kinds(jobs: Jobs) -> None:
    def work(c: Communicator) -> None:
        n = c.rank
        assert c.scan(n) == n * (n + 1) // 2
        assert c.exscan([n]) == (list(range(n)) if n else None)
        assert c.scan(n, max) == n
        total, before = c.scan(np.float32(1)), c.exscan(np.float32(1))
        assert (type(total), total) == (np.float32, n + 1)
        assert (type(before), before) == ((np.float32, n) if n else (type(None), None))

    for p in 1, 2, 5:
        jobs("threads", p).ask(work)


def test_an_object_is_not_changed(jobs: Jobs) -> None:
    def work(c: Communicator) -> None:
        mine = [c.rank]
        c.scan(mine)
        c.exscan(mine)
        assert mine == [c.rank]

    jobs("threads", 5).ask(work)


# Results where the caller wants them.


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [0, 1, 5000, 200_000])
def test_results_in_place(jobs: Jobs, kind: str, size: int) -> None:
    def work(c: Communicator) -> None:
        mine = np.arange(size) + c.rank
        upto, before = (np.arange(size) * n + n * (n - 1) // 2 for n in (c.rank + 1, c.rank))
        out = np.full(size, -1)
        assert c.scan(mine, out=out) is out
        expect(out, upto)
        out = mine.copy()
        assert c.scan(out, out=out) is out
        expect(out, upto)
        out = np.zeros(size, int)  # neutral, for rank 0
        assert c.exscan(mine, out=out) is out
        expect(out, before)
        out = mine.copy()
        assert c.exscan(out, out=out) is out
        expect(out, before if c.rank else mine)
        expect(mine, np.arange(size) + c.rank)

    for p in 1, 3:
        jobs(kind, p).ask(work)


def test_what_is_wrong_is_told_before_anything_is_sent(jobs: Jobs) -> None:
    def work(c: Communicator) -> Any:
        mine = np.arange(4)
        for call in c.scan, c.exscan:
            told = f"^rank {c.rank}: {call.__name__}: argument "
            for out in np.empty(3, int), np.empty(4), [0] * 4:
                with pytest.raises(ArgumentError, match=told + "out: expected"):
                    call(mine, out=out)
            with pytest.raises(ArgumentError, match=told + "out: expected None"):
                call("a", out=mine)
            with pytest.raises(ArgumentError, match=told + "op: SUM does not work on dtype datetime64"):
                call(np.zeros(2, "M8[s]"))
            with pytest.raises(ArgumentError, match=told + "op: expected an Op"):
                call(mine, 3)
            known = ", ".join(ALGORITHMS[call.__name__])
            with pytest.raises(ArgumentError, match=f"'ring': there is no such algorithm; known are {known}"):
                call(mine, algorithm="ring")
        return c.scan(1)

    assert jobs("threads", 3).ask(work) == [1, 2, 3]


@pytest.mark.parametrize("kind", KINDS)
def test_many_in_a_row_without_waiting(jobs: Jobs, kind: str) -> None:
    def work(c: Communicator) -> None:
        for i in range(40):
            size = (0, 1, 2049, 9)[i % 4]
            mine = np.full(size, c.rank + i)
            expect(c.scan(mine), np.full(size, sum(r + i for r in range(c.rank + 1))))
            assert c.allreduce(1) == c.size
            before = c.exscan(mine, out=np.zeros_like(mine))
            expect(before, np.full(size, sum(r + i for r in range(c.rank))))

    jobs(kind, 5).ask(work)
