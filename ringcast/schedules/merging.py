"""Make an allreduce that merges sorted sequences: each rank merges parts as they come.

Lang, "Modified Bruck/Dissemination Algorithm for Commutative Reduction in MPI", 2025 (Algorithms 0-2).

Part j is the sorted run of rank j, in slot j. Merged runs fill the slots of their ranks together, in the order of ranks
from some rank on, mod p; so a message is the slots of ranks in a row, and its size follows from the counts.

p ranks; r = this rank; q = ceil(log2 p); d = floor(log2 p); s = skips(p); x = the rank's own run.
"""

from __future__ import annotations

from functools import cached_property

from ringcast._util.dataclass import dataclass
from ringcast.schedules import circulant
from ringcast.schedules.blocks import skips
from ringcast.schedules.circulant import window
from ringcast.schedules.schedule import Copy, Local, Merge, Nothing, Schedule, Step, concat


@dataclass(frozen=True)
class MergingCensus(Schedule):
    """Algorithm 2: the census, in q rounds; every rank receives each foreign part once.

    S is the merge of all parts that came so far. Where s[k+1] is odd a rank sends S alone, else x as well: the number
    of parts is also the distance, so that no part comes twice. The paper merges x with S for the message only; here the
    two are sent beside each other, and the receiver merges. When no later round sends S alone, x is merged into S.
    """

    @property
    def parts(self) -> tuple[int, ...]:
        return (1,) * self.size

    def __len__(self) -> int:
        return len(skips(self.size))

    @cached_property
    def _last_alone(self) -> int:
        return last_alone(self.size)

    def _step(self, i: int) -> Step:
        p, r, s = self.size, self.rank, skips(self.size)
        apart = i <= self._last_alone
        run = around(r + 1, s[i] - 1, p) if apart else around(r, s[i], p)
        local = (Merge(run),) if len(run) > 1 else ()
        if i == len(s) - 1:
            return Step(local=local)
        n, alone = s[i + 1] - s[i], s[i + 1] % 2
        to, source = (r - n) % p, (r + n) % p
        return Step(to, window((r + alone) % p, n, p), source, window((source + alone) % p, n, p), local=local)


@dataclass(frozen=True)
class Dissemination(Schedule):
    """Algorithm 1, repaired: Bruck's doubling, in q rounds, with the start of each rank's run kept apart.

    After round k a rank has merged the 2^(k+1) parts from its own on. In the last round, if p is no power of two, it
    sends the first l = p - 2^d of them, which cannot be taken out of a merged run: so the ranks keep *partials*, whose
    number of parts is given by the lower bits of l, up to the present round. At a set bit k, a rank's partial becomes
    the merge of its run and the partial of the rank 2^k behind it, which comes along with the message.

    Slot p + j holds part j in a partial.
    """

    @property
    def parts(self) -> tuple[int, ...]:
        return (1,) * self.size

    @property
    def scratch(self) -> tuple[int, ...]:
        return tuple(range(self.size)) if special_rounds(self.size) else ()

    def __len__(self) -> int:
        return (self.size - 1).bit_length() + 1

    def _step(self, i: int) -> Step:
        p, r = self.size, self.rank
        local = self._merges(i)
        if i == len(self) - 1:
            return Step(local=local)
        to, source = (r - (1 << i)) % p, (r + (1 << i)) % p
        if 2 << i > p:
            length = p - (1 << i)
            return Step(to, self._partial(r, length), source, around(source, length, p), local=local)
        length = special_rounds(p).get(i, 0)
        out = around(r, 1 << i, p) + self._partial(r, length)
        into = around(source, 1 << i, p) + self._partial(source, length)
        return Step(to, out, source, into, local=local)

    def _merges(self, i: int) -> tuple[Local, ...]:
        """Return the local steps for the arrivals of round i - 1; the partial comes first, as it needs the old run."""
        p, r, k = self.size, self.rank, i - 1
        if k < 0:
            return ()
        merge = Merge(around(r, min(2 << k, p), p))
        if 2 << k > p or k not in special_rounds(p):
            return (merge,)
        copies = tuple(Copy(p + j, j) for j in around(r, 1 << k, p))
        rest = special_rounds(p)[k]
        return (*copies, *([Merge(self._partial(r, (1 << k) + rest))] if rest else []), merge)

    def _partial(self, first: int, length: int) -> tuple[int, ...]:
        return tuple(self.size + j for j in around(first, length, self.size))


@dataclass(frozen=True)
class PairwiseMerging(Schedule):
    """No rounds: all parts are there; neighbours are merged, then the results again, from the rank's own part on."""

    @property
    def parts(self) -> tuple[int, ...]:
        return (1,) * self.size

    def __len__(self) -> int:
        return 1

    def _step(self, i: int) -> Step:  # noqa: ARG002 (there is only one)
        p, r = self.size, self.rank
        widths = [1 << k for k in range((p - 1).bit_length())]
        pairs = [(start, 2 * width) for width in widths for start in range(0, p - width, 2 * width)]
        return Step(local=tuple(Merge(around(r + start, min(length, p - start), p)) for start, length in pairs))


def circulant_merging(size: int, rank: int) -> Schedule:
    """Return the merging census: q rounds."""
    return Nothing(size, rank) if size == 1 else MergingCensus(size, rank)


def dissemination(size: int, rank: int) -> Schedule:
    """Return the merging dissemination: q rounds, at most half as much again to receive as in the census."""
    return Nothing(size, rank) if size == 1 else Dissemination(size, rank)


def gather_and_merge(size: int, rank: int) -> Schedule:
    """Return Algorithm 0: an allgather in q rounds, then the merging of pairs."""
    if size == 1:
        return Nothing(size, rank)
    return concat(circulant.allgather(size, rank), PairwiseMerging(size, rank))


def last_alone(p: int) -> int:
    """Return the last round in which the census sends S without x; -1 if there is none, for powers of two.

    >>> [last_alone(p) for p in (4, 5, 6, 7, 8)]
    [-1, 2, 1, 2, -1]
    """
    return max((k for k, skip in enumerate(skips(p)[1:]) if skip % 2), default=-1) if p > 1 else -1


def special_rounds(p: int) -> dict[int, int]:
    """Return the rounds of the dissemination that change the partial, each with its number of additional parts.

    These are the set bits of l = p - 2^d, from the lowest on, each with the sum of the lower ones. (The paper makes the
    list from the highest bit on, but reads it in the order of the rounds; and reads past its end.)

    >>> special_rounds(13)
    {0: 0, 2: 1}
    """
    return {k: p % (1 << k) for k in range(p.bit_length() - 1) if p >> k & 1}


def around(first: int, length: int, p: int) -> tuple[int, ...]:
    """Return the ranks first, first + 1, … (`length` of them), mod p."""
    return tuple(j % p for j in range(first, first + length))
