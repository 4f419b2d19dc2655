"""merge_sorted against np.sort; its schedules symbolically; and everything that it refuses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringcast import ArgumentError, CollectiveMismatch, Communicator, RingcastError
from ringcast.algorithms import ALGORITHMS, CallFacts, Params, build
from ringcast.algorithms.cost import choose
from ringcast.algorithms.load import Call
from ringcast.algorithms.network import NETWORKS
from ringcast.analysis.postconditions import postcondition
from ringcast.analysis.simulate import simulate
from ringcast.analysis.verify import verify
from ringcast.collectives.explain import Explanation
from ringcast.collectives.merge import _first_fall
from ringcast.errors import ScheduleError
from ringcast.schedules import circulant
from ringcast.schedules.merging import special_rounds
from ringcast.schedules.schedule import Copy, Local, Merge, Schedule, Step
from support.cases import crossed, each
from support.jobs import KINDS, Job, Jobs
from support.patience import patience
from support.places import golden_collectives

Array = np.ndarray[Any, Any]
NAMES = sorted(ALGORITHMS["merge_sorted"])
GOLDEN = golden_collectives()
DTYPES = ("?", "i1", "i2", "i4", "i8", "u1", "u8", ">i4", ">f8", "f2", "f4", "f8", "g", "F", "D", "M8[s]", "S3", "U2")
SAMPLE = {1, 2, 3, 5, 8, 12, 33}  # sizes of which every run knows


@pytest.fixture(scope="module")
def jobs() -> Iterator[Jobs]:
    made = Jobs()
    yield made
    made.close()


# The schedules.


def schedules_of(name: str, p: int) -> list[Schedule]:
    return [build("merge_sorted", name, Params(p), r) for r in range(p)]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("sizes", [range(1, 41), pytest.param(range(41, 201, 8), marks=pytest.mark.long)], ids=str)
@pytest.mark.timeout(600)
def test_every_rank_gets_every_part_once_in_q_rounds(name: str, sizes: range) -> None:
    each("p", sizes)(check_rounds)(name=name)


def check_rounds(name: str, p: int) -> None:
    schedules = schedules_of(name, p)
    verify(schedules, postcondition("merge_sorted", p, schedules[0].parts))
    report = simulate(schedules)
    assert report.rounds == (p - 1).bit_length()
    assert report.received == report.sent
    if name == "dissemination":
        assert p - 1 <= report.volume <= 1.5 * (p - 1)
    else:
        assert report.received == (p - 1,) * p


@each("p", range(1, 130))
def test_the_census_of_runs_has_the_peers_and_message_sizes_of_the_census(p: int) -> None:
    census = [(step.send_to, step.recv_from) for step in circulant.census(p, 0)]
    merging = list(build("merge_sorted", "circulant", Params(p), 0))
    assert [(step.send_to, step.recv_from) for step in merging] == census
    # "The skipping step is always equal to the number of blocks being sent."
    assert all(len(step.send) == step.recv_from for step in merging if step.recv_from is not None)


@pytest.mark.parametrize(("p", "rounds"), GOLDEN["lang_dissemination_special_rounds"].items())
def test_golden_special_rounds(p: str, rounds: list[list[int]]) -> None:
    assert [list(item) for item in special_rounds(int(p)).items()] == rounds


@given(st.lists(st.integers(0, 9000), min_size=1, max_size=40), st.sampled_from(NAMES))
def test_the_load_bounds_what_uneven_parts_move(sizes: list[int], name: str) -> None:
    p = len(sizes)
    params = Params(p, counts=tuple(sizes))
    schedules = [build("merge_sorted", name, params, r) for r in range(p)]
    entry = ALGORITHMS["merge_sorted"][name]
    load = entry.load(Call(params, sum(sizes), entry.rounds(params)))
    report = simulate(schedules, sizes, alpha=0.0, beta=1.0)
    assert report.volume <= load.volume
    assert report.time <= load.volume


def test_the_census_is_the_default() -> None:
    for p, nbytes, network in product(range(1, 100), (0, 1000, 10**8), NETWORKS.values()):
        assert choose("merge_sorted", CallFacts(size=p, nbytes=nbytes), network) == ("circulant", 1)


@dataclass(frozen=True)
class GatherAndDo(Schedule):
    """An allgather, then these local steps, with one slot more for part 1."""

    after: tuple[Local, ...]

    @property
    def parts(self) -> tuple[int, ...]:
        return (1,) * self.size

    @property
    def scratch(self) -> tuple[int, ...]:
        return (1,)

    def __len__(self) -> int:
        return 3

    def _step(self, i: int) -> Step:
        return circulant.allgather(self.size, self.rank)[i] if i < 2 else Step(local=self.after)


@pytest.mark.parametrize(
    ("after", "fault"),
    [
        ([Merge((0, 1, 2))], ""),
        ([Merge((2, 0)), Merge((0, 1, 2))], ""),
        ([Merge((0, 1))], "at the end: slot 0 has piece 0 of ranks 0-1, not piece 0 of ranks 0-2"),
        ([Merge((0, 1)), Merge((1, 2))], "takes 1 slots of a run of 2"),
        ([Merge((0, 0, 1))], "takes 2 slots of a run of 1"),
        ([Merge((0, 1, 3))], "needs a slot that the rank does not hold"),
        ([Copy(3, 1), Merge((0, 1)), Merge((0, 1, 3))], "counts contributions twice"),
        ([Merge((0, 1, 5))], "names a slot that is not one of 4"),
    ],
)
def test_verify_knows_what_can_be_merged(after: list[Local], fault: str) -> None:
    schedules = [GatherAndDo(3, r, tuple(after)) for r in range(3)]
    told = postcondition("merge_sorted", 3, (1, 1, 1))
    if not fault:
        verify(schedules, told)
        return
    with pytest.raises(ScheduleError, match=fault):
        verify(schedules, told)


# Live, against numpy.


def runs_of(p: int, counts: Sequence[int], dtype: Any, seed: int, below: int = 20) -> list[Array]:
    """Sorted runs with many equal items."""
    numbers = np.random.default_rng(seed)
    return [np.sort(numbers.integers(0, below, n)).astype(dtype) for n in counts[:p]]


def whole(runs: Sequence[Array]) -> Array:
    return np.sort(np.concatenate(runs), kind="stable").astype(runs[0].dtype)


def check(job: Job, runs: list[Array], algorithm: str | None = None) -> None:
    before = [run.tobytes() for run in runs]
    for result in job.ask(lambda c: c.merge_sorted(runs[c.rank], algorithm=algorithm)):
        assert type(result) is np.ndarray
        assert result.dtype == runs[0].dtype
        assert np.array_equal(result, whole(runs), equal_nan=runs[0].dtype.kind in "fc")
        assert result.flags.writeable
        assert not any(np.shares_memory(result, run) for run in runs)
    assert [run.tobytes() for run in runs] == before


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("p", [pytest.param(p, marks=[pytest.mark.long] * (p not in SAMPLE)) for p in range(1, 34)])
def test_every_size_on_threads(jobs: Jobs, name: str, p: int) -> None:
    job = jobs("threads", p)
    for counts in ([3] * p, [1] * p, [0] * p, [7 * j % 5 * (j % 3) for j in range(p)]):
        check(job, runs_of(p, counts, np.int64, p), name)
    for lonely in {0, p // 2, p - 1}:
        check(job, runs_of(p, [1000 * (j == lonely) for j in range(p)], np.int64, p), name)


@pytest.mark.parametrize(("kind", "p"), crossed(KINDS, [2, 5, 8]))
def test_large_and_very_uneven_parts(jobs: Jobs, kind: str, p: int) -> None:
    giant = [300_000 if j == p // 2 else 7 * j for j in range(p)]
    for counts in ([40_000] * p, giant):
        for name in NAMES:
            check(jobs(kind, p), runs_of(p, counts, np.int64, p, 10**6), name)


@pytest.mark.parametrize("kind", KINDS)
def test_any_dtype_and_any_counts(jobs: Jobs, kind: str) -> None:
    @settings(max_examples=60 if kind == "threads" else 15, database=None)
    @given(st.data(), st.sampled_from([1, 2, 3, 5, 7]), st.sampled_from(DTYPES), st.sampled_from([None, *NAMES]))
    def examples(data: st.DataObject, p: int, dtype: str, name: str | None) -> None:
        counts = data.draw(st.lists(st.integers(0, 40), min_size=p, max_size=p))
        runs = [np.sort(run) for run in runs_of(p, counts, dtype, sum(counts))]  # "10" sorts before "9"
        check(jobs(kind, p), [run.astype(dtype) for run in runs], name)

    examples()


@pytest.mark.parametrize("name", NAMES)
def test_one_byte_and_none(jobs: Jobs, name: str) -> None:
    check(jobs("ipc", 5), [np.full(int(r == 3), 7, np.uint8) for r in range(5)], name)
    check(jobs("ipc", 5), [np.empty(0, np.uint8)] * 5, name)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", ["f4", "f8", "D"])
def test_nans_come_last(jobs: Jobs, name: str, dtype: str) -> None:
    runs = [np.array([-np.inf, r, r, np.inf, *[np.nan] * (r % 3)], dtype) for r in range(5)]
    check(jobs("threads", 5), runs, name)
    times = [np.sort(np.array(["2020-01-01", "1999-12-31", "NaT"][r:], "M8[D]")) for r in range(3)]
    merged = jobs("threads", 3).ask(lambda c: c.merge_sorted(times[c.rank], algorithm=name))
    assert all(np.array_equal(m, whole(times), equal_nan=True) for m in merged)


def test_signed_zeros_are_all_there(jobs: Jobs) -> None:
    runs = [np.array([-1.0, *([-0.0, 0.0] * r), 1.0]) for r in range(5)]
    for merged in jobs("threads", 5).ask(lambda c: c.merge_sorted(runs[c.rank])):
        assert np.array_equal(merged, whole(runs))
        assert np.signbit(merged).sum() == np.signbit(whole(runs)).sum()


def test_memory_layouts(jobs: Jobs) -> None:
    raw = np.frombuffer(bytes(8 * 9 + 1), np.uint8)[1:].view(np.int64)  # unaligned, and not writeable
    runs = [np.arange(18)[::2], np.arange(9)[::-1][::-1], raw]
    check(jobs("threads", 3), runs)


def test_what_is_explained_is_what_is_done(jobs: Jobs) -> None:
    counts = (0, 70_000, 3, 1, 50)

    def ask(comm: Communicator) -> Explanation:
        done: list[str] = []
        comm._group.on_stage = lambda stage, _: done.append(stage.algorithm)
        comm.merge_sorted(np.zeros(counts[comm.rank]))
        told = comm.explain("merge_sorted", counts=counts)
        assert comm.explain("merge_sorted", np.zeros(counts[comm.rank]), counts=counts) == told
        assert done[-1] == told.chosen.algorithm
        return told

    first, *others = jobs("threads", 5).ask(ask)
    assert others == [first] * 4
    assert {option.algorithm for option in first.options} == set(NAMES)


# What is refused.


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.array([1, 3, 2, 4, 0]), r"array: expected it sorted, as by np\.sort, but the item at \[2\] belongs before"),
        (np.array([1.0, np.nan, 2.0]), r"at \[2\] belongs before that at \[1\]"),
        (np.array([np.nan, 1.0, 2.0]), r"at \[1\] belongs before that at \[0\]"),
        (np.array([1 + 2j, 1 + 1j]), r"at \[1\] belongs"),
        (np.array(["b", "a"]), r"at \[1\] belongs"),
        (np.array([True, False]), r"at \[1\] belongs"),
        (np.zeros((2, 2)), "expected an array of 1 dimension, without Python objects in it, got one of 2 dimensions"),
        (np.float64(1), "got float64; pass np.atleast_1d"),
        ([1, 2], "got list"),
        (None, "got NoneType"),
        (np.array([1, 2], object), "without Python objects in it, got array of Python objects"),
        (np.zeros(2, [("a", "i4")]), "expected items with an order"),
        (np.zeros(2, "V4"), "expected items with an order, got dtype void32"),
    ],
)
def test_what_cannot_be_merged(jobs: Jobs, value: Any, text: str) -> None:
    def ask(comm: Communicator) -> None:
        with pytest.raises(ArgumentError, match=rf"rank {comm.rank}: merge_sorted: .*{text}"):
            comm.merge_sorted(value)
        assert np.array_equal(comm.merge_sorted(np.arange(2)), np.repeat([0, 1], comm.size))  # nothing was sent

    jobs("threads", 2).ask(ask)


@given(st.lists(st.sampled_from([0.0, 1.0, 2.0, np.nan]), max_size=8))
def test_the_first_fall(items: list[float]) -> None:
    falls = [
        i
        for i, (a, b) in enumerate(pairwise(items), start=1)
        if b == b and (a != a or a > b)  # numbers come before NaNs
    ]
    assert _first_fall(np.array(items)) == (falls[0] if falls else 0)


@pytest.fixture
def job() -> Iterator[Job]:
    """A job of its own, for what leaves something behind."""
    made = Job("threads", 3)
    yield made
    made.close()


def test_an_array_that_is_not_sorted_on_one_rank_gives_no_result_anywhere(job: Job) -> None:
    told = job.run(lambda c: c.merge_sorted(np.array([2, 1] if c.rank == 1 else [1, 2])), timeout=1)
    assert isinstance(told[1], ArgumentError)
    assert all(isinstance(error, RingcastError) for error in told)


def test_ranks_with_different_dtypes(job: Job) -> None:
    told = job.run(lambda c: c.merge_sorted(np.arange(3, dtype="i4" if c.rank else "i8")), timeout=patience(10))
    assert all(isinstance(error, RingcastError) for error in told)
    text = next(str(error) for error in told if isinstance(error, CollectiveMismatch))
    assert "int32" in text
    assert "int64" in text


def test_an_unknown_algorithm(jobs: Jobs) -> None:
    def ask(comm: Communicator) -> None:
        with pytest.raises(ArgumentError, match=r"merge_sorted by 'magic': .*circulant, dissemination, allgather"):
            comm.merge_sorted(np.arange(2), algorithm="magic")

    jobs("threads", 2).ask(ask)
