"""Compute lower bounds on the time of a broadcast, and the time of the best pipelines, by Sanders and Sibeyn.

Sanders and Sibeyn, "A bandwidth latency tradeoff for broadcast and reduction", IPL 86, 2003; numbers in brackets are
its equations. A step of one packet takes t + k/s.

p ranks; k = length of the message; t = start-up time of a message, in the time of a unit of length; s packets;
r = ranks of a group; d = `depth(p, r)`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import ceil, floor, log2, sqrt

from ringcast._util.dataclass import dataclass
from ringcast.schedules.fractional import depth

RATIOS = [2 ** (e / 8) for e in range(193)]  # k/t, from 1 to 16 million


def lower_bound(p: int, k: float, t: float) -> float:
    """Return (4): every rank gets k, and the last rank its first bit after log2 p steps.

    >>> lower_bound(1024, 4096, 1)
    4106.0
    """
    return k + t * log2(p)


def simplex_lower_bound(p: int, k: float, t: float) -> float:
    """Return (5): p-1 ranks receive k, and only half of the ranks can receive at a time.

    >>> simplex_lower_bound(1024, 4096, 1)
    8190.0
    """
    return 2 * (1 - 1 / p) * k + t * (log2(p) - 4)


def packets_lower_bound(p: int, k: float, t: float) -> float:
    """Return (6), for algorithms that send packets of equal size: the best s for s - 1 + log2 p steps, nearly.

    The least time of that many steps has log2 p - 1 in place of the paper's log2 p, at s = sqrt(k (log2 p - 1) / t);
    the paper's s, sqrt(k t / log2 p), is a slip. So n-block circulant schedules, which take the fewest possible steps,
    can be a little faster than (6).

    >>> round(packets_lower_bound(16, 400, 1), 6)
    484.0
    """
    return k * (1 + sqrt(t * log2(p) / k)) ** 2


def tree_time(p: int, k: float, t: float, run: int, packets: int) -> float:
    """Return (7), the time of the fractional tree: d + s (1 + 1/r) steps, one more than needed.

    >>> round(tree_time(1024, 4096, 1, 8, 456) / 4096, 3), round(tree_time(1024, 4096, 1, 10, 503) / 4096, 3)
    (1.389, 1.387)
    """
    return (depth(p, run) + packets * (1 + 1 / run)) * (t + k / packets)


def best_packets(p: int, k: float, t: float, run: int) -> int:
    """Return the best s by (7): sqrt(k d r / (t (r + 1))), rounded.

    For the binary tree it is sqrt(k d / 2t); the paper's sqrt(2 k d / t) in section 2 is a slip.

    >>> best_packets(1024, 4096, 1, 8), best_packets(1024, 4096, 1, 10)
    (456, 503)
    """
    return max(round(sqrt(k * depth(p, run) * run / (t * (run + 1)))), 1)


def approximate_run(p: int, k: float, t: float) -> int:
    """Return r = (k / (d' t))^(1/3), d' = log2 p - 1, rounded; 1 where the formula has no meaning.

    >>> approximate_run(1024, 4096, 1), approximate_run(1024, 1, 1)
    (8, 1)
    """
    chains = log2(p) - 1
    return max(round((k / (chains * t)) ** (1 / 3)), 1) if chains > 0 else 1


def best_run(p: int, k: float, t: float) -> int:
    """Return the best r by (7), up to twice the approximate one, each with its best s.

    >>> best_run(1024, 4096, 1)
    10
    """
    return min(range(1, 2 * approximate_run(p, k, t) + 2), key=lambda r: _best_time(p, k, t, r))


@lru_cache(maxsize=1024)
def _best_time(p: int, k: float, t: float, run: int) -> float:
    return tree_time(p, k, t, run, best_packets(p, k, t, run))


def pipeline_packets(fill: int, k: float, t: float) -> int:
    """Return the best s for a pipeline of s + `fill` steps: sqrt(k fill / t), rounded down or up.

    >>> pipeline_packets(4, 400, 1), pipeline_packets(0, 400, 1)
    (40, 1)
    """
    s = sqrt(k * fill / t)
    return min((max(floor(s), 1), max(ceil(s), 1)), key=lambda n: (fill + n) * (t + k / n))


def pipeline_time(fill: int, k: float, t: float) -> float:
    """Return the time of a pipeline of s + `fill` steps, with the best s.

    `fill` is p - 2 for the linear pipeline, and ceil(log2 p) - 1, the least possible, for circulant schedules.

    >>> pipeline_time(4, 400, 1), pipeline_time(0, 400, 1)
    (484.0, 401.0)
    """
    n = pipeline_packets(fill, k, t)
    return (fill + n) * (t + k / n)


def simple_time(p: int, k: float, t: float) -> float:
    """Return the time of the better of linear pipeline and pipelined binary tree; p > 1.

    >>> simple_time(1024, 4096, 1) > tree_time(1024, 4096, 1, 10, 503)
    True
    """
    return min(pipeline_time(p - 2, k, t), _best_time(p, k, t, 1))


@dataclass(frozen=True)
class Speedup:
    """The speedup over the better of linear pipeline and pipelined binary tree: one point of Figure 3."""

    ratio: float  # k / t
    fractional: float
    circulant: float


def speedup(p: int, ratio: float) -> Speedup:
    """Return the point at k/t = `ratio` for `p` ranks, by the formulas above; p > 1.

    >>> point = speedup(1024, 4096)
    >>> round(point.fractional, 2), round(point.circulant, 2)
    (1.56, 1.97)
    """
    simple = simple_time(p, ratio, 1)
    tree = _best_time(p, ratio, 1, best_run(p, ratio, 1))
    circulant = pipeline_time((p - 1).bit_length() - 1, ratio, 1)
    return Speedup(ratio, max(simple / tree, 1.0), simple / circulant)


def figure_3(sizes: Iterable[int] = (64, 1024, 16384), ratios: Sequence[float] = RATIOS) -> dict[int, list[Speedup]]:
    """Return the curves of Figure 3, one for each size, with n-block circulant schedules beside them.

    A fractional tree of the best r is never slower than the simple algorithms: they are the trees of r = infinity and
    1. The formulas give up to 1.28 for 64 ranks and 1.78 for 16384, where the paper reports 1.29 and 1.8.
    """
    return {p: [speedup(p, ratio) for ratio in ratios] for p in sizes}
