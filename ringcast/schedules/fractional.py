"""Make fractional trees: broadcast of n blocks down a tree of chains, between a linear pipeline and a binary tree.

Sanders and Sibeyn, "A bandwidth latency tradeoff for broadcast and reduction", IPL 86, 2003 (section 3, Figure 2).
Our additions: n need not be a multiple of r; and p = 2 does without pauses.

p ranks; v = rank counted from the root; n blocks; r = `run` = ranks of a group. A group is a chain of r ranks, which
passes blocks on in runs of r. It has two successors: the last rank of the chain passes all blocks *down*, and in a
pause after each run the i-th rank passes the i-th block of the run to the *right*. So the head of the group on the
right gets a run every r+1 rounds, too, one round later than the head below. A group of fewer ranks has no successors.

Ranks are numbered in preorder: the group, all groups below it, all on its right. So v+1 is the next rank in the chain,
or the head below. d = the last round in which any rank gets its first block.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import lru_cache
from math import isqrt

from ringcast._util.dataclass import dataclass
from ringcast.schedules.schedule import Nothing, Schedule, Step, reverse


@dataclass(frozen=True)
class TreePosition:
    """The place of a rank in a tree of groups.

    Attributes:
        start: the round in which the first block of the first run arrives; -1 for the root, which has all blocks.
        index: the number of the rank in its group.
        sources: the senders: none (for the root), one rank, or one rank for each block of a run.
        down: the next rank in the chain, or the head of the group below.
        right: the head of the group on the right.
    """

    start: int
    index: int
    sources: tuple[int, ...]
    down: int | None
    right: int | None


@dataclass(frozen=True)
class FractionalTree(Schedule):
    """One rank's part in the broadcast of n blocks down a tree of groups, which ends after `rounds`.

    If n is not a multiple of r, the first run is the short one, and the rounds in which its missing blocks would leave
    the root are left out.
    """

    nblocks: int
    run: int
    place: TreePosition
    rounds: int

    @property
    def parts(self) -> tuple[int, ...]:
        return (self.nblocks,)

    def __len__(self) -> int:
        return self.rounds

    def _step(self, i: int) -> Step:
        since = i + self._missing - self.place.start
        source, into = self._arrives(since)
        to, out = self._leaves(since - 1)
        return Step(
            to,
            () if to is None else (out,),
            source,
            () if source is None else (into,),
        )

    @property
    def _missing(self) -> int:
        """The number of blocks that the first run lacks."""
        return -self.nblocks % self.run

    def _arrives(self, since: int) -> tuple[int | None, int]:
        """Return the sender and its block, `since` rounds after the beginning of the first run."""
        nth, i = divmod(since, self.run + 1)
        block, sources = nth * self.run + i - self._missing, self.place.sources
        if i == self.run or not sources or not 0 <= block < self.nblocks:
            return None, 0
        return sources[i % len(sources)], block

    def _leaves(self, since: int) -> tuple[int | None, int]:
        """Return a receiver and its block: down in the order of arrival, one to the right in the pause."""
        nth, i = divmod(since, self.run + 1)
        pause = i == self.run
        to = self.place.right if pause else self.place.down
        block = nth * self.run + (self.place.index if pause else i) - self._missing
        return (to, block) if to is not None and 0 <= block < self.nblocks else (None, 0)


@lru_cache(maxsize=256)
def reached(p: int, run: int) -> tuple[int, ...]:
    """Return the numbers of ranks that the first block reaches in 0, 1, ... rounds, up to the first one that is >= `p`.

    P[i] = r + P[i-r] + P[i-r-1]; P[i] = i+1 for i <= r.

    >>> reached(20, 1), reached(10, 2)
    ((1, 2, 4, 7, 12, 20), (1, 2, 3, 5, 7, 10))
    """
    levels = list(range(1, min(p, run + 1) + 1))
    while levels[-1] < p:
        levels.append(run + levels[-run] + levels[-run - 1])
    return tuple(levels)


def depth(p: int, run: int) -> int:
    """Return d = min{i: P[i] >= p} - 1.

    >>> depth(1024, 8), depth(1024, 10)
    (57, 68)
    """
    return len(reached(p, run)) - 2


def split(size: int, run: int) -> tuple[int, int]:
    """Return the numbers of ranks below the first group of `size` ranks, and on its right.

    >>> split(12, 1), split(10, 2), split(2, 2)
    ((7, 4), (5, 3), (0, 0))
    """
    rest = size - run
    if rest <= 0:
        return 0, 0
    levels = reached(size, run)
    down = min(rest, levels[bisect_left(levels, size) - run])
    return down, rest - down


def place_of(p: int, run: int, v: int) -> TreePosition:
    """Return the place of rank v of the tree of p ranks, in O(d)."""
    head, size, start = 0, p, -1  # of the group of v, or of a group above it
    sources: tuple[int, ...] = ()
    while v - head >= run:
        down, right = split(size, run)
        if v - head < run + down:
            head, size, start, sources = head + run, down, start + run, ()
        else:
            sources = tuple(range(head, head + run))
            head, size, start = head + run + down, right, start + run + 1
    down, right = split(size, run)
    i, last = v - head, v - head + 1 == min(size, run)
    return TreePosition(
        start + i,
        i,
        sources if i == 0 and sources else (v - 1,) if v else (),
        v + 1 if down or not last else None,
        head + run + down if right else None,
    )


def tree_rounds(p: int, run: int, nblocks: int) -> int:
    """Return d + n + ceil(n / r) - 1, which for r | n is the paper's d + s (1 + 1/r), less one.

    >>> tree_rounds(12, 1, 6), tree_rounds(13, 2, 12), tree_rounds(17, 3, 18), tree_rounds(20, 4, 24)
    (14, 22, 30, 38)
    """
    if p == 1:
        return 0
    run = _without_pauses(p, nblocks) if p == 2 else run
    return depth(p, run) + nblocks + -(-nblocks // run) - 1


def run_for(p: int, nblocks: int) -> int:
    """Return the r for which the tree takes about the fewest rounds, as section 3 chooses it.

    With d = d' (r+1), d' = q - 1, it is r = sqrt(n / d'): the paper's two equations, r = (k / (d' t))^(1/3) and
    s = sqrt(k d' r / t), without k / t. Where all ranks would be in one chain, no block goes to the right, and there
    are no pauses. Computed in whole numbers, as all ranks must choose alike.

    >>> run_for(1024, 456), run_for(1024, 1), run_for(4, 50)
    (7, 1, 50)
    """
    chains = max((p - 1).bit_length() - 1, 1)
    run = max((isqrt(4 * nblocks // chains) + 1) // 2, 1)
    return run if run < p - 1 else _without_pauses(p, nblocks)


def _without_pauses(p: int, nblocks: int) -> int:
    """Return an r so large that all ranks are one chain, and all blocks one run."""
    return max(p, nblocks)


def fractional_tree(size: int, rank: int, *, nblocks: int, run: int, root: int = 0) -> Schedule:
    """Return the broadcast down the fractional tree with groups of `run` ranks: d + n + ceil(n/r) - 1 rounds."""
    if size == 1:
        return Nothing(size, rank, (nblocks,))
    run = _without_pauses(size, nblocks) if size == 2 else run
    place = _from_root(place_of(size, run, (rank - root) % size), size, root)
    return FractionalTree(size, rank, nblocks, run, place, tree_rounds(size, run, nblocks))


def _from_root(place: TreePosition, p: int, root: int) -> TreePosition:
    """Return `place` with ranks instead of their numbers counted from the root."""
    down, right = (None if v is None else (v + root) % p for v in (place.down, place.right))
    return TreePosition(place.start, place.index, tuple((v + root) % p for v in place.sources), down, right)


def linear_pipeline(size: int, rank: int, *, nblocks: int, root: int = 0) -> Schedule:
    """Return the broadcast down a single chain: p - 2 + n rounds (section 2; the case r = infinity)."""
    return fractional_tree(size, rank, nblocks=nblocks, run=_without_pauses(size, nblocks), root=root)


def binary_tree(size: int, rank: int, *, nblocks: int, root: int = 0) -> Schedule:
    """Return the broadcast down the skewed binary tree: d + 2n - 1 rounds (section 2; the case r = 1)."""
    return fractional_tree(size, rank, nblocks=nblocks, run=1, root=root)


def fractional_reduce(size: int, rank: int, *, nblocks: int, run: int, root: int = 0) -> Schedule:
    """Return the reduction that runs `fractional_tree` backwards; commutative operators."""
    return reverse(fractional_tree(size, rank, nblocks=nblocks, run=run, root=root))
