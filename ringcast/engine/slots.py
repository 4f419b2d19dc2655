"""Slots: the memory of a schedule's pieces. The executor uses them only by the interface `Memory`.

`ArraySlots` are pieces of one array, sent and stored without a copy; `ObjectSlots` are Python values, or anything else
that can be encoded as bytes.
"""

from __future__ import annotations

import bisect
import copy
import struct
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, chain, pairwise
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ringcast.engine.objects import Codec, new_frame
from ringcast.ops import Array, Op
from ringcast.protocol.operations import SEGMENT, Sink, put_into_views
from ringcast.schedules.schedule import COMBINE_LEFT, STORE, Accept, Combine, Copy, Local, Merge, Schedule, Slots, Step

Runs: TypeAlias = "list[tuple[int, int]]"

TINY = 16 << 10  # bytes: pieces smaller than this on average are joined, as a frame costs more than two copies


class ReceiveBuffer(Sink, Protocol):
    """A sink whose content takes effect when the round is over."""

    def finish(self) -> None: ...


class Memory(Protocol):
    """The slots of one rank in one operation."""

    def pack(self, slots: Slots) -> tuple[list[memoryview], bool]:
        """Return the bytes of these slots as frames, and whether several slots were joined into one frame."""

    def receive_buffer(self, step: Step) -> ReceiveBuffer:
        """Return the destination of the message that `step` receives."""

    def apply(self, local: Local) -> None:
        """Do a local step."""


class Layout(NamedTuple):
    """The slots of a schedule in a buffer of some size; all calls of the same shape share it."""

    bounds: NDArray[np.intp]  # where each slot of the user's buffer begins, in items, and where the last one ends
    limits: list[int]  # the same
    scratch: list[int]  # items of each scratch slot
    # By the identity of several slots, which the entry keeps: the runs of items that they are, None with scratch slots.
    known: dict[int, tuple[Slots, Runs | None]]

    def runs(self, slots: Slots) -> Runs | None:
        """Return the first and last item of each run of adjacent slots of the user's buffer; None of other slots."""
        known = self.known.get(id(slots))
        if known is not None:
            return known[1]
        found = None if self._names_scratch(slots) else self._runs(slots)
        if len(self.known) < RUNS_KEPT and len(slots) <= SLOTS_KEPT:
            self.known[id(slots)] = slots, found
        return found

    def _names_scratch(self, slots: Slots) -> bool:
        users = len(self.limits) - 1
        if not len(slots):
            return False
        if isinstance(slots, range):
            return max(slots[0], slots[-1]) >= users
        return int(max(slots) if isinstance(slots, tuple) else slots.max()) >= users

    def _runs(self, slots: Slots) -> Runs:
        if isinstance(slots, range) and slots and slots.step == 1:
            return [(self.limits[slots[0]], self.limits[slots[-1] + 1])]
        numbers = np.asarray(slots, dtype=np.intp)
        if not len(numbers):
            return []
        starts, ends = self.bounds[numbers], self.bounds[numbers + 1]
        breaks = np.flatnonzero(ends[:-1] != starts[1:])
        firsts = starts[np.append(0, breaks + 1)].tolist()
        lasts = ends[np.append(breaks, len(numbers) - 1)].tolist()
        return list(zip(firsts, lasts, strict=True))


# By the identity of the schedule, which would take long to compare; an entry keeps it, so that its identity is its own.
_layouts: dict[tuple[int, tuple[int, ...]], tuple[Schedule, Layout]] = {}
LAYOUTS_KEPT = 256
RUNS_KEPT = 256  # sets of slots of a layout whose runs are kept …
SLOTS_KEPT = 64  # … and of how many slots they are at most


def layout(schedule: Schedule, counts: tuple[int, ...]) -> Layout:
    """Return where the slots of a schedule lie if its parts have so many items."""
    known = _layouts.get((id(schedule), counts))
    if known is not None:
        return known[1]
    where = bounds(schedule, counts)
    limits: list[int] = where.tolist()
    found = Layout(where, limits, [limits[slot + 1] - limits[slot] for slot in schedule.scratch], {})
    if len(_layouts) >= LAYOUTS_KEPT:
        _layouts.clear()
    _layouts[id(schedule), counts] = schedule, found
    return found


