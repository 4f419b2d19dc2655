"""Find blocks of zeros, which need not be written into a file that has a hole there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import groupby, pairwise
from operator import itemgetter

import numpy as np

from ringcast.transfer.manifest import Entry

BLOCK = 4096  # bytes: the least that common file systems allocate


def runs(data: memoryview, offset: int) -> Iterator[slice]:
    """Yield the slices of `data` without the whole blocks of zeros; `data` begin at byte `offset` of the file.

    >>> list(runs(memoryview(bytes(4096) + b"x" + bytes(8191)), 0))
    [slice(4096, 8192, None)]
    >>> list(runs(memoryview(bytes(6000)), 4095))
    [slice(0, 1, None), slice(4097, 6000, None)]
    """
    head = min(-offset % BLOCK, len(data))
    count = (len(data) - head) // BLOCK
    blocks = np.frombuffer(data[head : head + count * BLOCK], np.uint64).reshape(count, BLOCK // 8)
    cuts = [0, *range(head, len(data) + 1, BLOCK), len(data)]
    filled = np.concatenate(
        ([True], blocks.any(axis=1), [True])
    )  # at both ends there are parts of blocks, which are always written
    for wanted, run in groupby(zip(filled.tolist(), pairwise(cuts), strict=True), itemgetter(0)):
        places = [place for _, place in run]
        if wanted and places[0][0] < places[-1][1]:
            yield slice(places[0][0], places[-1][1])


def is_hollow(file: int, entry: Entry) -> bool:
    """Return whether an open file has no data where the entry has holes; True if the entry has no holes."""
    if entry.data is None:
        return True
    end = 0
    for start, length in (*entry.extents, (entry.size, 0)):
        with suppress(OSError):  # no data from there on
            if os.lseek(file, end, os.SEEK_DATA) < start:
                return False
        end = start + length
    return True
