"""Python objects in collectives: exact, whole, with the arrays in them beside the pickle."""

from __future__ import annotations

import dataclasses
import gc
import operator
import pickle
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringcast import LAND, LOR, MAX, MIN, PROD, SUM, Communicator
from ringcast.collectives.self_describing import SelfDescribing
from ringcast.engine.datatypes import describe_dtype, parse_dtype
from ringcast.engine.objects import (
    APART,
    apart,
    copied,
    decode,
    encode,
    in_one,
    pack_record,
    unpack_record,
)
from support.cases import crossed
from support.jobs import KINDS, Jobs

Array = np.ndarray[Any, Any]


@pytest.fixture(scope="module")
def jobs() -> Iterator[Jobs]:
    made = Jobs()
    yield made
    made.close()


@dataclasses.dataclass
class Point:
    name: str
    where: tuple[float, ...]


def values(rank: int) -> list[Any]:
    return [
        {"rank": rank, "list": [rank] * rank, None: {1.5: "x"}},
        None,
        "ä€" * (rank * 5000),
        b"\0\xff" * (rank * 20_000),
        10**50 + rank,
        rank / 3,
        rank % 2 == 0,
        [],
        (),
        {rank, "a"},
        Point("p", (1.0, rank)),
        Fraction(rank, 7),
        [None] * (rank * 1000),
        int,
        float("inf"),
    ]


