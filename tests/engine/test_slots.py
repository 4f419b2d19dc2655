"""Slots: where the pieces of a buffer begin, what frames they make, and how arrivals get into them, cut anywhere."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringcast import SUM, Op
from ringcast.engine.objects import SNAPSHOT, decode, encode
from ringcast.engine.pieces import BufferSlots
from ringcast.engine.slots import TINY, ArraySlots, ObjectSlots, ReceiveBuffer, bounds
from ringcast.protocol.operations import SEGMENT
from ringcast.schedules.schedule import COMBINE_LEFT, COMBINE_RIGHT, STORE, Combine, Copy, Schedule, Step

CODEC = encode, decode

Array = np.ndarray[Any, Any]
quick = settings(max_examples=60, database=None)


@dataclass(frozen=True)
class Layout(Schedule):
    """A schedule without steps: only the numbering of slots counts here."""

    cut: tuple[int, ...] = (1,)
    extra: tuple[int, ...] = ()

    @property
    def parts(self) -> tuple[int, ...]:
        return self.cut

    @property
    def scratch(self) -> tuple[int, ...]:
        return self.extra

    def __len__(self) -> int:
        return 0

    def _step(self, i: int) -> Step:
        raise IndexError(i)


def layout(*cut: int, scratch: tuple[int, ...] = ()) -> Layout:
    return Layout(1, 0, cut, scratch)


def receive(buffer: ReceiveBuffer, data: bytes, cuts: Sequence[int]) -> None:
    """Put `data` into an inlet as the protocol does: in frames, each at most as long as what `view` offers."""
    offset = 0
    for end in [*sorted(cuts), len(data)]:
        while offset < end:
            view = buffer.view(offset, end - offset)
            n = min(len(view), end - offset)
            assert n > 0
            view[:n] = data[offset : offset + n]
            buffer.placed(offset, n)
            offset += n
    buffer.finish()


# bounds


@quick
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)), min_size=1, max_size=6))
def test_blocks_are_as_even_as_whole_items_allow(parts: list[tuple[int, int]]) -> None:
    parts = [(count if blocks else 0, blocks) for count, blocks in parts]  # a part without blocks is empty
    counts, cut = zip(*parts, strict=True)
    got = bounds(layout(*cut), counts).tolist()
    assert len(got) == sum(cut) + 1
    assert (got[0], got[-1]) == (0, sum(counts))
    start = slot = 0
    for count, blocks in parts:
        sizes = [got[slot + b + 1] - got[slot + b] for b in range(blocks)]
        assert sum(sizes) == count
        assert not sizes or max(sizes) - min(sizes) <= 1
        assert blocks == 0 or got[slot] == start
        start, slot = start + count, slot + blocks


def test_bounds_by_example() -> None:
    assert bounds(layout(3, 0, 1, 2), (7, 0, 4, 1)).tolist() == [0, 2, 4, 7, 11, 11, 12]
    assert bounds(layout(5), (2,)).tolist() == [0, 0, 0, 1, 1, 2]
    assert bounds(layout(2, 2), (0, 0)).tolist() == [0, 0, 0, 0, 0]


# Frames that go out


def frames(slots: ArraySlots, numbers: Any) -> list[bytes]:
    return [bytes(view) for view in slots._views(numbers)]


def test_adjacent_slots_are_one_frame() -> None:
    data = np.arange(20, dtype="u1")
    slots = ArraySlots(data, layout(10, scratch=(0, 3)), (20,))
    assert frames(slots, (2, 3, 4)) == [bytes(range(4, 10))]
    assert frames(slots, range(2, 5)) == [bytes(range(4, 10))]
    assert frames(slots, np.array([2, 3, 4])) == [bytes(range(4, 10))]
    assert frames(slots, (8, 9, 0, 1)) == [bytes(range(16, 20)), bytes(range(4))]
    assert frames(slots, (4, 3)) == [bytes([8, 9]), bytes([6, 7])]
    assert frames(slots, range(6, 0, -3)) == [bytes([12, 13]), bytes([6, 7])]
    assert frames(slots, ()) == []
    assert frames(slots, range(0)) == []
    slots.slot(11)[...] = 77
    assert frames(slots, (11,)) == [bytes([77, 77])]
    assert frames(slots, (0, 11, 1)) == [bytes([0, 1]), bytes([77, 77]), bytes([2, 3])]


@quick
@given(st.data(), st.lists(st.integers(0, 5), min_size=1, max_size=6), st.integers(1, 4))
def test_what_is_packed_arrives_in_its_place(data: st.DataObject, counts: list[int], n: int) -> None:
    plan = layout(*[n] * len(counts))
    order = data.draw(st.permutations(range(n * len(counts))))
    chosen = tuple(order[: data.draw(st.integers(0, len(order)))])
    source, target = np.arange(sum(counts), dtype="i4") + 1, np.zeros(sum(counts), "i4")
    there, here = ArraySlots(source, plan, counts), ArraySlots(target, plan, counts)
    packed, joined = there.pack(chosen)
    assert joined == (len(there._views(chosen)) > 1)
    bytes_ = b"".join(packed)
    buffer = here.receive_buffer(Step(recv_from=0, recv=chosen))
    assert buffer.total == len(bytes_)
    receive(buffer, bytes_, data.draw(st.lists(st.integers(0, len(bytes_)), max_size=4)))
    for slot in range(n * len(counts)):
        assert here.slot(slot).tolist() == (there.slot(slot).tolist() if slot in chosen else [0] * len(here.slot(slot)))


@pytest.mark.parametrize(
    ("piece", "pieces", "joined"),
    [
        (10, 1, False),
        (10, 5, True),
        (TINY - 1, 100, True),
        (TINY, 100, False),
        (1 << 20, 3, False),
    ],
)
def test_tiny_pieces_are_joined(piece: int, pieces: int, joined: bool) -> None:
    data = np.zeros(2 * piece * pieces, "u1")
    slots = ArraySlots(data, layout(2 * pieces), (len(data),))
    got, flag = slots.pack(range(0, 2 * pieces, 2))
    assert flag is joined
    assert len(got) == (1 if joined else pieces)
    assert sum(map(len, got)) == piece * pieces
    assert flag or all(np.shares_memory(np.frombuffer(view, np.uint8), data) for view in got)


# Arrivals that are combined


def orders(left: Array, right: Array) -> Array:
    """Not commutative: keeps the left operand's tens and the right one's ones."""
    return left // 10 * 10 + right % 10


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("accept", [COMBINE_LEFT, COMBINE_RIGHT])
@pytest.mark.parametrize("numbers", [(0, 1, 2), (2, 0), (1, 3), (3,)])
def test_arrivals_are_combined_on_the_side_that_is_asked_for(
    whole: bool, accept: Any, numbers: tuple[int, ...]
) -> None:
    op = Op(orders, elementwise=not whole)
    mine, theirs = np.arange(30, 50), np.arange(60, 80)[::-1].copy()
    plan = layout(3, 2)
    arrival = b"".join(ArraySlots(theirs, plan, (13, 7)).slot(s).tobytes() for s in numbers)
    for cuts in [], [8], [24, 32, 32], range(0, len(arrival), 8):
        work = mine.copy()
        slots = ArraySlots(work, plan, (13, 7), op)
        buffer = slots.receive_buffer(Step(recv_from=0, recv=numbers, accept=accept))
        receive(buffer, arrival, [cut for cut in cuts if cut <= len(arrival)])
        expected = mine.copy()
        for s in numbers:
            a, b = slots._limits[s], slots._limits[s + 1]
            operands = (theirs, mine) if accept is COMBINE_LEFT else (mine, theirs)
            expected[a:b] = orders(operands[0][a:b], operands[1][a:b])
        assert work.tolist() == expected.tolist()


@pytest.mark.parametrize("accept", [STORE, COMBINE_LEFT, COMBINE_RIGHT])
@pytest.mark.parametrize("fn", [np.subtract, orders])
@pytest.mark.parametrize("elementwise", [True, False])
@pytest.mark.parametrize("numbers", [(0,), (5,), (0, 1, 2), (2, 0), (3, 5), (4,)])
@pytest.mark.parametrize("misplaced", [0, 1])
def test_what_is_in_memory_already_has_the_effect_of_what_comes_in_frames(
    accept: Any, fn: Any, elementwise: bool, numbers: tuple[int, ...], misplaced: int
) -> None:
    plan, op = layout(3, 1, 1, scratch=(0,)), Op(fn, elementwise=elementwise)
    results = []
    for frames in True, False:
        slots = ArraySlots(np.arange(20), plan, (13, 7, 0), op)
        slots.slot(5)[:] = 7
        arrival = np.arange(50, 50 + sum(len(slots.slot(s)) for s in numbers)).tobytes()
        buffer = slots.receive_buffer(Step(recv_from=0, recv=numbers, accept=accept))
        if frames:
            receive(buffer, arrival, [])
        else:
            buffer.put(0, memoryview(bytes(misplaced) + arrival)[misplaced:])
            buffer.finish()
        results.append([slots.slot(s).tolist() for s in range(6)])
    assert results[0] == results[1]


@pytest.mark.parametrize("dtype", ["u1", "f8", "S1000", "S260000"])
@pytest.mark.parametrize("pieces", [1, 3])
def test_a_stream_longer_than_a_segment(dtype: str, pieces: int) -> None:
    one = np.dtype(dtype)
    items = max(700_000 // one.itemsize, 4)
    segment = SEGMENT // one.itemsize * one.itemsize
    mine, theirs = (np.arange(items * 1).astype(one) for _ in range(2))
    op = Op(lambda a, b: np.where(a == b, a, b), commutative=True, elementwise=True)
    slots = ArraySlots(mine, layout(pieces), (items,), op)
    buffer = slots.receive_buffer(Step(recv_from=0, recv=range(pieces), accept=COMBINE_LEFT))
    assert len(buffer.view(0, segment)) == segment
    receive(buffer, theirs.tobytes(), range(segment, theirs.nbytes, segment))
    assert np.array_equal(mine, theirs)


def test_items_longer_than_a_segment_are_combined_when_all_are_there() -> None:
    one = np.dtype(f"S{SEGMENT + 1}")
    mine, theirs = np.array([b"b", b"c"], one), np.array([b"c", b"a"], one)
    op = Op(lambda a, b: np.where(a > b, a, b), commutative=True, elementwise=True)
    buffer = ArraySlots(mine, layout(2), (2,), op).receive_buffer(Step(recv_from=0, recv=range(2), accept=COMBINE_LEFT))
    receive(buffer, theirs.tobytes(), range(SEGMENT, theirs.nbytes, SEGMENT))
    assert mine.tolist() == [b"c", b"c"]


def test_a_stream_sums_every_item_once() -> None:
    mine, theirs = np.arange(100_000), np.arange(100_000)[::-1].copy()
    slots = ArraySlots(mine, layout(7), (100_000,), SUM)
    buffer = slots.receive_buffer(Step(recv_from=0, recv=range(7), accept=COMBINE_RIGHT))
    receive(buffer, theirs.tobytes(), range(SEGMENT, theirs.nbytes, SEGMENT))
    assert (mine == 99_999).all()


def test_each_slot_of_a_message_can_be_accepted_in_its_own_way() -> None:
    data = np.array([1, 2, 3, 4])
    slots = ArraySlots(data, layout(4), (4,), Op(np.subtract, elementwise=True))
    step = Step(recv_from=0, recv=(3, 0, 1), accept=(COMBINE_LEFT, COMBINE_RIGHT, STORE))
    buffer = slots.receive_buffer(step)
    for end in 8, 16:
        buffer.view(end - 8, 8)[:] = np.array([10 * end]).tobytes()
        buffer.placed(end - 8, 8)
    assert data.tolist() == [1, 2, 3, 4], "nothing may change before all is there"
    receive(slots.receive_buffer(step), np.array([10, 20, 30]).tobytes(), [])
    assert data.tolist() == [1 - 20, 30, 3, 10 - 4]


def test_a_whole_value_has_the_shape_of_the_users_array() -> None:
    seen = []

    def function(a: Array, b: Array) -> Array:
        seen.append((a.shape, b.shape))
        return a @ b

    data = np.array([[1, 1], [0, 1]])
    slots = ArraySlots(data.reshape(-1), layout(1, scratch=(0,)), (4,), Op(function), (2, 2))
    slots.apply(Copy(1, 0))
    receive(
        slots.receive_buffer(Step(recv_from=0, recv=(0,), accept=COMBINE_LEFT)),
        np.array([[1, 0], [1, 1]]).tobytes(),
        [],
    )
    assert data.tolist() == [[1, 1], [1, 2]]
    slots.apply(Combine(1, 1, 0))
    assert slots.slot(1).tolist() == [[2, 3], [1, 2]]
    assert seen == [((2, 2), (2, 2))] * 2


# Objects


def test_objects_are_one_frame_each_and_are_accepted_in_order() -> None:
    there = ObjectSlots(["a" * 100, None, {"x": np.arange(3)}], layout(3), CODEC)
    packed, joined = there.pack((2, 0))
    assert (len(packed), joined) == (2, False)
    here = ObjectSlots(["A", "B", "C"], layout(3), CODEC)
    buffer = here.receive_buffer(Step(recv_from=0, recv=(1, 2)))
    buffer.announce(0, 0, [len(frame) for frame in packed])
    receive(buffer, b"".join(packed), [3, len(packed[0])])
    assert here.value(0) == "A"
    assert here.value(1)["x"].tolist() == [0, 1, 2]
    assert here.value(2) == "a" * 100


def test_objects_are_combined_on_the_side_that_is_asked_for() -> None:
    packed, _ = ObjectSlots(["x", "y", "z"], layout(3), SNAPSHOT).pack(range(3))
    op = Op(lambda a, b: a + b)
    here = ObjectSlots(["A", "B", "C"], layout(3, scratch=(0,)), SNAPSHOT, op)
    buffer = here.receive_buffer(Step(recv_from=0, recv=range(3), accept=(COMBINE_LEFT, COMBINE_RIGHT, STORE)))
    buffer.announce(0, 0, [len(frame) for frame in packed])
    receive(buffer, b"".join(packed), [])
    assert here.values(range(4)) == ["xA", "By", "z", None]
    here.apply(Copy(3, 0))
    here.apply(Combine(1, 3, 2))
    assert here.values(range(4)) == ["xA", "xAz", "z", "xA"]


def test_objects_of_several_frames_come_apart_again_in_any_groups() -> None:
    large = np.arange(5000)
    values = [1, [large, large + 1], "x", {"a": large + 2}]
    there = ObjectSlots(values, layout(4), CODEC)
    for size in range(1, 5):
        for slots in combinations(range(4), size):
            packed, _ = there.pack(slots)
            here = ObjectSlots([None] * 4, layout(4), CODEC)
            buffer = here.receive_buffer(Step(recv_from=0, recv=slots))
            buffer.announce(0, 0, [len(frame) for frame in packed])
            receive(buffer, b"".join(packed), [])
            onward, _ = here.pack(slots)
            assert b"".join(onward) == b"".join(packed)  # as it came, and without an own pickle
            for slot, got in zip(slots, here.values(slots), strict=True):
                assert pickle.dumps(got) == pickle.dumps(values[slot])


@pytest.mark.parametrize("sizes", [[], [5], [5, 5, 4], [5, 5, 12], [5, 5, 5, 5, 4], [8]])
def test_a_message_with_another_number_of_objects_is_refused(sizes: list[int]) -> None:
    buffer = ObjectSlots(["A", "B"], layout(2), CODEC).receive_buffer(Step(recv_from=0, recv=(0, 1)))
    with pytest.raises(ValueError, match=f"{len(sizes)} values where 2 are expected"):
        buffer.announce(0, 0, sizes)


@pytest.mark.parametrize("counts", [(1, 1), (2, 2), (0, 0), (0, 3), (3, 0), ((1 << 32) - 1, 4)])
def test_a_message_whose_frames_do_not_add_up_is_refused(counts: tuple[int, int]) -> None:
    buffer = ObjectSlots(["A", "B"], layout(2), CODEC).receive_buffer(Step(recv_from=0, recv=(0, 1)))
    buffer.announce(0, 0, [5, 5, 5, 8])
    with pytest.raises(ValueError, match="3 frames"):
        receive(buffer, bytes(15) + struct.pack("<2I", *counts), [])


# Blocks of several buffers


@quick
@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=6),
    st.integers(1, 8),
    st.data(),
    st.sampled_from([1, 1000]),
)
def test_blocks_of_several_buffers_are_those_of_one_line(
    sizes: list[int], nblocks: int, data: st.DataObject, times: int
) -> None:
    """The oracle are the blocks of one array; `times`: small frames are joined, large ones are not."""
    lengths = [size * times for size in sizes]
    line = np.arange(sum(lengths)).astype(np.uint8)
    ends = np.cumsum(lengths)[:-1]
    here = BufferSlots([part.data for part in np.split(line, ends)], layout(nblocks))
    room = [np.zeros(length, np.uint8) for length in lengths]
    there = BufferSlots([part.data for part in room], layout(nblocks))
    slots = tuple(sorted(data.draw(st.sets(st.integers(0, nblocks - 1), min_size=1))))
    expected = b"".join(ArraySlots(line, layout(nblocks), (len(line),)).pack(slots)[0])
    frames, joined = here.pack(slots)
    assert b"".join(frames) == expected
    assert not joined or len(frames) == 1
    receive(there.receive_buffer(Step(recv_from=0, recv=slots)), expected, [len(expected) // 2])
    filled = ArraySlots(np.concatenate(room), layout(nblocks), (len(line),)).pack(slots)[0]
    assert b"".join(filled) == expected
