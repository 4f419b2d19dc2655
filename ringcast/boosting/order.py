"""The order in which LightGBM's own network combines the parts of a block, so that sums have the same bits here.

Facts from LightGBM 4.6's src/network: `RecursiveHalvingMap::Construct` in linker_topo.cpp, `ReduceScatter` in
network.cpp. With 2**k machines, halves of the data are exchanged with the machine whose number differs in the highest
bit, then in the next one, and so on. Of another number of machines, the last ones are pairs first: the left one of a
pair takes part for both. Where that number is no power of two, data of 10 MB and more go around a ring instead.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

RING_FROM = 10 << 20  # bytes of the whole input

Merge = tuple[int, int]  # ranks (source, target): the part of the first is combined into the part of the second


@lru_cache
def merges(size: int, owner: int, nbytes: int) -> tuple[tuple[Merge, ...], int]:
    """Return the merges of the block that `owner` gets, in order, and the rank in whose part the result is then.

    Args:
        size: number of ranks.
        owner: the rank whose block it is.
        nbytes: 0 for small data, RING_FROM for data that LightGBM would send around a ring.

    >>> merges(2, 0, 0), merges(3, 2, 0)
    ((((1, 0),), 0), (((2, 1), (0, 1)), 1))
    >>> merges(3, 2, RING_FROM)
    (((0, 1), (1, 2)), 2)
    """
    rounds = size.bit_length() - 1
    pairs = size - (1 << rounds)
    if pairs and nbytes >= RING_FROM:
        around = [(owner + i) % size for i in range(1, size + 1)]
        return tuple(pairwise(around)), owner
    singles = size - 2 * pairs  # ranks from here on are pairs

    def leader(group: int) -> int:
        return group if group < singles else 2 * group - singles

    found: list[Merge] = []

    def gather(group: int, done: int) -> None:
        """Add the merges by which the leader of a group has, after so many rounds, its part of the block."""
        if done:
            partner = group ^ (1 << (rounds - done))
            gather(group, done - 1)
            gather(partner, done - 1)
            found.append((leader(partner), leader(group)))
        elif group >= singles:
            found.append((leader(group) + 1, leader(group)))

    mine = owner if owner < singles else (owner + singles) // 2
    gather(mine, rounds)
    return tuple(found), leader(mine)
