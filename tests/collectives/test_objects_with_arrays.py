"""Objects that hold arrays and other buffers, in every call: as a pickle of them, and with memory of their own."""

from __future__ import annotations

import pickle
import tracemalloc
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
import pytest

from ringcast import Communicator
from ringcast.algorithms import find
from ringcast.collectives import stage
from ringcast.engine.objects import APART
from support.cases import crossed
from support.jobs import KINDS, Job, Jobs
from support.patience import patience

LARGE = APART // 8 + 3  # items of a float array that is a frame of its own


@pytest.fixture(scope="module")
def jobs() -> Iterator[Jobs]:
    made = Jobs()
    yield made
    made.close()


class Named(np.ndarray[Any, Any]):
    """A subclass of ndarray, which is a Python object to ringcast."""


class Holder:
    """An object that hands its memory to a pickle by itself, and takes whatever comes back."""

    def __init__(self, memory: Any) -> None:
        self.memory = memory

    def __reduce_ex__(self, protocol: Any) -> Any:
        return Holder, (pickle.PickleBuffer(self.memory),)


def read_only(array: Any) -> Any:
    array.flags.writeable = False
    return array


def values(seed: int) -> dict[str, Any]:
    """Return one value of each sort."""
    line, table = np.arange(LARGE) + float(seed), np.arange(300 * 200.0).reshape(300, 200) + seed
    return {
        "no buffer": {"a": seed, "b": ["x" * seed, None]},
        "a small one": {"w": np.arange(3) + seed},
        "a large one": {"w": line, "step": 3},
        "the same one twice": [line, line],
        "several": [np.arange(LARGE + i, dtype=dtype) + seed for i, dtype in enumerate(["f8", "i4", "c16", "u1"])],
        "many": {i: np.full(APART + i, (i + seed) % 251, np.uint8) for i in range(40)},
        "nested": OrderedDict(a=(line, {"b": [table, {"c": np.ones(5)}]}), d=[[[line[2:]]]]),
        "Fortran order": (np.asfortranarray(table), table.T),
        "strided": [line[::2], table[:, ::3], line[::-1]],
        "read-only": [read_only(line.copy()), read_only(np.arange(4))],
        "without items": [np.zeros((0, 5)), np.zeros(0, "U3"), np.zeros((3, 0, 2), ">i2")],
        "other items": [np.full(LARGE, seed, ">i4"), np.full(LARGE, "a", "U2"), np.zeros(LARGE, [("a", "i2")])],
        "subclasses": [line.view(Named), np.ma.masked_array(line, line < 9), np.rec.array([(seed, 2.0)], "i4,f8")],
        "bytes": [bytes([seed]) * 100_000, bytearray(b"y" * 100_000), b"", bytearray()],
        "buffers": [Holder(bytes([seed]) * 50_000), Holder(bytearray(b"z" * 50_000)), Holder(bytearray(7))],
        "itself an object array": np.array([line, None, "x"], object),
    }


def assert_equal(got: Any, expected: Any) -> None:
    """Compare what a pickle keeps: types, items, order in memory, and which memory can be written."""
    assert type(got) is type(expected)
    if isinstance(expected, np.ma.MaskedArray):
        assert_equal(got.data, expected.data)
        assert_equal(got.mask, expected.mask)
    elif isinstance(expected, np.ndarray):
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
        assert got.flags.writeable == expected.flags.writeable
        assert (got.flags.c_contiguous, got.flags.f_contiguous) == (
            expected.flags.c_contiguous,
            expected.flags.f_contiguous,
        )
        assert got.flags.aligned
        for one, other in zip(got.flat, expected.flat, strict=True) if got.dtype == object else ():
            assert_equal(one, other)
        assert got.dtype == object or got.tobytes() == expected.tobytes()
    elif isinstance(expected, Holder):
        assert memoryview(got.memory).readonly == memoryview(expected.memory).readonly
        assert bytes(got.memory) == bytes(expected.memory)
    elif isinstance(expected, dict):
        assert list(got) == list(expected)
        for key, value in expected.items():
            assert_equal(got[key], value)
    elif isinstance(expected, list | tuple):
        assert len(got) == len(expected)
        for one, other in zip(got, expected, strict=True):
            assert_equal(one, other)
    else:
        assert got == expected


def copy(value: Any) -> Any:
    """Return what plain pickle makes of a value: the oracle."""
    return pickle.loads(pickle.dumps(value, protocol=5))


SORTS = list(values(0))


