"""The two functions that LightGBM calls in place of its own network, on a communicator.

LightGBM calls them from C++, in the thread that has set them, and cannot be given an error: the first one is kept.
Then LightGBM's network is taken away, so that the next time that it needs one it ends its call with an error of its
own. Until then it works on data that cannot harm it. Signatures: LightGBM's include/LightGBM/meta.h.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import CFUNCTYPE, POINTER, c_char, c_int, c_int32, c_void_p, memmove, memset
from functools import lru_cache
from itertools import accumulate
from typing import Any

import numpy as np

from ringcast.boosting.order import RING_FROM, merges
from ringcast.communicator import Communicator
from ringcast.errors import UsageError
from ringcast.ops import Array

ReduceScatter = CFUNCTYPE(
    None, c_void_p, c_int32, c_int, POINTER(c_int32), POINTER(c_int32), c_int, c_void_p, c_int32, POINTER(c_void_p)
)
Allgather = CFUNCTYPE(None, c_void_p, c_int32, POINTER(c_int32), POINTER(c_int32), c_int, c_void_p, c_int32)
Reducer = CFUNCTYPE(None, c_void_p, c_void_p, c_int, c_int32)  # source, target, bytes of an item, bytes of all

ALIGN = 64  # bytes: rows begin at multiples of it


class Functions:
    """The functions of one network, and the first error in them.

    Attributes:
        error: the first error of a call of LightGBM's; None: there was none.
        reduce_scatter: for LGBM_NetworkInitWithFunctions.
        allgather: for LGBM_NetworkInitWithFunctions.
    """

    def __init__(self, comm: Communicator, give_up: Callable[[], object]) -> None:
        """`give_up` takes LightGBM's network away; it is called at the first error."""
        self.error: BaseException | None = None
        self._comm, self._give_up = comm, give_up
        self._rows = self._came = np.empty((comm.size, 0), np.uint8)
        self._begin = 0  # address of what came
        self._reducers: dict[int, Any] = {}
        self.reduce_scatter, self.allgather = ReduceScatter(self._reduce_scatter), Allgather(self._allgather)

    def _allgather(self, data: int, _: int, starts: Any, lengths: Any, __: int, out: int, total: int) -> None:
        counts: list[int] = lengths[: self._comm.size]
        try:
            first = starts[self._comm.rank]
            check(starts[: self._comm.size], counts)
            result = memory(out, sum(counts))
            memmove(out + first, data, counts[self._comm.rank])  # LightGBM has its data at the begin of `out`, too
            self._comm.allgatherv(result[first : first + counts[self._comm.rank]], counts, out=result)
        except BaseException as error:
            self._failed(error)
            pretend_gathered(data, counts, self._comm.rank, out, total)

    def _reduce_scatter(
        self, data: int, nbytes: int, itemsize: int, starts: Any, lengths: Any, _: int, out: int, __: int, reducer: Any
    ) -> None:
        rank, size = self._comm.rank, self._comm.size
        counts: list[int] = lengths[:size]
        try:
            check(starts[:size], counts)
            rows = self._in_rows(memory(data, nbytes), counts)
            self._comm.alltoall(rows, out=self._came)
            self._fold(rows.shape[1], counts[rank], itemsize, nbytes, reducer[0], out)
        except BaseException as error:
            self._failed(error)
            memmove(out, data + starts[rank], counts[rank])  # as if the other ranks had nothing

    def _in_rows(self, data: Array, counts: Sequence[int]) -> Array:
        """Return the blocks as rows of one length: such calls are alike, and the communicator predicts them."""
        longest = max(counts)
        width = -(-longest // ALIGN) * ALIGN
        if self._rows.shape[1] != width:
            self._rows, self._came = (np.empty((len(counts), width), np.uint8) for _ in range(2))
            self._begin = self._came.ctypes.data
        if min(counts) == width:
            return data.reshape(len(counts), width)
        first = 0
        for row, count in zip(self._rows, counts, strict=True):
            row[:count] = data[first : first + count]
            first += count
        return self._rows

    def _fold(self, width: int, count: int, itemsize: int, nbytes: int, reducer: int, out: int) -> None:
        """Combine the parts of this rank's block, by LightGBM's function and in its order, and put the result out."""
        combine = self._reducers.get(reducer) or self._reducers.setdefault(reducer, Reducer(reducer))
        begin = self._begin
        order, last = merges(self._comm.size, self._comm.rank, min(nbytes, RING_FROM))
        if count:
            for source, target in order:
                combine(begin + source * width, begin + target * width, itemsize, count)
        memmove(out, begin + last * width, count)

    def _failed(self, error: BaseException) -> None:
        if self.error is None:
            self.error = error
            self._give_up()


@lru_cache(64)  # LightGBM uses the same memory for most calls, and to describe it takes a tenth of a small one
def memory(address: int, nbytes: int) -> Array:
    """Return so many bytes at an address, for the time of a call."""
    return np.frombuffer(memoryview((c_char * nbytes).from_address(address)), np.uint8)


def check(starts: Sequence[int], counts: Sequence[int]) -> None:
    """Refuse blocks that are not one after the other."""
    if starts != [0, *accumulate(counts[:-1])]:
        raise UsageError(f"LightGBM passes blocks that do not follow each other: starts {starts}, lengths {counts}")


def pretend_gathered(data: int, counts: Sequence[int], rank: int, out: int, total: int) -> None:
    """Put something in place of the data of all ranks, with which LightGBM goes on until it needs its network again.

    Equal lengths: each rank has what this one has. Others are descriptions of bins, in which LightGBM finds a length of
    -1, and ends its call with an error.
    """
    if min(counts) != max(counts):
        memset(out, 0xFF, total)
        return
    own = bytes(memory(data, counts[rank]))
    memmove(out, own * len(counts), len(own) * len(counts))
