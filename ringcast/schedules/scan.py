"""Make prefix sums of whole values: rank r gets the sum over the ranks 0 to r (scan), or 0 to r-1 (exscan).

Grama, Gupta, Karypis, Kumar, "Introduction to Parallel Computing", 2003, section 4.3 (hypercube); Träff,
arXiv 2604.25667 (exscan in two phases, and with the skips of the census); Träff, arXiv 2507.04785 (123-doubling).
Operands are always combined in rank order: right for any associative operator.

p ranks; q = ceil(log2 p); r = rank. Slot 0 is the value x, and the result at the end.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TypeAlias

from ringcast._util.dataclass import dataclass
from ringcast.schedules.blocks import skips
from ringcast.schedules.schedule import COMBINE_LEFT, IDLE, STORE, Combine, Copy, Local, Nothing, Schedule, Step

Skips: TypeAlias = "tuple[tuple[int, bool], ...]"  # of each round: the distance, and whether it is inclusive


@dataclass(frozen=True)
class DoublingScan(Schedule):
    """Scan in q rounds: after round k a rank has the sum over itself and the 2^(k+1) - 1 ranks before it."""

    @property
    def scratch(self) -> tuple[int, ...]:
        return (0,)

    def __len__(self) -> int:
        return (self.size - 1).bit_length()

    def _step(self, i: int) -> Step:
        total, message = 0, 1
        skip = 1 << i
        sends, receives = self.rank + skip < self.size, self.rank >= skip
        if not receives:
            return Step(self.rank + skip, (total,)) if sends else IDLE
        if not sends:
            return Step(recv_from=self.rank - skip, recv=(total,), accept=COMBINE_LEFT)
        copy = Copy(message, total)  # the total changes while it is sent
        return Step(self.rank + skip, (message,), self.rank - skip, (total,), COMBINE_LEFT, (copy,))


@dataclass(frozen=True)
class HypercubeScan(Schedule):
    """Scan in q rounds on a hypercube (Grama et al.): an allreduce in which each rank also sums values from below it.

    In round k ranks exchange with r XOR 2^k, so that the message of a rank becomes the sum over the 2^(k+1) ranks
    that differ from it in the bits up to k. Where p is not a power of two, a partner that does not exist is left out:
    only ranks above it would need its value, and there are none.

    Slots: 0 is the result; 1 is the message; 2 is the arrival.
    """

    @property
    def scratch(self) -> tuple[int, ...]:
        return (0, 0)

    def __len__(self) -> int:
        return (self.size - 1).bit_length() + 1

    def _step(self, i: int) -> Step:
        local, partner = self._take(i), self.rank ^ 1 << i
        if i == len(self) - 1 or partner >= self.size:
            return Step(local=local)
        return Step(partner, (1,), partner, (2,), STORE, local)

    def _take(self, i: int) -> tuple[Local, ...]:
        """Return the local steps for the arrival of round i-1; the message of the last round changes no more."""
        result, message, arrival = 0, 1, 2
        if i == 0:
            return (Copy(message, result),)
        partner, last = self.rank ^ 1 << i - 1, i == len(self) - 1
        if partner >= self.size:
            return ()
        if partner > self.rank:
            return () if last else (Combine(message, message, arrival),)
        below = Combine(result, arrival, result)
        return (below,) if last else (below, Combine(message, arrival, message))


@dataclass(frozen=True)
class ExclusiveScan(Schedule):
    """Exscan with given skips: W, the sum over the ranks before r, grows by the message of the rank one skip back.

    If W is over the w ranks before each rank, an inclusive round sends W with x by w+1, to make it 2w+1; an
    exclusive round sends W alone by w, to make it 2w: this saves the sender an addition. Rank 0 has no W to send.

    Slots: 0 is x; 1 is W; 2 is the message (W itself must not change while it is sent).
    """

    skips: Skips

    @property
    def scratch(self) -> tuple[int, ...]:
        return (0, 0)

    def __len__(self) -> int:
        return len(self.skips) + 1

    def _step(self, i: int) -> Step:
        x, before = 0, 1
        r = self.rank
        if i == len(self.skips):
            return Step(local=(Copy(x, before),)) if r else IDLE
        skip, inclusive = self.skips[i]
        to = r + skip if r + skip < self.size and (r or inclusive) else None
        source = r - skip if r > skip or (r == skip and inclusive) else None
        message, local = self._message(i) if to is not None else ((), ())
        accept = COMBINE_LEFT if i else STORE
        return Step(to, message, source, (before,) if source is not None else (), accept, local)

    def _message(self, i: int) -> tuple[tuple[int, ...], tuple[Local, ...]]:
        x, before, message = 0, 1, 2
        if i == 0 or self.rank == 0:
            return (x,), ()
        local = Combine(message, before, x) if self.skips[i][1] else Copy(message, before)
        return (message,), (local,)


def two_phase_skips(p: int) -> Skips:
    """Return the skips of arXiv 2604.25667: q rounds, the first of them inclusive, as few as possible.

    >>> two_phase_skips(20)
    ((1, True), (2, True), (3, False), (6, False), (12, False))
    """
    q = (p - 1).bit_length()
    inclusive = next(i for i in range(q + 1) if ((1 << i) - 1) << (q - i) >= p - 1)
    return _in_two_phases(p, inclusive)


def skips_123(p: int) -> Skips:
    """Return the skips 1, 2, 3, 6, 12, … of arXiv 2507.04785: q rounds or one more, at most two of them inclusive."""
    return _in_two_phases(p, 2)


def _in_two_phases(p: int, inclusive: int) -> Skips:
    """Return that many inclusive rounds, then exclusive ones, until W is over all p-1 ranks before the last one."""
    found: list[tuple[int, bool]] = []
    w = 0
    while w < p - 1:
        with_own = len(found) < inclusive
        found.append((w + with_own, with_own))
        w += w + with_own
    return tuple(found)


def census_skips(p: int) -> Skips:
    """Return the skips of the census: q rounds; a round is inclusive if its bit is set in p-1.

    >>> census_skips(20)
    ((1, True), (1, False), (2, False), (5, True), (10, True))
    """
    return tuple((s if 2 * s == following else s - 1, 2 * s == following) for s, following in pairwise(skips(p)))


def doubling_scan(size: int, rank: int) -> Schedule:
    """Return the scan of whole values in q rounds."""
    return Nothing(size, rank) if size == 1 else DoublingScan(size, rank)


def hypercube_scan(size: int, rank: int) -> Schedule:
    """Return the scan of whole values in q rounds, on a hypercube."""
    return Nothing(size, rank) if size == 1 else HypercubeScan(size, rank)


def exscan(size: int, rank: int, skips: Skips) -> Schedule:
    """Return the exscan of whole values in one round for each of `skips`; rank 0 keeps its value."""
    return Nothing(size, rank) if size == 1 else ExclusiveScan(size, rank, skips)
