"""Compute the load of a collective for the cost model: bytes, frames and combined bytes, summed over its rounds.

An algorithm declares its load as a function of a call (`Formula`): exact where parts are equal, else an upper bound
apart from rounding, in O(p) at most.

p ranks; q = ceil(log2 p); m = bytes of the whole buffer (all parts); n blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate, pairwise
from operator import sub
from typing import NamedTuple, TypeAlias

import numpy as np

from ringcast._util.dataclass import dataclass
from ringcast.algorithms.params import Params

FEW = 32  # parts, up to which a sum one by one is faster than a sum of an array
KNEE = 1 << 16  # bytes of a message that buffers hold at once; longer messages cost more per byte


class Load(NamedTuple):
    """The sums over all rounds, each with its largest message.

    Attributes:
        volume: bytes sent.
        link: bytes through the busiest link if no rank waits for another's larger message: at most `volume`.
        frames: frames of the messages.
        excess: bytes of the messages beyond the first KNEE of each.
        largest: bytes of the largest message.
        combined: bytes that are combined.
        local: bytes of `volume` that stay within hosts.
        work: bytes that all ranks send together; 0: as many as if each rank sent `volume`.
    """

    volume: int
    link: int
    frames: int
    excess: int
    largest: int
    combined: int = 0
    local: int = 0
    work: int = 0


def uneven(messages: Sequence[int], frames: int) -> Load:
    """Return the load of rounds with these messages."""
    volume, excess = sum(messages), sum(max(m - KNEE, 0) for m in messages)
    return Load(volume, volume, frames, excess, max(messages, default=0))


def even(rounds: int, message: int, frames: int = 1) -> Load:
    """Return the load of `rounds` messages of equal size."""
    volume, excess = rounds * message, rounds * max(message - KNEE, 0)
    return Load(volume, volume, rounds * frames, excess, message)


@dataclass(frozen=True)
class Call:
    """The facts of a call of a collective that formulas use."""

    params: Params
    nbytes: int
    rounds: int

    @property
    def block(self) -> int:
        """The bytes of a block, where the whole buffer is cut into n blocks."""
        return -(-self.nbytes // self.params.nblocks)

    @property
    def parts(self) -> tuple[int, ...]:
        """The bytes of each part."""
        return _part_sizes(self.params.counts or (1,) * self.params.size, self.nbytes)

    @property
    def contributors(self) -> int:
        return sum(c > 0 for c in self.params.contributions)


Formula: TypeAlias = Callable[[Call], Load]


@lru_cache(maxsize=64)
def _part_sizes(counts: tuple[int, ...], nbytes: int) -> tuple[int, ...]:
    """Return `nbytes` divided among the parts in proportion to their counts."""
    total = sum(counts)
    if not total:
        return (0,) * len(counts)
    ends = [nbytes * c // total for c in accumulate(counts, initial=0)]
    return tuple(b - a for a, b in pairwise(ends))


def in_a_row(call: Call, lengths: Sequence[int]) -> list[int]:
    """Return for each length the most bytes of a row of parts of this length, mod p."""
    p = call.params.size
    if p <= FEW:
        sums = list(accumulate(call.parts * 2, initial=0))
        return [max(map(sub, sums[n : n + p], sums[:p])) for n in lengths]
    ends = np.concatenate(([0], np.cumsum(call.parts * 2)))
    return [int(np.max(ends[n : n + p] - ends[:p])) for n in lengths]


def values(call: Call) -> Load:
    """Return the load: every round moves and combines the whole value."""
    return even(call.rounds, call.nbytes)._replace(combined=call.rounds * call.nbytes)


def combining(formula: Formula) -> Formula:
    """Return the formula with all received bytes combined."""

    def both(call: Call) -> Load:
        load = formula(call)
        return load._replace(combined=load.volume)

    return both


def in_turn(*formulas: Formula) -> Formula:
    """Return the formula of several schedules one after the other."""

    def all_of_them(call: Call) -> Load:
        return total([formula(call) for formula in formulas])

    return all_of_them


def total(loads: Sequence[Load]) -> Load:
    """Return the load of rounds that follow one another."""
    volume, link, frames, excess, largest, combined, local, work = zip(*loads, strict=True)
    return Load(
        sum(volume), sum(link), sum(frames), sum(excess), max(largest), sum(combined), sum(local),
        sum(work) if all(work) else 0,
    )  # fmt: skip


def twice(formula: Formula) -> Formula:
    """Return the formula of a schedule that runs once with combining, and once without."""

    def both(call: Call) -> Load:
        load = formula(replace(call, rounds=call.rounds // 2))
        return total([load._replace(combined=load.volume), load])

    return both
