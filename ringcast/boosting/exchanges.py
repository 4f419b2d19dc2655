"""Calls of LightGBM's as calls of a communicator; all that depends on places and lengths alone is made once for each.

LightGBM uses the same memory and the same lengths for most calls, and on one host a small call takes no longer than to
describe its memory to Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import CFUNCTYPE, c_char, c_int, c_int32, c_void_p, memmove
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from ringcast.boosting.order import RING_FROM, merges
from ringcast.boosting.sparse import packed, unpack
from ringcast.communicator import Communicator
from ringcast.communicator.lifetime import group_of
from ringcast.ops import Array

Reducer = CFUNCTYPE(None, c_void_p, c_void_p, c_int, c_int32)  # source, target, bytes of an item, bytes of all
reducer_at = lru_cache(Reducer)

ALIGN = 64  # bytes: rows begin at multiples of it
SPARSE_FROM = 16 << 10  # bytes of all blocks; fewer take no longer with their zeros


class Gather:
    """An allgather of blocks of these lengths, from the address `data` to the address `out`."""

    def __init__(self, comm: Communicator, data: int, counts: Sequence[int], out: int) -> None:
        whole, first, count = memory(out, sum(counts)), sum(counts[: comm.rank]), counts[comm.rank]
        self._source, self._own = memory(data, count), whole[first : first + count]
        self._comm, self._counts, self._out = comm, counts, whole
        self._rows = whole.reshape(comm.size, -1) if min(counts) == max(counts) > 0 else None

    def make(self) -> None:
        """Make the call."""
        self._own[:] = self._source  # LightGBM has its data at the begin of `out`, too
        if self._rows is None:
            self._comm.allgatherv(self._own, self._counts, out=self._out)
        else:
            self._comm.allgather(self._own, out=self._rows)


class Sum:
    """A reduction of blocks of these lengths at the address `data`, each to its rank, at the address `out`."""

    def __init__(
        self, comm: Communicator, data: int, nbytes: int, itemsize: int, counts: Sequence[int], out: int
    ) -> None:
        self._comm, self._whole, self._counts, self._out = comm, memory(data, nbytes), counts, out
        self._itemsize, self._count = itemsize, counts[comm.rank]
        order, self._last = merges(comm.size, comm.rank, min(nbytes, RING_FROM))
        self._order = order if self._count else ()

    def make(self, reducer: int) -> None:
        """Make the call, with LightGBM's function that combines two blocks, by its address."""
        begin, width = self._exchange()
        combine = reducer_at(reducer)
        for source, target in self._order:
            combine(begin + source * width, begin + target * width, self._itemsize, self._count)
        memmove(self._out, begin + self._last * width, self._count)

    def _exchange(self) -> tuple[int, int]:
        """Fetch this rank's block of all ranks; return the address of the first one, and the distance of the next."""
        raise NotImplementedError


class WholeSum(Sum):
    """Blocks travel as they are, in rows of one length: such calls are alike, and the communicator predicts them."""

    def __init__(self, *call: Any) -> None:
        super().__init__(*call)
        size, counts = self._comm.size, self._counts
        self._width = -(-max(counts) // ALIGN) * ALIGN
        self._came = np.empty((size, self._width), np.uint8)
        self._begin = self._came.ctypes.data
        self._copies: list[tuple[Array, Array]] = []
        if min(counts) == self._width:
            self._rows = self._whole.reshape(size, -1)
            return
        self._rows = np.zeros_like(self._came)
        places = pairwise(accumulate(counts, initial=0))
        self._copies = [(row[: b - a], self._whole[a:b]) for row, (a, b) in zip(self._rows, places, strict=True)]

    def _exchange(self) -> tuple[int, int]:
        for row, block in self._copies:
            row[:] = block
        self._comm.alltoall(self._rows, out=self._came)
        return self._begin, self._width


class SparseSum(Sum):
    """Blocks travel without their zeros: for ranks that share no memory."""

    def __init__(self, *call: Any) -> None:
        super().__init__(*call)
        self._blocks = np.empty((self._comm.size, self._count), np.uint8)
        first = sum(self._counts[: self._comm.rank])
        self._own = self._whole[first : first + self._count]

    def _exchange(self) -> tuple[int, int]:
        rank = self._comm.rank
        blocks, lengths = packed(self._whole, self._counts, self._itemsize, rank)
        theirs: list[int] = self._comm.alltoall(np.array(lengths)).tolist()
        came = self._comm.alltoallv(blocks, lengths, theirs)
        for other, (a, b) in enumerate(pairwise(accumulate(theirs, initial=0))):
            if other != rank:
                unpack(came[a:b], self._blocks[other], self._itemsize)
        self._blocks[rank] = self._own
        return self._blocks.ctypes.data, self._count


def shares_memory(comm: Communicator) -> bool:
    """Return whether all ranks share memory, alike on all of them. Collective."""
    group = group_of(comm)
    near = {group.endpoint.rank, *group.endpoint.transport.lenders}
    return all(comm.allgather(near.issuperset(comm.members)))


def memory(address: int | None, nbytes: int) -> Array:
    """Return so many bytes at an address, for the time of a call; of none LightGBM may give no address."""
    if address is None or not nbytes:
        return np.empty(0, np.uint8)
    return np.frombuffer(memoryview((c_char * nbytes).from_address(address)), np.uint8)
