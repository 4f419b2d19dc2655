"""Compute block schedules of the circulant graph, which say which block travels in which round, in O(log p) per rank.

Träff, doi 10.1145/3735139 (arXiv 2312.11236, 2407.18004); the graph and the four conditions are from Träff,
"(Poly)logarithmic time construction of round-optimal n-block broadcast schedules", 2022.
`schedule_tables` computes all ranks at once by a rule of our own, see there.

p ranks; q = ceil(log2 p); s = skips(p); r = rank counted from the root; k = round mod q. In round k rank r sends to
r + s[k] and receives from r - s[k] (mod p): block R[k] comes in, block S[k] goes out. Blocks are counted from the
first of the current phase of q rounds; a negative number v means block v + q of the phase before.

The four conditions, which make any such table a broadcast schedule:
1. S[k] of r is R[k] of r + s[k]: both ends of a message mean the same block.
2. The R[k] of r are -1, ..., -q without b - q, and b instead: each block comes once; b is the baseblock of r.
3. b comes in the k with s[k] <= r < s[k+1]: a block is new in the phase in which the root sends it.
4. S[k] is b - q or among R[0], ..., R[k-1]: a rank sends only blocks that it has.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray


@lru_cache(maxsize=256)
def skips(p: int) -> tuple[int, ...]:
    """Return s with 1 = s[0] < ... < s[q] = p and s[k] = ceil(s[k+1] / 2).

    >>> skips(17)
    (1, 2, 3, 5, 9, 17)
    >>> skips(1)
    (1,)
    """
    if p < 1:
        raise ValueError(f"skips: there is no group of {p} ranks")
    s = [p]
    while s[0] > 1:
        s.insert(0, (s[0] + 1) // 2)
    return tuple(s)


def baseblock(p: int, r: int) -> int:
    """Return the first block that r receives: the last skip on the greedy path from the root to r, in O(log p).

    The root receives nothing; its baseblock is q by convention.

    >>> [baseblock(9, r) for r in range(9)]
    [4, 0, 1, 2, 0, 3, 0, 1, 2]
    """
    s = skips(p)
    last = len(s) - 1
    for k in reversed(range(len(s) - 1)):
        if s[k] <= r:
            r -= s[k]
            last = k
    return last


def recv_schedule(p: int, r: int) -> tuple[int, ...]:
    """Return R[0], ..., R[q-1] of r in O(log p): the search of the paper for canonical paths, without recursion.

    A path is a sum of skips with decreasing indices; the last index is the block. Round k wants the processor that
    is farthest along and in the window r - s[k+1] < processor <= r - s[k], reached with an index not used
    before. The search descends while it is short of the window, and accepts on the way back.

    >>> recv_schedule(33, 1)
    (0, -3, -4, -2, -5, -1)
    """
    s = skips(p)
    q = len(s) - 1
    if q == 0:
        return ()
    # The unused indices, a list linked in both directions. Entry q+1 is the head of `below`, and also takes the
    # writes to above[-1], so that neither end needs a test.
    below, above = list(range(-1, q + 1)), list(range(1, q + 3))
    own = baseblock(p, r)
    below[above[own]], above[below[own]] = below[own], above[own]

    wanted = p + r  # one lap further on: nothing is negative
    near, far = wanted - s[0], wanted - s[1]
    path: list[tuple[int, int, int]] = []
    at, bound, e = 0, 2 * p, q  # the path leads to `at`; accepted processors lie below `bound`; next index to try
    found: list[int] = []
    while True:
        if e >= 0:
            reached = at + s[e]
            if reached > near or reached >= bound:
                e = below[e]
                continue
            if reached <= far:
                path.append((at, bound, e))
                at = reached
                continue
        else:  # nothing fits behind `at`: take `at` itself
            at, bound, e = path.pop()
        while at > far:  # the window has moved on, and `at` is itself in it
            at, bound, e = path.pop()
        bound = at + s[e]
        found.append(e)
        if len(found) == q:
            return tuple([own if e == q else e - q for e in found])  # q: the path reached the root, own block
        near, far = far, wanted - s[len(found) + 1]
        below[above[e]], above[below[e]] = below[e], above[e]
        e = below[e]


def send_schedule(p: int, r: int) -> tuple[int, ...]:
    """Return S[0], ..., S[q-1] of r in O(log p).

    Rank r halves the range of ranks that get the same block, from p down: to the lower part it sends the same block as
    before, to the upper part the block that is new there. Where a neighbour breaks this rule (at most four times), the
    neighbour's receive schedule is computed.

    >>> send_schedule(33, 25)
    (-4, -4, -4, -3, -5, -1)
    """
    s = skips(p)
    q = len(s) - 1
    if r == 0:
        return tuple(range(q))
    own = baseblock(p, r)
    rest, block, end = r, own, p  # r lies at `rest` in a range of `end` ranks, which get `block` from r
    out = [own - q] * q
    for k in range(q - 1, 0, -1):
        if rest < s[k]:
            regular = rest + s[k] < end or end < s[k - 1] or (k == 1 and own > 0)
            end = min(end, s[k])
        else:
            block = k - q
            end -= s[k]
            regular = rest > s[k] or rest <= end or k == 1 or end < s[k - 1]
            rest -= s[k]
        out[k] = block if regular else recv_schedule(p, (r + s[k]) % p)[k]
    return tuple(out)


@lru_cache(maxsize=8)
def schedule_tables(p: int) -> tuple[NDArray[np.int8], NDArray[np.int8]]:
    """Return R and S of all ranks as read-only arrays [k, r], in O(p log p) operations on whole arrays.

    The rule (found and verified by us, for all p up to 40,000; no proof): R[k] is the largest block that r has not
    used among the baseblocks of the ranks r - s[k+1] < j <= r - s[k] (cyclic), where the root counts as block q and
    stands for r's own. Own baseblocks are used from the start. Only if nothing is left there, it is the baseblock
    of r - s[k+1].

    >>> recv, send = schedule_tables(5)
    >>> recv.tolist()
    [[-3, 0, -3, -2, -1], [-1, -1, 1, -3, -2], [-2, -2, -1, 2, 0]]
    >>> send.tolist()
    [[0, -3, -2, -1, -3], [1, -3, -2, -1, -1], [2, 0, -2, -2, -1]]
    """
    s = skips(p)
    q = len(s) - 1
    own = _baseblocks(s)
    bits = np.left_shift(1, own, dtype=np.int32 if q < 31 else np.int64)
    recv = np.empty((q, p), np.int8)
    send = np.empty((q, p), np.int8)
    used = bits.copy()
    reach, width = bits, 1  # reach[r]: the blocks of the `width` ranks up to r, width a power of two
    for k in range(q):
        length = s[k + 1] - s[k]
        while 2 * width <= length:
            reach, width = reach | behind(reach, width), 2 * width
        window = behind(reach, s[k])
        if width < length:  # two windows that overlap
            window |= behind(reach, s[k] + length - width)
        window &= ~used
        empty = np.flatnonzero(window == 0)
        window[empty] = bits[empty - s[k + 1]]
        block = _highest_bit(window, q)
        used |= np.left_shift(1, block, dtype=used.dtype)
        recv[k] = block - q
        recv[k, s[k] : s[k + 1]] = own[s[k] : s[k + 1]]  # ranks whose window holds the root
        send[k] = behind(recv[k], p - s[k])
    recv.flags.writeable = send.flags.writeable = False
    return recv, send


def behind(x: NDArray[Any], d: int) -> NDArray[Any]:
    """Return y with y[r] = x[r - d] (cyclic); `numpy.roll` takes five times as long for the usual p."""
    return np.concatenate((x[-d:], x[:-d]))


def _baseblocks(s: tuple[int, ...]) -> NDArray[np.int8]:
    """Return the baseblocks of all ranks: the ranks behind s[k] have the same ones as the ranks behind the root."""
    q = len(s) - 1
    own = np.full(s[q], q, np.int8)
    for k in range(q):
        own[s[k]] = k
        own[s[k] + 1 : s[k + 1]] = own[1 : s[k + 1] - s[k]]
    return own


def _highest_bit(x: NDArray[Any], q: int) -> NDArray[Any]:
    """Return floor(log2 x), 0 < x < 2^(q+1), from the exponents of floats that hold x exactly."""
    if q <= 23:
        return (x.astype(np.float32).view(np.int32) >> 23) - 127
    return (x.astype(np.float64).view(np.int64) >> 52) - 1023