@pytest.mark.parametrize(("kind", "p"), crossed(KINDS, [1, 2, 3, 5, 8]))
def test_objects_of_all_sorts_and_sizes(jobs: Jobs, kind: str, p: int) -> None:
    expected = [values(rank) for rank in range(p)]
    root = p // 2

    def work(c: Communicator) -> None:
        for i, mine in enumerate(values(c.rank)):
            every = [value[i] for value in expected]
            assert c.allgather(mine) == every
            assert c.gather(mine, root) == (every if c.rank == root else None)
            assert c.bcast(mine, root) == every[root]
            got = c.scatter(every if c.rank == root else None, root)
            assert got == mine
            assert type(got) is type(mine)
            assert c.sendrecv(mine, (c.rank + 1) % p, (c.rank - 1) % p) == every[c.rank - 1]
        assert c.allgatherv(list(range(c.rank))) == [n for r in range(p) for n in range(r)]
        assert c.allgatherv(("x",) * (c.rank % 2), [r % 2 for r in range(p)]) == ["x"] * (p // 2)

    jobs(kind, p).ask(work)


@pytest.mark.parametrize(("kind", "p"), crossed(KINDS, [1, 2, 3, 5, 8]))
def test_reductions_of_objects(jobs: Jobs, kind: str, p: int) -> None:
    def work(c: Communicator) -> None:
        total = c.allreduce(10**40 + c.rank)
        assert (type(total), total) == (int, p * 10**40 + p * (p - 1) // 2)
        assert c.allreduce(Fraction(1, c.rank + 1), PROD).numerator == 1
        assert c.allreduce(c.rank, MIN) == 0
        assert c.allreduce(c.rank, MAX) == p - 1
        assert c.allreduce([c.rank], SUM) == list(range(p))
        if p > 1:
            assert c.allreduce([c.rank], LAND) is True
            assert c.allreduce(c.rank, LAND) is False
            assert c.allreduce(0, LOR) is False
        for root in range(p):
            assert c.reduce((c.rank,), SUM, root) == (tuple(range(p)) if c.rank == root else None)
            word = c.reduce("abcdefgh"[c.rank] * 3000, operator.add, root)
            assert word == ("".join(letter * 3000 for letter in "abcdefgh"[:p]) if c.rank == root else None)
        merged = c.allreduce({c.rank: "x", "all": c.rank}, lambda a, b: a | b)
        assert merged == {**dict.fromkeys(range(p), "x"), "all": p - 1}
        assert c.reduce_scatter([10 * c.rank + r for r in range(p)]) == sum(10 * r + c.rank for r in range(p))
        assert c.reduce_scatter(["ab"[c.rank % 2]] * p, operator.add) == ("ab" * p)[:p]

    jobs(kind, p).ask(work)


@settings(max_examples=30, database=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text() | st.binary() | st.floats(allow_nan=False),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=8,
    )
)
def test_any_object_is_encoded_and_decoded(value: Any) -> None:
    frames = encode(value)
    assert decode(frames) == decode(apart(run(frames))) == value


# Arrays inside objects.


@pytest.mark.parametrize("dtype", ["f8", "i1", ">i4", "U3", [("a", "i2"), ("b", "f4")]])
def test_large_arrays_inside_objects_are_not_in_the_pickle(dtype: Any) -> None:
    array = np.zeros(50_000, dtype)
    array.view(np.uint8)[::97] = 1
    value = {"first": array, "second": [array[:1000], array[5:], np.asfortranarray(np.ones((200, 300)))]}
    frames = encode(value)
    large = [one for one in (array, array[:1000], array[5:], value["second"][2]) if one.nbytes >= APART]
    assert [len(frame) for frame in frames[1:]] == [one.nbytes for one in large]
    assert all(np.shares_memory(np.frombuffer(f, np.uint8), one) for f, one in zip(frames[1:], large, strict=True))
    assert len(frames[0]) < 1500 + APART
    for codec in (decode, lambda frames: decode(copied(frames)), lambda frames: decode(apart(run(frames)))):
        back = codec(frames)
        assert np.array_equal(back["first"], array)
        assert back["first"].dtype == array.dtype
        assert back["first"].flags.writeable
        assert back["second"][2].flags.f_contiguous
    assert not np.shares_memory(decode(copied(frames))["first"], array)


def run(frames: list[memoryview]) -> memoryview:
    """Return an encoded value as one run of bytes, in memory that can be written."""
    return memoryview(bytearray(in_one(frames)))


@pytest.mark.parametrize("most", [0, 1, 2, 3, 4])
def test_an_object_has_no_more_buffers_beside_its_pickle_than_are_asked_for(most: int) -> None:
    arrays = [np.full(APART, i, np.uint8) for i in range(3)]
    frames = encode(arrays, most)
    assert len(frames) == 1 + min(most, 3)
    assert np.array_equal(decode(frames), arrays)


def test_a_large_array_in_an_object_is_never_pickled_on_its_way(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[int] = []
    loads = pickle.loads

    def spy(data: Any, **how: Any) -> Any:
        lengths.append(len(data))
        return loads(data, **how)

    monkeypatch.setattr(pickle, "loads", spy)

    def work(c: Communicator) -> None:
        value = {"rank": c.rank, "array": np.full(100_000, c.rank)}
        for rank, got in enumerate(c.allgather(value)):
            assert got["array"].tolist() == [rank] * 100_000
        c.bcast(value if c.rank == 1 else None, 1)["array"][0] = 7
        assert c.sendrecv(value, (c.rank + 1) % 3, (c.rank - 1) % 3)["rank"] == (c.rank - 1) % 3
        total = c.allreduce([np.full(100_000, c.rank)], lambda a, b: [a[0] + b[0]])
        assert total[0].tolist() == [3] * 100_000

    jobs("threads", 3).ask(work)
    assert lengths
    assert max(lengths) < 1000


def test_arrays_inside_objects_are_aligned() -> None:
    for pad in range(20):
        frames = encode(["x" * pad, np.ones(3, "i1"), np.ones(5), np.ones(APART + 7), np.ones(APART + pad)])
        for back in (decode(frames), decode(apart(run(frames)))):
            assert all(array.flags.aligned for array in back[1:])


def test_results_are_copies_of_what_others_have(jobs: Jobs) -> None:
    values = [[np.arange(3)] for _ in range(3)]

    def work(c: Communicator) -> None:
        got = c.allgather(values[c.rank])
        for rank in {0, 1, 2} - {c.rank}:
            got[rank].append("mine")
            got[rank][0][:] = -1

    jobs("threads", 3).ask(work)
    assert all(len(value) == 1 and value[0].tolist() == [0, 1, 2] for value in values)


@pytest.mark.parametrize("kind", KINDS)
def test_arrays_of_objects_and_masked_arrays(jobs: Jobs, kind: str) -> None:
    def work(c: Communicator) -> None:
        things = np.array([c.rank, "x" * c.rank, None], object)
        for rank, got in enumerate(c.allgather(things)):
            assert got.dtype == object
            assert got.tolist() == [rank, "x" * rank, None]
        assert c.bcast(things, 1).tolist() == [1, "x", None]
        assert c.scatter(np.array(["a", None, 3], object) if c.rank == 0 else None) == ["a", None, 3][c.rank]
        numbers = np.array([c.rank, 10**30], object)
        assert c.allreduce(numbers).tolist() == [3, 3 * 10**30]
        assert c.allreduce(numbers, MAX).tolist() == [2, 10**30]
        masked = np.ma.masked_array([1, 2, 3], [c.rank == 0, False, True])
        total = c.allreduce(masked)
        assert total.mask.tolist() == [True, False, True]
        assert total[1] == 6
        assert c.allreduce(masked, MIN)[1] == 2
        got = c.bcast(masked, 0)
        assert got.mask.tolist() == [True, False, True]
        row = c.scatter(np.ma.masked_array(np.arange(6).reshape(3, 2), np.eye(3, 2)) if c.rank == 1 else None, 1)
        assert row.mask.tolist() == np.eye(3, 2, dtype=bool)[c.rank].tolist()

    jobs(kind, 3).ask(work)


# Texts that stand for dtypes, records, messages.


@pytest.mark.parametrize(
    "dtype",
    [
        "?",
        "i1",
        ">u2",
        "f2",
        "g",
        "D",
        "M8[ns]",
        "m8[25s]",
        "S5",
        "U3",
        "V6",
        [("a", "i2"), ("b", [("c", ">f8", (2, 3))])],
    ],
    ids=str,
)
def test_a_dtype_is_told_by_a_text(dtype: Any) -> None:
    for align in False, True:
        one = np.dtype(dtype, align=align)
        assert parse_dtype(describe_dtype(one)) == one


def test_ranks_that_are_threads_read_dtypes_at_the_same_time() -> None:
    """The collector runs within the parser, and lets another thread in there."""
    one = np.dtype([("a", "i2"), ("b", [("c", ">f8", (2, 3))])])
    text, before = describe_dtype(one), gc.get_threshold()

    def let_others_run(*_: object) -> None:
        time.sleep(1e-4)

    gc.callbacks.append(let_others_run)
    gc.set_threshold(30)
    try:
        with ThreadPoolExecutor(4) as threads:
            assert all(found == one for found in threads.map(parse_dtype, [text] * 4000))
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(let_others_run)


def test_a_record_is_told_as_it_is() -> None:
    record = {"a": [1, 2], "b": b"\0", "c": "ä", "d": None, "e": 2**40}
    assert unpack_record(memoryview(pack_record(record))) == record


@pytest.mark.parametrize(
    "value", [None, "x", np.arange(5), np.float32(3), np.zeros((0, 2)), np.arange(6).reshape(2, 3).T]
)
@pytest.mark.parametrize("step", [1, 3, 1000])
def test_a_message_comes_together_from_pieces(value: Any, step: int) -> None:
    frames = SelfDescribing.frames(value, lambda: (encode, decode))
    message, data = SelfDescribing(), b"".join(frames)
    message.announce(2, 5, [len(frame) for frame in frames])
    offset = 0
    while offset < len(data):
        view = message.view(offset, step)
        n = min(step, len(view), len(data) - offset)
        view[:n] = data[offset : offset + n]
        message.placed(offset, n)
        offset += n
    got = message.value(lambda: (encode, decode))
    assert type(got) is type(value)
    assert np.array_equal(got, value)
    if isinstance(value, np.ndarray):
        assert (got.dtype, got.shape) == (value.dtype, value.shape)
        assert got.flags.writeable
        assert got.flags.c_contiguous == value.flags.c_contiguous
