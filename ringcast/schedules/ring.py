"""Make the allgatherv around a ring: part by part, or pipelined block by block; and its reversals, which reduce.

Träff, Ripke, Siebert, Balaji, Thakur, Gropp, "A pipelined algorithm for large, irregular all-gather problems",
IJHPCA 24(1), 2010. Our additions: the two directions of a rank are streams of their own, so that a rank that waits
for a block goes on with the other stream; and the number of rounds is exact also where parts are empty (the paper's
floor(z / (p-z)) has to be a ceiling).

The paper cuts a part into blocks of B and a last one that may be smaller, or into as many blocks of about even size
(here the default: no block is tiny). For the order of the ranks around the ring see `ringcast.schedules.ringorder`.

p ranks; z of them contribute nothing; i, j = positions on the ring; b[i] = number of blocks of position i; B = size
of a block. Each position sends to the next, first its own blocks, then the received ones, in order of arrival, but no
block back to the position that contributed it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property, lru_cache
from itertools import accumulate
from math import sqrt

from ringcast._util.dataclass import dataclass
from ringcast.schedules.ringorder import ring_order
from ringcast.schedules.schedule import Nothing, Schedule, Step, concat, joined, reverse


@dataclass(frozen=True)
class Ring(Schedule):
    """Allgather part by part in p-1 rounds: send on the part that came in the round before."""

    @property
    def parts(self) -> tuple[int, ...]:
        return (1,) * self.size

    def __len__(self) -> int:
        return self.size - 1

    def _step(self, i: int) -> Step:
        p, r = self.size, self.rank
        return Step((r + 1) % p, ((r - i) % p,), (r - 1) % p, ((r - i - 1) % p,))


@dataclass(frozen=True)
class PipelinedRing(Schedule):
    """Allgatherv in blocks of about equal size, whatever the counts: part j has `parts[j]` blocks, or none.

    `full_blocks`: all blocks of a part but its last have the same size B. `order` is the rank at each position.

    A rank's steps are the rounds of the lock-step run in which every link carries its next block as soon as it can;
    so a block that is sent has come in an earlier step, and ranks that do their steps in order cannot wait in a circle.
    """

    nblocks: int
    counts: tuple[int, ...]
    full_blocks: bool = False
    order: tuple[int, ...] = ()  # (): the order of `ring_order`

    @property
    def parts(self) -> tuple[int, ...]:
        return blocks_of(self.counts, self.nblocks)

    @property
    def full(self) -> int | None:
        return _largest_block(self.counts, self.nblocks) if self.full_blocks else None

    def __len__(self) -> int:
        return max(self._out.length, self._in.length)

    def _step(self, i: int) -> Step:
        out, into = self._out.slot(i), self._in.slot(i)
        return Step(
            None if out is None else self._out.end,
            () if out is None else (out,),
            None if into is None else self._in.start,
            () if into is None else (into,),
        )

    @cached_property
    def _out(self) -> _Link:
        layout = _layout(self.counts, self.nblocks, self.order)
        return layout.link(layout.position[self.rank])

    @cached_property
    def _in(self) -> _Link:
        layout = _layout(self.counts, self.nblocks, self.order)
        return layout.link((layout.position[self.rank] - 1) % self.size)


@dataclass(frozen=True)
class _Link:
    """The data that travels from rank `start` to rank `end`: runs of blocks, each the part of one rank.

    Run h begins in round rounds[h] with slot slots[h]; its sizes[h] blocks follow each other without a gap.
    """

    start: int
    end: int
    rounds: Sequence[int]
    slots: Sequence[int]
    sizes: Sequence[int]

    @property
    def length(self) -> int:
        return self.rounds[-1] + self.sizes[-1] if self.rounds else 0

    def slot(self, i: int) -> int | None:
        """Return the slot that travels in round i, or None."""
        h = bisect_right(self.rounds, i) - 1
        if h < 0 or i - self.rounds[h] >= self.sizes[h]:
            return None
        return self.slots[h] + i - self.rounds[h]


@dataclass(frozen=True)
class _Layout:
    """The ring of one call, the same for all ranks."""

    order: tuple[int, ...]  # of each position: the rank there
    position: tuple[int, ...]  # of each rank: its position
    sizes: tuple[int, ...]  # of each position: its number of blocks, b
    slots: tuple[int, ...]  # of each position: its first slot

    def link(self, i: int) -> _Link:
        """Return the data that travels from position i to the next, in O(p).

        The s-th block on a link is the position's own, or came as the (s - b[i])-th on the link before. So its delay
        (its round - s) is D[i] = max(0, D[i-1] + 1 - b[i]), as in a queue; where blocks start their way D is 0.
        Unrolled: the largest sum of the 1 - b over the positions up to i, from any one behind j on.
        """
        p = len(self.order)
        rounds, slots, sizes = [], [], []
        before = delay = deficit = 0  # blocks that came before; the largest sum so far; the sum itself
        for j in (x % p for x in range(i, i - p + 1, -1)):
            if self.sizes[j]:
                delay = max(delay, deficit)
                rounds.append(before + delay)
                slots.append(self.slots[j])
                sizes.append(self.sizes[j])
            before += self.sizes[j]
            deficit += 1 - self.sizes[j]
        return _Link(self.order[i], self.order[(i + 1) % p], rounds, slots, sizes)


def ring(size: int, rank: int) -> Schedule:
    """Return the linear ring: p-1 rounds, each as long as the largest part."""
    return Nothing(size, rank) if size == 1 else Ring(size, rank)


def pipelined_ring(
    size: int,
    rank: int,
    *,
    nblocks: int,
    counts: tuple[int, ...],
    full_blocks: bool = False,
    order: tuple[int, ...] = (),
) -> Schedule:
    """Return the pipelined ring; `nblocks` is the number of blocks of the largest part; see `PipelinedRing`."""
    if size == 1:
        return Nothing(size, rank, blocks_of(counts, nblocks))
    return PipelinedRing(size, rank, nblocks, counts, full_blocks, order)


def allreduce(size: int, rank: int, *, nblocks: int, order: tuple[int, ...] = ()) -> Schedule:
    """Return the reduce-scatter, then the allgather, of one vector cut into p parts of `nblocks` blocks.

    2 (p-1) `nblocks` rounds of a block each; every rank sends and receives 2m(p-1)/p. Every block has one owner, so all
    ranks end with the same bits.
    """
    around = pipelined_ring(size, rank, nblocks=nblocks, counts=(nblocks,) * size, order=order)
    return joined(concat(reverse(around), around))


@lru_cache(maxsize=64)
def blocks_of(counts: tuple[int, ...], nblocks: int) -> tuple[int, ...]:
    """Return ceil(count / B) for each part; B is the least size for which the largest part has at most `nblocks`.

    >>> blocks_of((10, 0, 4, 5), 2)
    (2, 0, 1, 1)
    """
    largest = _largest_block(counts, nblocks)
    return tuple(-(-m // largest) for m in counts)


def _largest_block(counts: tuple[int, ...], nblocks: int) -> int:
    """Return B, the least size of blocks for which the largest part has at most `nblocks` blocks."""
    return -(-max(counts) // nblocks) or 1


def ring_rounds(counts: tuple[int, ...], nblocks: int, order: tuple[int, ...] = ()) -> int:
    """Return the number of rounds of the pipelined ring, in O(p).

    Without empty parts it is b - min(b[i]), where b is the number of all blocks. With empty parts it is b - 1 + the
    length of the longest row of empty parts, if every other part has more blocks than that length.

    >>> ring_rounds((5, 1, 1), 5), ring_rounds((5, 0, 0, 0, 5), 5)
    (6, 11)
    """
    p = len(counts)
    if p == 1 or not any(counts):
        return 0
    sizes = _layout(counts, nblocks, order).sizes
    total = sum(sizes)
    # level[i] - level[l] is the sum of the 1 - b over the positions behind l up to i, on a ring unrolled twice.
    level = list(accumulate(1 - b for b in sizes + sizes))
    low = [v if b else 2 * p for v, b in zip(level, sizes + sizes, strict=True)]  # empty positions start no run
    least_from = list(accumulate(reversed(low[:p]), min))[::-1]
    least_upto = list(accumulate(low[p:], min))
    return max(
        total - sizes[(i + 1) % p] + level[p + i] - min(least_upto[i], least_from[i + 2] if i + 2 < p else 2 * p)
        for i in range(p)
        if total > sizes[(i + 1) % p]
    )


def block_size(counts: Sequence[int], alpha: float, beta: float) -> float:
    """Return the B that makes the pipelined ring fastest, by formula (2) of the paper; counts in bytes.

    The formula counts half a block per part as lost in rounding up.
    """
    p, z = len(counts), sum(m == 0 for m in counts)
    if z == p:
        return 0.0
    start_up = (p + z) / 2 - 1 + z // (p - z)  # rounds besides m/B
    return min(sqrt(sum(counts) * alpha / beta / start_up), max(counts)) if start_up > 0 else max(counts)


@lru_cache(maxsize=64)
def _layout(counts: tuple[int, ...], nblocks: int, wanted: tuple[int, ...]) -> _Layout:
    order, blocks = wanted or ring_order(counts), blocks_of(counts, nblocks)
    position = sorted(range(len(order)), key=order.__getitem__)
    first = list(accumulate(blocks, initial=0))
    return _Layout(order, tuple(position), tuple(blocks[r] for r in order), tuple(first[r] for r in order))
