"""Blocks of LightGBM's histograms without their zeros: what arrives is what was sent, bit for bit."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from ringcast.boosting.sparse import WORDS, packed, unpack
from ringcast.errors import UsageError
from ringcast.ops import Array
from support.cases import each

SHARES = 0.0, 0.05, 0.5, 0.9, 1.0  # of items that are not zero
LENGTHS = [[0], [1], [7, 8, 9], [0, 64, 0, 3], [1000, 1]]  # items of each block


def blocks(items: int, itemsize: int, share: float) -> Array:
    """Return random bytes of items; some items are zero."""
    rng = np.random.default_rng([items, itemsize, int(100 * share)])
    data = rng.integers(0, 256, (items, itemsize), np.uint8)
    data[rng.random(items) >= share] = 0
    return data.reshape(-1)


@each("itemsize, lengths, share, leave", product(WORDS, LENGTHS, SHARES, (-1, 0)))
def test_a_block_arrives_as_it_was(itemsize: int, lengths: list[int], share: float, leave: int) -> None:
    data, counts = blocks(sum(lengths), itemsize, share), [itemsize * n for n in lengths]
    parts, sizes = packed(data, counts, itemsize, leave)
    assert sum(sizes) == len(parts)
    first = at = 0
    for block, (count, size) in enumerate(zip(counts, sizes, strict=True)):
        assert size <= count
        if block == leave:
            assert size == 0
        else:
            out = np.full(count, 9, np.uint8)
            unpack(parts[at : at + size], out, itemsize)
            np.testing.assert_array_equal(out, data[first : first + count])
        first, at = first + count, at + size


def test_zeros_with_a_sign_travel() -> None:
    data = np.array([0.0, -0.0] * 100 + [0.0] * 2000).view(np.uint8)
    parts, sizes = packed(data, [len(data)], 16, -1)
    out = np.empty_like(data)
    unpack(parts, out, 16)
    assert sizes[0] < len(data) / 4
    assert out.tobytes() == data.tobytes()


def test_few_items_become_a_bit_for_each_item_and_themselves() -> None:
    _, sizes = packed(blocks(8000, 16, 0.0), [128_000], 16, -1)
    assert sizes == [1000]


def test_a_block_of_another_length_is_refused() -> None:
    parts, sizes = packed(blocks(800, 8, 0.1), [6400], 8, -1)
    with pytest.raises(UsageError, match=f"{sizes[0]} bytes have come in place of 6000"):
        unpack(parts, np.empty(6000, np.uint8), 8)
