"""Make schedules of collectives on the circulant graph, in the fewest rounds possible.

Träff, "(Poly)logarithmic time construction of round-optimal n-block broadcast schedules", 2022 (Algorithms 6-9);
Träff, doi 10.1145/3735139 (the schedules in O(log p)); arXiv 2407.18004 (the reversals);
Träff, "Optimal, non-pipelined reduce-scatter and allreduce algorithms", arXiv 2410.14234.

p ranks; q = ceil(log2 p); s = skips(p); r = rank counted from the root; n blocks; k = round mod q. A rank exchanges
with the ranks s[k] before and behind it. Arguments are taken as valid: `ringcast.schedules.build` checks them.
"""

from __future__ import annotations

from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from ringcast._util.dataclass import dataclass
from ringcast.schedules.blocks import (
    baseblock,
    recv_schedule,
    schedule_tables,
    send_schedule,
    skips,
)
from ringcast.schedules.schedule import (
    COMBINE_RIGHT,
    STORE,
    Combine,
    Copy,
    Nothing,
    Schedule,
    Slots,
    Step,
    concat,
    reverse,
)

__all__ = [
    "AllBroadcast",
    "AllGather",
    "Broadcast",
    "Census",
    "Scatter",
    "allgather",
    "allgatherv",
    "allreduce",
    "barrier",
    "baseblock",
    "bcast",
    "census",
    "gather",
    "recv_schedule",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_v",
    "scatter",
    "schedule_tables",
    "send_schedule",
    "skips",
]


@dataclass(frozen=True)
class Broadcast(Schedule):
    """Broadcast of n blocks in n-1+q rounds (2022, Algorithm 6); every rank but the root receives each block once.

    The first x rounds of the first phase would move nothing, so that the last block ends the last phase.
    """

    nblocks: int
    root: int = 0

    @property
    def parts(self) -> tuple[int, ...]:
        return (self.nblocks,)

    def __len__(self) -> int:
        return _rounds(self.size, self.nblocks)

    @cached_property
    def _rows(self) -> tuple[tuple[int | None, int, int | None, int], ...]:
        """For each k: destination, S[k], source, R[k]. No block goes to the root: None on both sides of a message."""
        p, s = self.size, skips(self.size)
        r = (self.rank - self.root) % p
        to = [(self.rank + skip) % p if (r + skip) % p else None for skip in s[:-1]]
        source = [(self.rank - skip) % p if r else None for skip in s[:-1]]
        return tuple(zip(to, send_schedule(p, r), source, recv_schedule(p, r), strict=True))

    def _step(self, i: int) -> Step:
        n, rows = self.nblocks, self._rows
        k = (i + 1 - n) % len(rows)
        to, out, source, into = rows[k]
        out += i - k  # i - k is q times the number of phases that are over, less x
        into += i - k
        # In the last phase numbers run past the last block; they mean the last block, which is still missing then.
        sends = to is not None and out >= 0
        receives = source is not None and into >= 0
        return Step(
            to if sends else None,
            (min(out, n - 1),) if sends else (),
            source if receives else None,
            (min(into, n - 1),) if receives else (),
        )


@dataclass(frozen=True)
class AllBroadcast(Schedule):
    """Every rank broadcasts its n blocks at the same time, in n-1+q rounds (2022, Algorithm 9).

    Part j is the contribution of rank j. In each round the blocks of all contributors travel in one message. Ranks
    without a contribution (counts[j] == 0) are left out on both sides.
    """

    nblocks: int
    counts: tuple[int, ...]

    @property
    def parts(self) -> tuple[int, ...]:
        return (self.nblocks,) * self.size

    def __len__(self) -> int:
        return _rounds(self.size, self.nblocks)

    def _step(self, i: int) -> Step:
        p, s = self.size, skips(self.size)
        k = (i + 1 - self.nblocks) % (len(s) - 1)
        to, source = (self.rank + s[k]) % p, (self.rank - s[k]) % p
        out, into = self._arrivals(to, i, k), self._arrivals(self.rank, i, k)
        return Step(
            to if len(out) else None,
            out if len(out) else (),
            source if len(into) else None,
            into if len(into) else (),
        )

    def _arrivals(self, rank: int, i: int, k: int) -> NDArray[np.intp]:
        """Return the slots that arrive at `rank` in round i: of each contributor j the block due at rank - j."""
        n, j = self.nblocks, self._contributors
        due = schedule_tables(self.size)[0][k]
        block = due[rank - j].astype(np.intp) + (i - k)  # a negative index of `due` is right, as it counts mod p
        arrives = (block >= 0) & (j != rank)
        slots: NDArray[np.intp] = j[arrives] * n + np.minimum(block[arrives], n - 1)
        return slots

    @cached_property
    def _contributors(self) -> NDArray[np.intp]:
        return _nonzero(self.counts)


