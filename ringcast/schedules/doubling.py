"""Make schedules for reductions of whole values in rank order: recursive doubling and a binomial tree.

Folklore; see Grama, Gupta, Karypis, Kumar, "Introduction to Parallel Computing", 2003, chapter 4, for powers of two,
and Rabenseifner, 2004, for folding the others. Values are never cut, and operands are always combined as
(lower ranks, higher ranks): right for any associative operator.

p ranks; d = floor(log2 p); f = p - 2^d of them are folded away. Slot 0 is the value.
"""

from __future__ import annotations

from ringcast._util.dataclass import dataclass
from ringcast.schedules.schedule import COMBINE_LEFT, COMBINE_RIGHT, IDLE, STORE, Copy, Nothing, Schedule, Step


@dataclass(frozen=True)
class Doubling(Schedule):
    """Allreduce in d rounds, two more unless p is a power of two.

    Ranks 2i and 2i+1, i < f, first become one (fold): 2i+1 hands its value to 2i and gets the result at the end.
    In between, the 2^d remaining ranks exchange with the rank whose number differs in bit 0, 1, ..., d-1. Both
    partners form the same product of two, so all ranks have the same bits.
    """

    @property
    def scratch(self) -> tuple[int, ...]:
        return (0,)

    @property
    def _folded(self) -> int:
        return self.size - (1 << self.size.bit_length() - 1)

    def __len__(self) -> int:
        return doubling_rounds(self.size)

    def _step(self, i: int) -> Step:
        f, r = self._folded, self.rank
        paired = r < 2 * f
        if f and i in (0, len(self) - 1):
            return self._fold(unfold=i > 0) if paired else IDLE
        if paired and r % 2:
            return IDLE
        new = r // 2 if paired else r - f
        bit = 1 << (i - 1 if f else i)
        partner = new ^ bit
        peer = 2 * partner if partner < f else partner + f
        accept = COMBINE_LEFT if new & bit else COMBINE_RIGHT
        return Step(peer, (1,), peer, (0,), accept, (Copy(1, 0),))  # a copy is sent, as slot 0 changes meanwhile

    def _fold(self, *, unfold: bool) -> Step:
        peer = self.rank ^ 1
        if bool(self.rank % 2) != unfold:
            return Step(peer, (0,))
        return Step(recv_from=peer, recv=(0,), accept=STORE if unfold else COMBINE_RIGHT)


@dataclass(frozen=True)
class OrderedReduce(Schedule):
    """Reduction to any `root` in ceil(log2 p) rounds.

    After k rounds the product of each range of 2^k ranks, from a multiple of 2^k on, lies at one of them: at the root
    if it is in the range, else at the lowest rank. In the next round pairs of neighbouring ranges become one.
    """

    root: int = 0

    def __len__(self) -> int:
        return (self.size - 1).bit_length()

    def _step(self, i: int) -> Step:
        own = self.rank >> i
        other = own ^ 1
        if self.rank != self._holder(own, i) or other << i >= self.size:
            return IDLE
        if self.rank != (to := self._holder(own >> 1, i + 1)):
            return Step(to, (0,))
        accept = COMBINE_RIGHT if own < other else COMBINE_LEFT
        return Step(recv_from=self._holder(other, i), recv=(0,), accept=accept)

    def _holder(self, range_: int, i: int) -> int:
        return self.root if self.root >> i == range_ else range_ << i


def doubling_rounds(p: int) -> int:
    """Return d, or d + 2 if p is not a power of two.

    >>> [doubling_rounds(p) for p in (1, 2, 3, 4, 5, 8, 9)]
    [0, 1, 3, 2, 4, 3, 5]
    """
    d = p.bit_length() - 1
    return d if p == 1 << d else d + 2


def doubling(size: int, rank: int) -> Schedule:
    """Return the allreduce of one whole value; any associative operator, the same bits on all ranks."""
    return Nothing(size, rank) if size == 1 else Doubling(size, rank)


def ordered_reduce(size: int, rank: int, *, root: int = 0) -> Schedule:
    """Return the reduction of one whole value to `root`; any associative operator."""
    return Nothing(size, rank) if size == 1 else OrderedReduce(size, rank, root)