def bounds(schedule: Schedule, counts: Sequence[int]) -> NDArray[np.intp]:
    """Return where each slot of the user's buffer begins, in items, and where the last one ends.

    `counts[j]` items of part j are cut into `schedule.parts[j]` blocks as evenly as whole items allow: block b is
    [count * b // n, count * (b + 1) // n). If `schedule.full` is a number, all blocks but the last have so many items.
    """
    if max(schedule.parts) == min(schedule.parts) == 1:  # most common, and worth a short cut
        whole = np.fromiter(accumulate(counts, initial=0), np.intp, len(counts) + 1)
        whole.flags.writeable = False
        return whole
    parts, sizes, full = np.array(schedule.parts, np.intp), np.array(counts, np.intp), schedule.full
    first = np.repeat(np.cumsum(sizes) - sizes, parts)
    block = np.arange(len(first)) - np.repeat(np.cumsum(parts) - parts, parts)
    count = np.repeat(sizes, parts)
    starts = first + (count * block // np.repeat(parts, parts) if full is None else np.minimum(count, block * full))
    bounds = np.append(starts, sizes.sum())
    bounds.flags.writeable = False  # it is shared
    return bounds


class ArraySlots:
    """Pieces of a one-dimensional contiguous array, and scratch pieces of the same dtype.

    With `shape`, every slot is a whole value of that shape, as an operator sees it that is not elementwise.
    """

    def __init__(
        self,
        data: Array,
        schedule: Schedule,
        counts: Sequence[int],
        op: Op | None = None,
        shape: tuple[int, ...] | None = None,
    ) -> None:
        self.data, self.op, self._shape = data, op, shape
        self.layout = layout(schedule, tuple(counts))
        self._limits = self.layout.limits
        self._users = len(self._limits) - 1
        self._itemsize = data.itemsize
        self._bytes: memoryview | None = None  # of the data, when they are first needed
        self._room: Array | None = None
        self.scratch = [np.empty(items, data.dtype) for items in self.layout.scratch]

    def on(self, data: Array, *scratch: Array) -> ArraySlots:
        """Return the same slots in other memory."""
        other = copy.copy(self)
        other.data, other.scratch, other._bytes, other._room = data, [*scratch], None, None
        return other

    @property
    def shaped(self) -> bool:
        """Whether an operator sees whole values, of their shape."""
        return self._shape is not None

    def slot(self, slot: int) -> Array:
        """Return the value of one slot (a view)."""
        items = self._items(slot)
        return items if self._shape is None else items.reshape(self._shape)

    def _items(self, slot: int) -> Array:
        if slot < self._users:
            return self.data[self._limits[slot] : self._limits[slot + 1]]
        return self.scratch[slot - self._users]

    def pack(self, slots: Slots) -> tuple[list[memoryview], bool]:
        frames = self._views(slots)
        if len(frames) < 2:
            return frames, False
        if sum(map(len, frames)) >= TINY * len(frames):
            return frames, False
        return [memoryview(b"".join(frames))], True

    def receive_buffer(self, step: Step) -> ReceiveBuffer:
        if step.accept is STORE:
            return Store(self._views(step.recv))
        assert self.op is not None
        # Items that are longer than a segment come in pieces, so they are combined when all of them are there.
        if self.op.elementwise and isinstance(step.accept, Accept) and self._itemsize <= SEGMENT:
            pieces = self._pieces(step.recv)
            return _Stream(self.op, pieces, self._itemsize, self._room_for_items, step.accept is COMBINE_LEFT)
        return _Collect(self.op, [self.slot(int(s)) for s in step.recv], step.accepts())

    def apply(self, local: Local) -> None:
        if isinstance(local, Copy):
            self._items(local.dst)[...] = self._items(local.src)
        elif isinstance(local, Merge):
            (run,) = self._pieces(local.slots)
            run.sort(kind="stable")  # takes linear time on a few sorted runs
        else:
            assert self.op is not None
            self.op.combine(self.slot(local.left), self.slot(local.right), self.slot(local.dst))

    def _views(self, slots: Slots) -> list[memoryview]:
        """Return the memory of `slots` in order, adjacent pieces as one."""
        if len(slots) == 1:  # most common, and worth a short cut
            slot = int(slots[0])
            if slot >= self._users:
                return [self.scratch[slot - self._users].view(np.uint8).data]
            size, data = self._itemsize, self._bytes or self._view_bytes()
            return [data[self._limits[slot] * size : self._limits[slot + 1] * size]]
        runs = self.layout.runs(slots)
        if runs is None:
            return [self._items(int(slot)).view(np.uint8).data for slot in slots]
        size, data = self._itemsize, self._bytes or self._view_bytes()
        return [data[start * size : end * size] for start, end in runs]

    def _view_bytes(self) -> memoryview:
        """Return the data as bytes, kept for the next time."""
        self._bytes = self.data.view(np.uint8).data
        return self._bytes

    def _pieces(self, slots: Slots) -> list[Array]:
        """Return the same as items."""
        if len(slots) == 1:
            return [self._items(int(slots[0]))]
        runs = self.layout.runs(slots)
        if runs is None:
            return [self._items(int(slot)) for slot in slots]
        return [self.data[start:end] for start, end in runs]

    def _room_for_items(self) -> Array:
        """Return memory for arrivals that are combined as they come; one message at a time uses it."""
        if self._room is None:
            self._room = np.empty(min(len(self.data), SEGMENT // self._itemsize), self.data.dtype)
        return self._room


class Store:
    """Stores bytes directly in their place."""

    def __init__(self, views: list[memoryview]) -> None:
        self._views = views
        self._starts = [0] if len(views) == 1 else [0, *accumulate(map(len, views))]
        self.total: int | None = len(views[0]) if len(views) == 1 else self._starts[-1]

    def announce(self, source: int, tag: int, sizes: Sequence[int]) -> None:
        """Nothing to learn: the total is known."""

    def view(self, offset: int, length: int) -> memoryview:  # noqa: ARG002 (a piece may hold more than that)
        if len(self._views) == 1:
            return self._views[0][offset:] if offset else self._views[0]
        i = min(bisect.bisect_right(self._starts, offset), len(self._views)) - 1
        return self._views[i][offset - self._starts[i] :]

    def placed(self, offset: int, length: int) -> None:
        """Nothing to do: the bytes are where they belong."""

    def put(self, offset: int, data: memoryview) -> None:
        if len(self._views) == 1:  # most common, and worth a short cut
            self._views[0][offset : offset + len(data)] = data
        else:
            put_into_views(self, offset, data)

    def finish(self) -> None:
        """Nothing to do."""


class _Stream:
    """Combines items as they arrive, so that one segment of memory is enough: `room` returns it, always the same."""

    def __init__(self, op: Op, pieces: list[Array], itemsize: int, room: Callable[[], Array], left: bool) -> None:
        self._op, self._pieces, self._itemsize, self._room, self._left = op, pieces, itemsize, room, left
        self._starts = [0, len(pieces[0])] if len(pieces) == 1 else [0, *accumulate(map(len, pieces))]
        self.total: int | None = self._starts[-1] * itemsize

    def announce(self, source: int, tag: int, sizes: Sequence[int]) -> None:
        """Nothing to learn: the total is known."""

    def view(self, offset: int, length: int) -> memoryview:  # noqa: ARG002 (every segment goes to the same room)
        return self._room().view(np.uint8).data[:length]

    def put(self, offset: int, data: memoryview) -> None:
        """Combine a whole message where it is; a function of the user gets memory that can be written."""
        if len(self._pieces) == 1 and len(data) == self.total and data and isinstance(self._op.fn, np.ufunc):
            (piece,) = self._pieces
            self._combine(np.frombuffer(data, piece.dtype), piece)
        else:
            put_into_views(self, offset, data)

    def placed(self, offset: int, length: int) -> None:
        first, items, room = offset // self._itemsize, length // self._itemsize, self._room()
        taken, i = 0, bisect.bisect_right(self._starts, first) - 1
        while taken < items:
            start = first + taken - self._starts[i]
            piece = self._pieces[i][start : start + items - taken]
            self._combine(room[taken : taken + len(piece)], piece)
            taken += len(piece)
            i += 1

    def _combine(self, arrived: Array, piece: Array) -> None:
        left, right = (arrived, piece) if self._left else (piece, arrived)
        self._op.combine(left, right, piece)

    def finish(self) -> None:
        """Nothing to do."""


class _Collect:
    """Combines or stores whole pieces when all of them have arrived."""

    def __init__(self, op: Op, pieces: list[Array], accepts: Sequence[Accept]) -> None:
        self._op, self._pieces, self._accepts = op, pieces, accepts
        self._room = np.empty(sum(piece.size for piece in pieces), pieces[0].dtype)
        self._memory = self._room.view(np.uint8).data
        self.total: int | None = len(self._memory)

    def announce(self, source: int, tag: int, sizes: Sequence[int]) -> None:
        """Nothing to learn: the total is known."""

    def view(self, offset: int, length: int) -> memoryview:
        return self._memory[offset : offset + length]

    def placed(self, offset: int, length: int) -> None:
        """Nothing to do yet."""

    def put(self, offset: int, data: memoryview) -> None:
        put_into_views(self, offset, data)

    def finish(self) -> None:
        start = 0
        for piece, accept in zip(self._pieces, self._accepts, strict=True):
            arrived = self._room[start : start + piece.size].reshape(piece.shape)
            start += piece.size
            if accept is STORE:
                piece[...] = arrived
            else:
                left, right = (arrived, piece) if accept is COMBINE_LEFT else (piece, arrived)
                self._op.combine(left, right, piece)


class NoSlots:
    """The slots of a stage that moves nothing, as a barrier does: its messages are empty."""

    total: int | None = 0

    def pack(self, slots: Slots) -> tuple[list[memoryview], bool]:  # noqa: ARG002 (all are empty)
        return [], False

    def receive_buffer(self, step: Step) -> ReceiveBuffer:  # noqa: ARG002 (as above)
        return self

    def apply(self, local: Local) -> None:
        """Nothing to do."""

    def announce(self, source: int, tag: int, sizes: Sequence[int]) -> None:
        """Nothing to learn."""

    def view(self, offset: int, length: int) -> memoryview:  # noqa: ARG002 (nothing comes)
        return memoryview(bytearray())

    def placed(self, offset: int, length: int) -> None:
        """Nothing to do."""

    def put(self, offset: int, data: memoryview) -> None:
        put_into_views(self, offset, data)

    def finish(self) -> None:
        """Nothing to do."""


class ObjectSlots:
    """Python values. A message has the frames of each, and their numbers behind them if a value has several frames.

    A value that comes to be stored is passed on as it has come, and decoded when the program gets it.
    """

    def __init__(
        self,
        values: list[Any],
        schedule: Schedule,
        codec: Codec,
        op: Op | None = None,
    ) -> None:
        self._values = [*values, *(None for _ in schedule.scratch)]
        self._frames: dict[int, list[memoryview]] = {}  # of values that were sent, or have come; not with an `op`
        self._op = op
        self._encode, self._decode = codec

    def value(self, slot: int) -> Any:
        """Return the value of one slot."""
        value = self._values[slot]
        if value is _ENCODED:
            value = self._values[slot] = self._decode(self._frames.pop(slot))
        return value

    def values(self, slots: Iterable[int]) -> list[Any]:
        """Return the values of several slots."""
        return [self.value(slot) for slot in slots]

    def pack(self, slots: Slots) -> tuple[list[memoryview], bool]:
        if len(slots) == 1:  # most common, and worth a short cut
            each = [self._encoded(int(slots[0]))]
            if len(each[0]) == 1:
                return each[0], False
        else:
            each = [self._encoded(int(slot)) for slot in slots]
        frames = [*chain.from_iterable(each)]
        if len(frames) > len(each):
            frames.append(memoryview(struct.pack(f"<{len(each)}I", *map(len, each))))
        return frames, False

    def _encoded(self, slot: int) -> list[memoryview]:
        if self._op is not None:  # it may change values in place
            return self._encode(self._values[slot])
        frames = self._frames.get(slot)
        if frames is None:
            frames = self._frames[slot] = self._encode(self._values[slot])
        return frames

    def receive_buffer(self, step: Step) -> ReceiveBuffer:
        return _Values(self, [int(slot) for slot in step.recv], step.accepts())

    def apply(self, local: Local) -> None:
        if isinstance(local, Combine):
            self._values[local.dst] = self.combine(self._values[local.left], self._values[local.right])
        elif isinstance(local, Copy):
            self._values[local.dst] = self._values[local.src]
        else:
            raise TypeError(f"{local}: objects are not merged")

    def combine(self, left: Any, right: Any) -> Any:
        assert self._op is not None
        return self._op.combine_objects(left, right)

    def accept(self, slot: int, frames: list[memoryview], accept: Accept) -> None:
        """Take an arrived value."""
        if self._op is None:
            self._values[slot], self._frames[slot] = _ENCODED, frames
        elif accept is STORE:
            self._values[slot] = self._decode(frames)
        elif accept is COMBINE_LEFT:
            self._values[slot] = self.combine(self._decode(frames), self._values[slot])
        else:
            self._values[slot] = self.combine(self._values[slot], self._decode(frames))


_ENCODED = object()  # stands for a value that has come and is not decoded yet


class _Values:
    """Collects the frames of a message: the frames of its values."""

    def __init__(self, memory: ObjectSlots, slots: list[int], accepts: Sequence[Accept]) -> None:
        self._memory, self._slots, self._accepts = memory, slots, accepts
        self.total: int | None = None
        self._frames: list[memoryview] = []
        self._starts: list[int] = []

    def announce(self, source: int, tag: int, sizes: Sequence[int]) -> None:  # noqa: ARG002 (known from the schedule)
        if len(sizes) != len(self._slots) and (len(sizes) < len(self._slots) + 2 or sizes[-1] != 4 * len(self._slots)):
            raise ValueError(f"a message of {len(sizes)} values where {len(self._slots)} are expected")
        self.total = sum(sizes)
        self._frames = [new_frame(size) for size in sizes]
        self._starts = list(accumulate(sizes, initial=0))

    def view(self, offset: int, length: int) -> memoryview:  # noqa: ARG002 (a frame may be longer)
        i = min(bisect.bisect_right(self._starts, offset), len(self._frames)) - 1
        return self._frames[i][offset - self._starts[i] :]

    def placed(self, offset: int, length: int) -> None:
        """Nothing to do: values are decoded when they are complete."""

    def put(self, offset: int, data: memoryview) -> None:
        put_into_views(self, offset, data)

    def finish(self) -> None:
        frames, slots = self._frames, self._slots
        if len(frames) == len(slots):
            for slot, frame, accept in zip(slots, frames, self._accepts, strict=True):
                self._memory.accept(slot, [frame], accept)
            return
        counts = struct.unpack(f"<{len(slots)}I", frames.pop())
        if 0 in counts or sum(counts) != len(frames):
            raise ValueError(f"a message of {len(frames)} frames where its values have {counts}")
        starts = accumulate(counts, initial=0)
        for slot, (start, end), accept in zip(slots, pairwise(starts), self._accepts, strict=True):
            self._memory.accept(slot, frames[start:end], accept)
