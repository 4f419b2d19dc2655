"""Make allreduces in rank order: the census for any associative operator, and halving for long vectors.

The census of Träff, "(Poly)logarithmic time construction of round-optimal n-block broadcast schedules", 2022
(Algorithm 8), needs a commutative operator; here each rank keeps two sums instead of one. Halving and doubling:
Rabenseifner, "Optimization of collective reduction operations", 2004.

p ranks; q = ceil(log2 p); s = skips(p); d = floor(log2 p); f = p - 2^d ranks are folded away.
"""

from __future__ import annotations

from ringcast._util.dataclass import dataclass
from ringcast.schedules.blocks import skips
from ringcast.schedules.schedule import (
    COMBINE_LEFT,
    COMBINE_RIGHT,
    IDLE,
    STORE,
    Accept,
    Combine,
    Copy,
    Local,
    Nothing,
    Schedule,
    Step,
)


@dataclass(frozen=True)
class OrderedCensus(Schedule):
    """Allreduce of whole values in q rounds, then a local step, for operators that do not commute.

    As in the census a rank has counted the s[k]-1 ranks behind it before round k. `high` is the sum over the counted
    ranks up to p-1, `low` the sum over the counted ranks from 0 on, and the result is low x high. Ranks associate
    differently: the operator must be exact. A message has the sums that are not empty.

    Slots: 0 is x, and the result at the end; 1 is low; 2 is high; 3 and 4 are the message (the sums themselves must
    not change while they are sent).
    """

    @property
    def scratch(self) -> tuple[int, ...]:
        return (0, 0, 0, 0)

    def __len__(self) -> int:
        return len(skips(self.size))

    def _step(self, i: int) -> Step:
        p, r, s = self.size, self.rank, skips(self.size)
        if i == len(s) - 1:
            return Step(local=self._result())
        skip = s[i] if _with_own(s, i) else s[i] - 1
        source = (r + skip) % p
        message, local = self._message(i)
        recv, accept = self._arrival(source, i)
        return Step((r - skip) % p, message, source, recv, accept, local)

    def _message(self, i: int) -> tuple[tuple[int, ...], tuple[Local, ...]]:
        """Return the slots and local steps of a message: low, then high or x with high; empty sums are left out."""
        x, low, high, low_out, high_out = range(5)
        message: list[int] = []
        local: list[Local] = []
        if self._has_low(self.rank, i):
            message.append(low_out)
            local.append(Copy(low_out, low))
        if _with_own(skips(self.size), i):
            message.append(high_out if self._has_high(i) else x)
            local += [Combine(high_out, x, high)] if self._has_high(i) else []
        elif self._has_high(i):
            message.append(high_out)
            local.append(Copy(high_out, high))
        return tuple(message), tuple(local)

    def _arrival(self, source: int, i: int) -> tuple[tuple[int, ...], tuple[Accept, ...]]:
        """Return the slots for the arrival, whose sums count the ranks from r + s[i] on, and how to accept it."""
        low, high = 1, 2
        start = self.rank + skips(self.size)[i]
        if start >= self.size:  # all of them come after the wrap, so only one of the sender's sums is not empty
            return (low,), (STORE if start == self.size else COMBINE_RIGHT,)
        further = STORE if i == 0 else COMBINE_RIGHT
        return ((low, high), (STORE, further)) if self._has_low(source, i) else ((high,), (further,))

    def _has_low(self, rank: int, i: int) -> bool:
        """Return whether `rank` has counted beyond rank p-1 before round i."""
        return rank + skips(self.size)[i] - 1 >= self.size

    def _has_high(self, i: int) -> bool:
        """Return whether this rank has counted any rank above it before round i."""
        return i > 0 and self.rank < self.size - 1

    def _result(self) -> tuple[Local, ...]:
        x, low, high = range(3)
        above, below = Combine(x, x, high), Combine(x, low, x)
        return (below,) if self.rank == self.size - 1 else (above, below) if self.rank else (above,)


def _with_own(s: tuple[int, ...], i: int) -> bool:
    """Return whether the messages of round i count their sender."""
    return 2 * s[i] == s[i + 1]


@dataclass(frozen=True)
class Halving(Schedule):
    """Allreduce of a vector in 2d rounds, two more unless p is a power of two, in rank order.

    Ranks 2i and 2i+1, i < f, first become one, and part at the end, as in `ringcast.schedules.doubling`. In between,
    the 2^d remaining ranks halve the vector d times: each exchanges with the rank whose number differs in bit
    0, 1, ..., d-1, and keeps the half that this bit of its number selects. So neighbours are combined first, which
    keeps the order. Then the same exchanges backwards bring all blocks to all ranks. Every block has one owner, so all
    ranks end with the same bits.
    """

    @property
    def parts(self) -> tuple[int, ...]:
        return (1 << self._d,)

    @property
    def _d(self) -> int:
        return self.size.bit_length() - 1

    @property
    def _folded(self) -> int:
        return self.size - (1 << self._d)

    def __len__(self) -> int:
        return 2 * self._d + 2 * (self._folded > 0)

    def _step(self, i: int) -> Step:
        f, r = self._folded, self.rank
        paired = r < 2 * f
        if f and i in (0, len(self) - 1):
            return self._fold(unfold=i > 0) if paired else IDLE
        if paired and r % 2:
            return IDLE
        new = r // 2 if paired else r - f
        k = i - 1 if f else i
        return self._halve(new, k) if k < self._d else self._double(new, 2 * self._d - 1 - k)

    def _halve(self, new: int, k: int) -> Step:
        """Exchange halves with the rank that differs in bit k: keep one half, and combine the arriving one with it."""
        keep, give = self._halves(new, k)
        peer = self._peer(new, k)
        return Step(peer, give, peer, keep, COMBINE_LEFT if new >> k & 1 else COMBINE_RIGHT)

    def _double(self, new: int, k: int) -> Step:
        """Exchange the results of the two halves with the same rank."""
        keep, give = self._halves(new, k)
        peer = self._peer(new, k)
        return Step(peer, keep, peer, give)

    def _halves(self, new: int, k: int) -> tuple[range, range]:
        """Return the blocks that number `new` keeps in round k, and the blocks that it gives away."""
        start = sum((new >> j & 1) << self._d - 1 - j for j in range(k))
        half = 1 << self._d - 1 - k
        lower, upper = range(start, start + half), range(start + half, start + 2 * half)
        return (upper, lower) if new >> k & 1 else (lower, upper)

    def _peer(self, new: int, k: int) -> int:
        partner = new ^ 1 << k
        return 2 * partner if partner < self._folded else partner + self._folded

    def _fold(self, *, unfold: bool) -> Step:
        everything, peer = range(1 << self._d), self.rank ^ 1
        if bool(self.rank % 2) != unfold:
            return Step(peer, everything)
        return Step(recv_from=peer, recv=everything, accept=STORE if unfold else COMBINE_RIGHT)


def ordered_census(size: int, rank: int) -> Schedule:
    """Return the allreduce of whole values in q rounds; the operator must be exact."""
    return Nothing(size, rank) if size == 1 else OrderedCensus(size, rank)


def halving(size: int, rank: int) -> Schedule:
    """Return the allreduce of a vector by halving and doubling; any associative operator on elements."""
    return Nothing(size, rank) if size == 1 else Halving(size, rank)
