"""The two functions that LightGBM calls in place of its own network, on a communicator.

LightGBM calls them from C++, in the thread that has set them, and cannot be given an error: the first one is kept.
Then LightGBM's network is taken away, so that the next time that it needs one it ends its call with an error of its
own. Until then it works on data that cannot harm it. Signatures: LightGBM's include/LightGBM/meta.h.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import CFUNCTYPE, c_int, c_int32, c_size_t, c_void_p, memmove, memset, string_at
from itertools import accumulate
from struct import unpack
from typing import TypeVar

from ringcast.boosting.exchanges import SPARSE_FROM, Gather, SparseSum, Sum, WholeSum, memory, shares_memory
from ringcast.boosting.sparse import WORDS
from ringcast.communicator import Communicator
from ringcast.engine.signal_gate import called_from_c
from ringcast.errors import UsageError

# Lists and reducer are read at their addresses: ctypes takes longer to make pointers than a call takes otherwise.
ReduceScatter = CFUNCTYPE(None, c_void_p, c_int32, c_int, c_void_p, c_void_p, c_int, c_void_p, c_int32, c_void_p)
Allgather = CFUNCTYPE(None, c_void_p, c_int32, c_void_p, c_void_p, c_int, c_void_p, c_int32)

KNOWN = 16  # calls that are kept, with memory for all blocks of each
Call = TypeVar("Call", Gather, Sum)


class Functions:
    """The functions of one network, and the first error in them.

    Attributes:
        error: the first error of a call of LightGBM's; None: there was none.
        reduce_scatter: for LGBM_NetworkInitWithFunctions.
        allgather: for LGBM_NetworkInitWithFunctions.
    """

    def __init__(self, comm: Communicator, give_up: Callable[[], object]) -> None:
        """`give_up` takes LightGBM's network away; it is called at the first error. Collective."""
        self.error: BaseException | None = None
        self._comm, self._give_up = comm, give_up
        self._near = shares_memory(comm)
        self._length = 4 * comm.size  # bytes of a list of starts or lengths
        self._gathers: dict[object, Gather] = {}
        self._sums: dict[object, Sum] = {}
        self.reduce_scatter, self.allgather = ReduceScatter(self._reduce_scatter), Allgather(self._allgather)

    @called_from_c
    def _allgather(self, data: int, _: int, starts: int, lengths: int, __: int, out: int, total: int) -> None:
        try:
            key = data, out, string_at(starts, self._length), string_at(lengths, self._length)
            if (call := self._gathers.get(key)) is None:
                checked = check(int32s(key[2]), int32s(key[3]))
                call = keep(self._gathers, key, Gather(self._comm, data, checked, out))
            call.make()
        except BaseException as error:
            self._failed(error)
            pretend_gathered(data, self._at(lengths), self._comm.rank, out, total)

    @called_from_c
    def _reduce_scatter(
        self, data: int, nbytes: int, itemsize: int, starts: int, lengths: int, _: int, out: int, __: int, reducer: int
    ) -> None:
        try:
            key = data, nbytes, itemsize, out, string_at(starts, self._length), string_at(lengths, self._length)
            if (call := self._sums.get(key)) is None:
                checked = check(int32s(key[4]), int32s(key[5]))
                form = WholeSum if self._near or nbytes < SPARSE_FROM or itemsize not in WORDS else SparseSum
                call = keep(self._sums, key, form(self._comm, data, nbytes, itemsize, checked, out))
            call.make(c_size_t.from_address(reducer).value)
        except BaseException as error:
            self._failed(error)
            rank = self._comm.rank
            memmove(out, data + self._at(starts)[rank], self._at(lengths)[rank])  # as if the others had nothing

    def _at(self, address: int) -> list[int]:
        return int32s(string_at(address, self._length))

    def _failed(self, error: BaseException) -> None:
        if self.error is None:
            self.error = error
            self._give_up()


def keep(known: dict[object, Call], key: object, call: Call) -> Call:
    """Keep a call under a key; of many, the ones that were made last."""
    if len(known) >= KNOWN:
        known.clear()
    known[key] = call
    return call


def int32s(data: bytes) -> list[int]:
    """Return a list of LightGBM's lengths."""
    return [*unpack(f"{len(data) // 4}i", data)]


def check(starts: Sequence[int], counts: Sequence[int]) -> Sequence[int]:
    """Return the lengths of blocks; refuse blocks that are not one after the other."""
    if starts != [0, *accumulate(counts[:-1])]:
        raise UsageError(f"LightGBM passes blocks that do not follow each other: starts {starts}, lengths {counts}")
    return counts


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
