"""Spread the data of an irregular allgather over the ranks: m bytes on p ranks, part r of rank r.

Six from Träff et al., *A pipelined algorithm for large, irregular all-gather problems*, 2010, section 3, where a base
count c gives the total; here the total m is given, and the parts keep the proportions of the paper. The seventh is from
Träff, arXiv 2205.10072 (2022), section 3.2.

Rounding: the cuts between parts lie at floor(m w / W), where w is the sum of the weights before the cut and W of all.
So parts add up to m, each is within a byte of its share, and a part of weight 0 is empty. mod3 rounds as its paper.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise
from types import MappingProxyType


def parts(name: str, m: int, p: int) -> tuple[int, ...]:
    """Return the bytes of each of `p` ranks in distribution `name`; they add up to `m`.

    >>> parts("spike", 14, 8)
    (7, 1, 1, 1, 1, 1, 1, 1)
    >>> parts("mod3", 16, 8)
    (0, 2, 4, 0, 2, 4, 0, 4)

    Raises:
        ValueError: there is no such distribution; the text lists the known ones.
    """
    if name not in DISTRIBUTIONS:
        raise ValueError(f"there is no distribution {name!r}; known are {', '.join(DISTRIBUTIONS)}")
    return DISTRIBUTIONS[name](m, p)


def divided(m: int, weights: Sequence[int]) -> tuple[int, ...]:
    """Return `m` divided in the proportions of `weights`; their sum must be more than 0."""
    cuts = accumulate(weights, initial=0)
    total = sum(weights)
    return tuple(b - a for a, b in pairwise(m * cut // total for cut in cuts))


def regular(m: int, p: int) -> tuple[int, ...]:
    """All ranks have equal parts."""
    return divided(m, (1,) * p)


def broadcast(m: int, p: int) -> tuple[int, ...]:
    """Rank 0 has everything."""
    return (m, *(0,) * (p - 1))


def spike(m: int, p: int) -> tuple[int, ...]:
    """Rank 0 has half, and the others have equal parts of the other half."""
    return divided(m, (max(p - 1, 1), *(1,) * (p - 1)))


def half_full(m: int, p: int) -> tuple[int, ...]:
    """Even ranks have equal parts, odd ranks nothing."""
    return divided(m, [1 - r % 2 for r in range(p)])


def decreasing(m: int, p: int) -> tuple[int, ...]:
    """Rank r has p - 1 - r shares: parts decrease linearly to nothing on the last rank."""
    return divided(m, [p - 1 - r for r in range(p)] if p > 1 else (1,))


def geometric(m: int, p: int) -> tuple[int, ...]:
    """Ranks i - 1, ..., 2i - 2 have 1/i of rank 0's part each, for i = 1, 2, 4, ...: every group has the same in sum.

    This holds for p = 2**k - 1; for other p the last group is not complete.
    """
    largest = 1 << (p.bit_length() - 1)
    return divided(m, [largest >> ((r + 1).bit_length() - 1) for r in range(p)])


def mod3(m: int, p: int) -> tuple[int, ...]:
    """Rank r has (r mod 3) floor(m / p) bytes, but the last rank has the rest.

    The paper writes (r mod 3) m, which cannot add up to m; with floor(m / p) the last rank's rest is never negative.
    """
    first = [r % 3 * (m // p) for r in range(p - 1)]
    return (*first, m - sum(first))


DISTRIBUTIONS: Mapping[str, Callable[[int, int], tuple[int, ...]]] = MappingProxyType(
    {
        "regular": regular,
        "broadcast": broadcast,
        "spike": spike,
        "half-full": half_full,
        "decreasing": decreasing,
        "geometric": geometric,
        "mod3": mod3,
    }
)
