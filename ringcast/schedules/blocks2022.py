"""Compute block schedules in O(log^3 p) per rank by the construction of 2022: the greatest new block in a range.

Träff, "(Poly)logarithmic time construction of round-optimal n-block broadcast schedules", 2022, Algorithms 3 to 5.
The collectives use `ringcast.schedules.blocks`, which computes the same schedules in O(log p). As printed, the
algorithms do not give schedules for all p. The differences here:

* Algorithm 3 goes wrong by one in several places, and loses blocks: `range_blocks` is another search, also O(log p).
* Algorithm 4 may send a rank its own baseblock twice: here the block counts as received from the start. The root has no
  block to offer. Where a range has nothing new, the one rank behind it is enough. k blocks take rounds 0 to k-1.
* Algorithm 5 asks for the first i blocks, and takes block i: it has to ask for i+1.

p ranks; q = ceil(log2 p); s = skips(p); r = rank counted from the root; i = round of the phase. A set of blocks is an
integer, bit b for block b.
"""

from __future__ import annotations

from bisect import bisect_right

from ringcast.schedules.blocks import baseblock, skips


def range_blocks(p: int, a: int, b: int) -> int:
    """Return the set of the baseblocks of the ranks a, ..., b, 1 <= a <= b < p, in O(log p) (Algorithm 3, repaired).

    The ranks behind s[k] have the baseblocks of the ranks 1, 2, ...; so a range with s[k] in it has the block k, the
    blocks j with s[j] <= b - s[k], and the blocks of its ranks before s[k]. A range behind s[k] is moved down by s[k].

    >>> [baseblock(20, r) for r in range(8, 12)], bin(range_blocks(20, 8, 11))
    ([2, 0, 4, 0], '0b10101')
    """
    s = skips(p)
    found = 0
    while a <= b:
        k = bisect_right(s, b) - 1
        if a > s[k]:
            a, b = a - s[k], b - s[k]
        else:
            behind = bisect_right(s, b - s[k])  # the blocks of the ranks 1, ..., b - s[k] are 0, ..., behind - 1
            found |= 1 << k | (1 << behind) - 1
            b = s[k] - 1
    return found


def recv_schedule(p: int, r: int, rounds: int | None = None) -> tuple[int, ...]:
    """Return R[0], ..., R[rounds-1] of r (all q without `rounds`) in O(rounds log p) (Algorithm 4, repaired).

    >>> recv_schedule(33, 1)
    (0, -3, -4, -2, -5, -1)
    """
    s = skips(p)
    q = len(s) - 1
    own = baseblock(p, r)
    received = 1 << own
    schedule = []
    for i in range(q if rounds is None else rounds):
        if s[i] <= r < s[i + 1]:
            schedule.append(own)
        else:
            block = _greatest(_new_blocks(p, r, i, received))
            received |= 1 << block
            schedule.append(block - q)
    return tuple(schedule)


def send_schedule(p: int, r: int) -> tuple[int, ...]:
    """Return S[0], ..., S[q-1] of r in O(log^3 p): S[k] is R[k] of the rank to which r sends (Algorithm 5).

    >>> send_schedule(33, 25)
    (-4, -4, -4, -3, -5, -1)
    """
    return tuple(recv_schedule(p, (r + skip) % p, i + 1)[i] for i, skip in enumerate(skips(p)[:-1]))


def _new_blocks(p: int, r: int, i: int, received: int) -> int:
    """Return the set of blocks that r could get in round i from r - s[i], and has not received."""
    s = skips(p)
    q = len(s) - 1
    if i == 0:
        return 1 << baseblock(p, (r - 1) % p)
    if i == q - 1:
        return ((1 << q) - 1) & ~received
    # r is not in s[i], ..., s[i+1] - 1, so this range does not go round past the root.
    new = range_blocks(p, (r - s[i + 1] + 1) % p, (r - s[i]) % p) & ~received
    return new or 1 << baseblock(p, (r - s[i + 1]) % p)


def _greatest(blocks: int) -> int:
    return blocks.bit_length() - 1
