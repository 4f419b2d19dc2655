"""Find the calls under way that use memory near given addresses, without a look at all calls.

Arrays are filed by size, in powers of two, and there by the one or two blocks of that size in which they lie. So a
search looks at near blocks of each size. It may find more calls than overlap, never fewer. Calls are held weakly,
as they keep arrays; ended calls are left out when all is filed again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias
from weakref import ref

from ringcast.collectives.memory import Use
from ringcast.engine.open_call import OpenCall
from ringcast.ops import Array

SLACK = 64  # entries that may always be of calls that have ended

Entry: TypeAlias = "tuple[ref[OpenCall], Use]"
Blocks: TypeAlias = "dict[int, list[Entry]]"  # by number: a block of 2^k bytes begins at number * 2^k


class MemoryInUse:
    """The arrays that calls of one rank still read, or write; at first the arrays of `calls`, which are under way."""

    def __init__(self, calls: Iterable[tuple[OpenCall, Iterable[Use]]]) -> None:
        self._read: dict[int, Blocks] = {}  # by k
        self._written: dict[int, Blocks] = {}
        self._entries = 0
        for call, uses in calls:
            self.add(call, uses)
        self._limit = SLACK + 2 * self._entries

    @property
    def crowded(self) -> bool:
        """Whether most entries may be of ended calls, as many were added since the last filing."""
        return self._entries > self._limit

    def add(self, call: OpenCall, uses: Iterable[Use]) -> None:
        """File the arrays of a call that it uses after its begin."""
        call.filed = True
        for use in uses:
            if use.later and use.array.size:
                start, end = bounds(use.array)
                k = (end - start - 1).bit_length()
                blocks = (self._written if use.writes else self._read).setdefault(k, {})
                for number in range(start >> k, (end - 1 >> k) + 1):
                    blocks.setdefault(number, []).append((ref(call), use))
                    self._entries += 1

    def near(self, use: Use) -> Iterator[tuple[OpenCall, Use]]:
        """Return the calls, and their uses, that may conflict with one use: one of the two writes."""
        if not use.array.size:
            return
        start, end = bounds(use.array)
        for table in (self._written, self._read) if use.writes else (self._written,):
            for k, blocks in table.items():
                for entry, theirs in _between(blocks, start >> k, end - 1 >> k):
                    call = entry()
                    if call is not None:
                        yield call, theirs


def bounds(array: Array) -> tuple[int, int]:
    """Return the addresses of the first byte of an array that is not empty, and of the one behind its last."""
    start = end = array.__array_interface__["data"][0]
    for length, stride in zip(array.shape, array.strides, strict=True):
        reach = (length - 1) * stride
        start, end = start + min(reach, 0), end + max(reach, 0)
    return start, end + array.itemsize


def _between(blocks: Blocks, first: int, last: int) -> Iterator[Entry]:
    """Return the entries of the blocks from `first` to `last`, by the shorter of two ways."""
    if last - first < len(blocks):
        for number in range(first, last + 1):
            yield from blocks.get(number, ())
        return
    for number, entries in blocks.items():
        if first <= number <= last:
            yield from entries
