"""Check block schedules of any origin by the four conditions of `ringcast.schedules.blocks`.

The tables are not unique (Träff 2022, Table 5 has two for p = 9): check tables from elsewhere by this, do not compare
them with ours.

p ranks; q = ceil(log2 p); s = skips(p); r = rank counted from the root; k = round mod q; R, S = blocks that a rank
receives and sends.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ringcast.errors import ScheduleError
from ringcast.schedules.blocks import baseblock, skips


def check_conditions(p: int, recv: ArrayLike, send: ArrayLike) -> None:
    """Check that R and S, as [k, r], are a broadcast schedule on the circulant graph of `p` ranks; O(p log^2 p).

    >>> check_conditions(2, [[-1, 0]], [[0, -1]])

    Raises:
        ScheduleError: a condition does not hold; the text names it, and the first round and rank.
    """
    s = skips(p)
    q = len(s) - 1
    into, out = (np.asarray(table, dtype=np.intp).reshape(-1, p) for table in (recv, send))
    if into.shape != (q, p) or out.shape != (q, p):
        raise ScheduleError(f"{p} ranks have {q} receive and send blocks each, not {len(into)} and {len(out)}")
    own, ranks = np.array([baseblock(p, r) for r in range(p)]), np.arange(p)
    other_end = np.array([np.roll(row, -skip) for row, skip in zip(into, s[:-1], strict=True)]).reshape(q, p)
    _hold(out == other_end, "1: both ends of a message mean the same block")
    new = into >= 0
    in_order = np.sort(np.where(new, into - q, into), axis=0)
    _hold(in_order == np.arange(-q, 0)[:, None], "2: each block comes once")
    _hold(~new | (into == own), "2: the block that is new in its phase is the baseblock")
    home = np.array([(a <= ranks) & (ranks < b) for a, b in pairwise(s)], np.bool_).reshape(q, p)
    _hold(new == home, "3: the new block comes in the k with s[k] <= r < s[k+1]")
    had = np.array([(into[:k] == out[k]).any(axis=0) for k in range(q)], np.bool_).reshape(q, p)
    _hold((out == own - q) | had | (ranks == 0), "4: a rank sends only blocks that it has")


def _hold(holds: NDArray[np.bool_], condition: str) -> None:
    if not holds.all():
        k, r = (int(index[0]) for index in np.nonzero(~holds))
        raise ScheduleError(f"rank {r}, round {k}: not a broadcast schedule by condition {condition}")