@dataclass(frozen=True)
class AllGather(Schedule):
    """Allgather in q rounds; each rank receives each foreign part once (2022, Algorithm 7).

    After round k a rank has the s[k+1] parts from its own on. `whole`: the buffer is one part, cut into p blocks, one
    of each rank; otherwise it is p parts of one block each.
    """

    whole: bool = False

    @property
    def parts(self) -> tuple[int, ...]:
        return (self.size,) if self.whole else (1,) * self.size

    def __len__(self) -> int:
        return len(skips(self.size)) - 1

    def _step(self, i: int) -> Step:
        p, r, s = self.size, self.rank, skips(self.size)
        n = s[i + 1] - s[i]
        to, source = (r - s[i]) % p, (r + s[i]) % p
        return Step(to, window(r, n, p), source, window(source, n, p))


@dataclass(frozen=True)
class Census(Schedule):
    """Allreduce of whole values in q rounds (2022, Algorithm 8), then one local step.

    Every rank counts the ranks behind it: S is the sum over the ranks counted so far, without its own value x. The
    number of counted ranks grows to s[k+1] - 1, by sums with or without the sender's x. Each rank adds in an order of
    its own: the operator must be commutative, and exact if all ranks are to have the same bits.

    Slots: 0 is x, and the result at the end; 1 is S; 2 is the message (S itself must not change while it is sent).
    """

    @property
    def scratch(self) -> tuple[int, ...]:
        return (0, 0)

    def __len__(self) -> int:
        return len(skips(self.size))

    def _step(self, i: int) -> Step:
        x, total, message = 0, 1, 2
        p, s = self.size, skips(self.size)
        if i == len(s) - 1:
            return Step(local=(Combine(x, x, total),))
        if i == 0:
            return Step((self.rank - 1) % p, (x,), (self.rank + 1) % p, (total,), STORE)
        without = 2 * s[i] > s[i + 1]
        d = s[i] - 1 if without else s[i]
        local = Copy(message, total) if without else Combine(message, x, total)
        return Step((self.rank - d) % p, (message,), (self.rank + d) % p, (total,), COMBINE_RIGHT, (local,))


@dataclass(frozen=True)
class Scatter(Schedule):
    """Scatter down a circulant tree in q rounds: the holder of a range passes on the parts from s[k] behind it on.

    Part j is for rank j. In round q-1-k the holder r of [r, r+length), length > s[k], sends [r+s[k], r+length) to
    r + s[k]. A rank receives its range once, then halves it; the root sends p-1 parts, the least possible.
    """

    root: int = 0

    @property
    def parts(self) -> tuple[int, ...]:
        return (1,) * self.size

    def __len__(self) -> int:
        return len(skips(self.size)) - 1

    @cached_property
    def _range(self) -> tuple[int, int]:
        """The round index k in which this rank gets its range (q: it is the root), and the length of the range."""
        s = skips(self.size)
        rest, length, got = (self.rank - self.root) % self.size, self.size, len(s) - 1
        for k in reversed(range(len(s) - 1)):
            if rest == 0:
                break
            if rest >= s[k]:
                rest, length, got = rest - s[k], length - s[k], k
            else:
                length = min(length, s[k])
        return got, length

    def _step(self, i: int) -> Step:
        p, s = self.size, skips(self.size)
        k = len(s) - 2 - i
        got, length = self._range
        if k == got:
            return Step(recv_from=(self.rank - s[k]) % p, recv=window(self.rank, length, p))
        length = min(length, s[k + 1])
        if k > got or length <= s[k]:
            return Step()
        to = (self.rank + s[k]) % p
        return Step(to, window(to, length - s[k], p))


