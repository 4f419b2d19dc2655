"""Slots of stages that only move data: pieces of memory that lie anywhere, blocks of several buffers, and one frame."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

import numpy as np

from ringcast.engine.objects import new_frame
from ringcast.engine.slots import TINY, ReceiveBuffer, Store, layout
from ringcast.ops import Array
from ringcast.schedules.schedule import Local, Schedule, Slots, Step
from ringcast.transports.base import Frame


class PieceSlots:
    """Pieces of memory that lie anywhere; scratch pieces have memory of their own."""

    def __init__(self, pieces: Sequence[memoryview], schedule: Schedule) -> None:
        self._pieces = [*pieces, *(np.empty(len(pieces[slot]), np.uint8).data for slot in schedule.scratch)]

    def pack(self, slots: Slots) -> tuple[list[memoryview], bool]:
        return _packed(self._chosen(slots))

    def receive_buffer(self, step: Step) -> ReceiveBuffer:
        return Store(self._chosen(step.recv))

    def apply(self, local: Local) -> None:
        raise TypeError(f"{local}: pieces are only sent and received")

    def _chosen(self, slots: Slots) -> list[memoryview]:
        return [self._pieces[int(slot)] for slot in slots]


class BufferSlots:
    """Blocks of several buffers, as if these were one line of bytes; a block may lie in more than one of them."""

    def __init__(self, buffers: Sequence[memoryview], schedule: Schedule) -> None:
        self._buffers = buffers
        self._starts = [*accumulate(map(len, buffers), initial=0)]
        self._layout = layout(schedule, (self._starts[-1],))

    def pack(self, slots: Slots) -> tuple[list[memoryview], bool]:
        return _packed(self._views(slots))

    def receive_buffer(self, step: Step) -> ReceiveBuffer:
        return Store(self._views(step.recv))

    def apply(self, local: Local) -> None:
        raise TypeError(f"{local}: buffers are only sent and received")

    def _views(self, slots: Slots) -> list[memoryview]:
        """Return the memory of `slots` in order."""
        runs = self._layout.runs(slots)
        assert runs is not None, "a schedule that only moves data has no scratch slots"
        return [view for start, end in runs for view in self._between(start, end)]

    def _between(self, start: int, end: int) -> Iterator[memoryview]:
        """Yield the bytes [start, end) of the line, which may be none."""
        i = bisect_right(self._starts, start, hi=len(self._buffers)) - 1
        while True:
            first, buffer = self._starts[i], self._buffers[i]
            yield buffer[start - first : end - first]
            start, i = first + len(buffer), i + 1
            if start >= end:
                return


class FrameSlots:
    """The one slot of a broadcast of some bytes, whose number only the root knows."""

    def __init__(self, frame: Frame | None) -> None:
        self.frame = memoryview(frame or b"")  # of ranks other than the root, when it has come
        self.total: int | None = None

    def pack(self, slots: Slots) -> tuple[list[memoryview], bool]:  # noqa: ARG002 (there is one)
        return [self.frame], False

    def receive_buffer(self, step: Step) -> ReceiveBuffer:  # noqa: ARG002 (as above)
        return self

    def apply(self, local: Local) -> None:
        raise TypeError(f"{local}: a frame is only sent and received")

    def announce(self, source: int, tag: int, sizes: Sequence[int]) -> None:  # noqa: ARG002 (known from the schedule)
        if len(sizes) != 1:
            raise ValueError(f"a message of {len(sizes)} frames where one is expected")
        (self.total,) = sizes
        self.frame = new_frame(self.total)

    def view(self, offset: int, length: int) -> memoryview:  # noqa: ARG002 (it may hold more than that)
        return self.frame[offset:]

    def placed(self, offset: int, length: int) -> None:
        """Nothing to do: the bytes are where they belong."""

    def put(self, offset: int, data: memoryview) -> None:
        self.frame[offset : offset + len(data)] = data

    def finish(self) -> None:
        """Nothing to do."""


def _packed(frames: list[memoryview]) -> tuple[list[memoryview], bool]:
    """Return the frames of a message, joined if they are small, and whether they are."""
    if len(frames) > 1 and sum(map(len, frames)) < TINY * len(frames):
        return [memoryview(b"".join(frames))], True
    return frames, False


def cut(array: Array, counts: Sequence[int]) -> list[memoryview]:
    """Return the memory of a C-contiguous array in pieces, of so many items each."""
    data = array.reshape(-1).view(np.uint8).data
    ends = accumulate((n * array.itemsize for n in counts), initial=0)
    return [data[start:end] for start, end in pairwise(ends)]
