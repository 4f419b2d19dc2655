"""Blocks of a histogram as they travel between hosts: a bit for each item, and the items that are not zero.

A leaf with few rows leaves most bins empty, and all-zero items are most of what LightGBM sends. Items are taken by
their bits, so that a zero with a sign travels, and the block that arrives is the one that was sent. A block that would
not become shorter travels as it is: its length shows that.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ringcast.errors import UsageError
from ringcast.ops import Array

WORDS = {2: np.uint16, 4: np.uint32, 8: np.uint64, 16: np.uint64}  # by bytes of an item: what it is read as
WORTH = 7 / 8  # of the length of a block, at most, of a shorter form


def packed(data: Array, counts: Sequence[int], itemsize: int, leave: int) -> tuple[Array, list[int]]:
    """Return the blocks one after the other, in the shorter form if that is worth it, and their new lengths.

    Args:
        data: bytes.
        counts: bytes of each block.
        itemsize: bytes of an item, one of WORDS.
        leave: a block that is not to travel; it gets no bytes.
    """
    items = _items(data, itemsize)
    there = _nonzero(items)
    parts: list[Array] = []
    first = 0
    for block, count in enumerate(counts):
        after = first + count // itemsize
        if block == leave:
            parts.append(data[:0])
        else:
            parts.append(_shorter(data[first * itemsize :][:count], items[first:after], there[first:after]))
        first = after
    return np.concatenate(parts), [len(part) for part in parts]


def unpack(part: Array, out: Array, itemsize: int) -> None:
    """Put a block that has come into `out`, which has its bytes.

    Raises:
        UsageError: it is no form of a block of this length.
    """
    if len(part) == len(out):
        out[:] = part
        return
    items = _items(out, itemsize)
    bits = -(-len(items) // 8)
    there = np.unpackbits(part[:bits], count=len(items)).view(bool)
    if len(part) != bits + itemsize * np.count_nonzero(there):
        raise UsageError(f"a rank has other blocks of LightGBM's: {len(part)} bytes have come in place of {len(out)}")
    items[:] = 0
    items[there] = np.frombuffer(part[bits:].tobytes(), items.dtype).reshape(-1, *items.shape[1:])


def _shorter(block: Array, items: Array, there: Array) -> Array:
    bits = np.packbits(there)
    if len(bits) + np.count_nonzero(there) * items.dtype.itemsize * items[:1].size > WORTH * len(block):
        return block
    return np.concatenate((bits, items[there].reshape(-1).view(np.uint8)))


def _items(data: Array, itemsize: int) -> Array:
    """Return bytes as items: numbers, or pairs of them."""
    words = data.view(WORDS[itemsize])
    return words.reshape(-1, 2) if itemsize == 16 else words


def _nonzero(items: Array) -> Array:
    there: Array = (items if items.ndim == 1 else items[:, 0] | items[:, 1]) != 0
    return there