def bcast(size: int, rank: int, *, nblocks: int, root: int = 0) -> Schedule:
    """Return the broadcast of `nblocks` blocks from `root`: n-1+q rounds."""
    return Nothing(size, rank, (nblocks,)) if size == 1 else Broadcast(size, rank, nblocks, root)


def reduce(size: int, rank: int, *, nblocks: int, root: int = 0) -> Schedule:
    """Return the reduction of `nblocks` blocks to `root`: n-1+q rounds, commutative operators."""
    return reverse(bcast(size, rank, nblocks=nblocks, root=root))


def allgatherv(size: int, rank: int, *, nblocks: int, counts: tuple[int, ...]) -> Schedule:
    """Return the all-broadcast: n-1+q rounds for any counts; a count of 0 only leaves its rank out as contributor."""
    return Nothing(size, rank, (nblocks,)) if size == 1 else AllBroadcast(size, rank, nblocks, counts)


def reduce_scatter_v(size: int, rank: int, *, nblocks: int, counts: tuple[int, ...]) -> Schedule:
    """Return the reduction of every part j to rank j: n-1+q rounds, commutative operators."""
    return reverse(allgatherv(size, rank, nblocks=nblocks, counts=counts))


def allgather(size: int, rank: int, *, whole: bool = False) -> Schedule:
    """Return the allgather in q rounds; for `whole` see `AllGather`."""
    return Nothing(size, rank) if size == 1 else AllGather(size, rank, whole)


def reduce_scatter(size: int, rank: int, *, whole: bool = False) -> Schedule:
    """Return the reduction of every part j to rank j: q rounds, commutative operators."""
    return reverse(allgather(size, rank, whole=whole))


def allreduce(size: int, rank: int) -> Schedule:
    """Return reduce_scatter, then allgather, of one vector cut into p blocks: 2q rounds, commutative operators.

    Every block has one owner, so all ranks end with the same bits.
    """
    return concat(reduce_scatter(size, rank, whole=True), allgather(size, rank, whole=True))


def census(size: int, rank: int) -> Schedule:
    """Return the allreduce of whole values in q rounds; the operator must be commutative and exact."""
    return Nothing(size, rank) if size == 1 else Census(size, rank)


def barrier(size: int, rank: int) -> Schedule:
    """Return the census of empty values: its slots may have no bytes, but its q messages are sent."""
    return census(size, rank)


def scatter(size: int, rank: int, *, root: int = 0) -> Schedule:
    """Return the scatter from `root` in q rounds."""
    return Nothing(size, rank) if size == 1 else Scatter(size, rank, root)


def gather(size: int, rank: int, *, root: int = 0) -> Schedule:
    """Return the gather to `root` in q rounds: the scatter backwards."""
    return reverse(scatter(size, rank, root=root), STORE)


def window(start: int, length: int, p: int) -> Slots:
    """Return the slots start, start+1, ... (`length` of them, mod p): a range if possible.

    >>> window(3, 2, 5), window(4, 3, 5).tolist()
    (range(3, 5), [4, 0, 1])
    """
    stop = start + length
    return range(start, stop) if stop <= p else np.arange(start, stop) % p


def _rounds(p: int, n: int) -> int:
    """Return n-1+q, the least number of rounds in which n blocks reach p ranks."""
    return n - 1 + (p - 1).bit_length() if p > 1 else 0


@lru_cache(maxsize=64)
def _nonzero(counts: tuple[int, ...]) -> NDArray[np.intp]:
    """Return the indices of the counts that are not 0; shared by all ranks of one process."""
    indices = np.flatnonzero(np.array(counts))
    indices.flags.writeable = False
    return indices
