"""Slots for exchanges: pieces of several arrays, which are moved and never combined."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np

from ringcast.engine.slots import TINY, ReceiveBuffer, Store
from ringcast.ops import Array
from ringcast.schedules.schedule import Local, Schedule, Slots, Step


class PieceSlots:
    """Pieces of memory that lie anywhere; scratch pieces have memory of their own."""

    def __init__(self, pieces: Sequence[memoryview], schedule: Schedule) -> None:
        self._pieces = [*pieces, *(np.empty(len(pieces[slot]), np.uint8).data for slot in schedule.scratch)]

    def pack(self, slots: Slots) -> tuple[list[memoryview], bool]:
        frames = self._chosen(slots)
        if len(frames) > 1 and sum(map(len, frames)) < TINY * len(frames):
            return [memoryview(b"".join(frames))], True
        return frames, False

    def receive_buffer(self, step: Step) -> ReceiveBuffer:
        return Store(self._chosen(step.recv))

    def apply(self, local: Local) -> None:
        raise TypeError(f"{local}: pieces are only sent and received")

    def _chosen(self, slots: Slots) -> list[memoryview]:
        return [self._pieces[int(slot)] for slot in slots]


def cut(array: Array, counts: Sequence[int]) -> list[memoryview]:
    """Return the memory of a C-contiguous array in pieces, of so many items each."""
    data = array.reshape(-1).view(np.uint8).data
    ends = accumulate((n * array.itemsize for n in counts), initial=0)
    return [data[start:end] for start, end in pairwise(ends)]
