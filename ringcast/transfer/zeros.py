"""Blocks of zeros: what need not be written into a file that has a hole there."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby, pairwise
from operator import itemgetter

import numpy as np

BLOCK = 4096  # bytes: file systems allocate so many, or more


def runs(data: memoryview, offset: int) -> Iterator[slice]:
    """Yield what is left of data without the blocks of zeros, of a file whose blocks are counted from its beginning.

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
    )  # what is at the ends is part of a block, and is written
    for wanted, run in groupby(zip(filled.tolist(), pairwise(cuts), strict=True), itemgetter(0)):
        places = [place for _, place in run]
        if wanted and places[0][0] < places[-1][1]:
            yield slice(places[0][0], places[-1][1])