@pytest.mark.parametrize(("kind", "p"), crossed(KINDS, [1, 2, 3, 5]))
def test_every_call_returns_what_a_pickle_would(jobs: Jobs, kind: str, p: int) -> None:
    given = [values(rank) for rank in range(p)]
    copies = [copy(value) for value in given]
    root = p - 1

    def work(c: Communicator) -> None:
        for sort in SORTS:
            mine, all_ = given[c.rank][sort], [one[sort] for one in copies]
            theirs = [rank for rank in range(p) if rank != c.rank]
            got = c.bcast(mine if c.rank == root else None, root)
            assert got is mine if c.rank == root else assert_equal(got, all_[root]) is None
            everything = [c.allgather(mine), c.alltoall([mine] * p)]
            gathered = c.gather(mine, root)
            if c.rank == root:
                everything.append(gathered)
            for result in everything:
                assert result[c.rank] is mine
                for rank in theirs:
                    assert_equal(result[rank], all_[rank])
            part = c.scatter([one[sort] for one in given] if c.rank == root else None, root)
            assert part is mine if c.rank == root else assert_equal(part, all_[c.rank]) is None
            got = c.shift(mine, 1)
            assert got is mine if p == 1 else assert_equal(got, all_[c.rank - 1]) is None
            assert_equal(c.sendrecv(mine, (c.rank + 1) % p, (c.rank - 1) % p), all_[c.rank - 1])

    jobs(kind, p).ask(work)


@pytest.mark.parametrize("p", [2, 3, 5, 8])
def test_every_algorithm_broadcasts_the_buffers_of_an_object(jobs: Jobs, p: int) -> None:
    value = values(1)["nested"]
    expected = copy(value)

    def work(c: Communicator) -> None:
        for option in c.explain("bcast", value).options:
            for n in (None, 1, 7) if find("bcast", option.algorithm).blocks else (None,):
                mine = value if c.rank == p - 1 else None
                got = c.bcast(mine, p - 1, algorithm=option.algorithm, nblocks=n)
                assert_equal(got, expected)

    jobs("threads", p).ask(work)


@pytest.mark.parametrize("kind", KINDS)
def test_what_arrives_can_be_written_and_belongs_to_its_rank(jobs: Jobs, kind: str) -> None:
    given = [{"large": np.full(LARGE, rank), "small": np.full(3, rank)} for rank in range(3)]
    calls: list[Callable[[Communicator], list[Any]]] = [
        lambda c: [c.bcast(given[1] if c.rank == 1 else None, 1)],
        lambda c: c.allgather(given[c.rank]),
        lambda c: c.alltoall([given[c.rank]] * 3),
        lambda c: [c.scatter(given if c.rank == 1 else None, 1)],
        lambda c: [c.sendrecv(given[c.rank], (c.rank + 1) % 3, (c.rank - 1) % 3)],
    ]

    def work(c: Communicator) -> None:
        for call in calls:
            for got in call(c):
                if not any(got is mine for mine in given):
                    got["large"][:] = got["small"][:] = -1
            c.barrier()

    jobs(kind, 3).ask(work)
    for rank, value in enumerate(given):
        assert all(set(array.tolist()) == {rank} for array in value.values())


def test_an_object_with_more_buffers_than_a_message_has_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "MOST_APART", 7)
    job = Job("shm", 3)
    value = values(0)["many"]

    def work(c: Communicator) -> None:
        for got in c.allgather(value):
            assert_equal(got, value)

    job.ask(work)
    job.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_broadcast_makes_no_copy_at_the_root_and_one_at_each_other_rank(jobs: Jobs, kind: str) -> None:
    """The ranks share this process, whose memory is measured."""
    array = np.ones(30_000_000, np.uint8)
    value, p = {"w": array, "step": 3}, 3

    def work(c: Communicator) -> None:
        assert c.bcast(value if c.rank == 0 else None)["w"].size == array.size

    jobs(kind, p).ask(work)
    tracemalloc.start()
    try:
        jobs(kind, p).ask(work, timeout=patience(120))
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (p - 1) * array.nbytes <= most < (p - 1 + 0.7) * array.nbytes


@pytest.mark.parametrize("kind", KINDS)
def test_a_value_that_is_passed_on_is_unpickled_by_its_receiver_alone(
    jobs: Jobs, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    p, seen = 8, list[int]()
    monkeypatch.setattr(Once, "made", seen)

    def work(c: Communicator) -> None:
        c.scatter([Once(rank) for rank in range(p)] if c.rank == 0 else None)

    jobs(kind, p).ask(work)
    assert sorted(seen) == list(range(1, p))


class Once:
    """An object that notes when it is unpickled."""

    made: ClassVar[list[int]] = []

    def __init__(self, number: int) -> None:
        self.number = number

    def __setstate__(self, state: dict[str, int]) -> None:
        self.made.append(state["number"])
        self.__dict__ |= state
