"""Make fractional trees of any shape: trees of groups that are made for a network, and the schedules of their ranks.

Sanders and Sibeyn, "A bandwidth latency tradeoff for broadcast and reduction", IPL 86, 2003, sections 3 and 4.

r = `run` = ranks of a group; see `ringcast.schedules.fractional`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from ringcast._util.dataclass import dataclass
from ringcast.schedules.fractional import FractionalTree, TreePosition, split


@dataclass
class TreeGroup:
    """A chain of ranks and its two successors; trees are built from the root, so it can be changed."""

    members: tuple[int, ...]
    down: TreeGroup | None = None
    right: TreeGroup | None = None

    @property
    def head(self) -> int:
        return self.members[0]

    def successors(self) -> tuple[TreeGroup, ...]:
        return tuple(group for group in (self.down, self.right) if group is not None)

    def attach(self, successor: TreeGroup | None) -> None:
        """Give this group one more successor (None: no change): below if that place is free, else on the right."""
        if self.down is None:
            self.down = successor
        elif successor is not None:
            assert self.right is None, "both links are in use"
            self.right = successor


def tree_of(ranks: Sequence[int], run: int) -> TreeGroup | None:
    """Return the tree of least depth over `ranks`, in preorder.

    >>> tree_of(range(4), 2)
    TreeGroup(members=(0, 1), down=TreeGroup(members=(2, 3), down=None, right=None), right=None)
    """
    if not ranks:
        return None
    down, _ = split(len(ranks), run)
    below, beside = ranks[run : run + down], ranks[run + down :]
    return TreeGroup(tuple(ranks[:run]), tree_of(below, run), tree_of(beside, run))


def groups_of(root: TreeGroup) -> Iterator[TreeGroup]:
    """Return all groups, each before its successors."""
    waiting = [root]
    while waiting:
        group = waiting.pop()
        yield group
        waiting += group.successors()


def edges_of(root: TreeGroup) -> Iterator[tuple[int, int]]:
    """Return (sender, receiver): down the chains, from the last rank to the head below, from all to the head right."""
    for group in groups_of(root):
        yield from pairwise(group.members)
        if group.down is not None:
            yield group.members[-1], group.down.head
        if group.right is not None:
            yield from ((member, group.right.head) for member in group.members)


def schedules_of(root: TreeGroup, *, run: int, nblocks: int) -> list[FractionalTree]:
    """Return the schedules of ranks 0, 1, ...: n blocks from the first rank of `root`, in d + n + ceil(n/r) - 1 rounds.

    Every rank is in one group; groups with successors have `run` ranks, others no more than that.
    """
    places = _places(root, run)
    size = len(places)
    if sorted(places) != list(range(size)):
        raise ValueError(f"the groups have {size} ranks, which must be 0 to {size - 1}")
    rounds = max(place.start for place in places.values()) + nblocks + -(-nblocks // run) - 1
    return [FractionalTree(size, rank, nblocks, run, places[rank], rounds) for rank in range(size)]


def _places(root: TreeGroup, run: int) -> dict[int, TreePosition]:
    places: dict[int, TreePosition] = {}
    waiting: list[tuple[TreeGroup, int, tuple[int, ...]]] = [(root, -1, ())]
    while waiting:
        group, start, sources = waiting.pop()
        last = len(group.members) - 1
        if last + 1 != run and (last + 1 > run or group.successors()):
            raise ValueError(
                f"a group has {last + 1} ranks; those with successors must have {run}, others at most that"
            )
        below = None if group.down is None else group.down.head
        beside = None if group.right is None else group.right.head
        for i, rank in enumerate(group.members):
            into = sources if i == 0 else (group.members[i - 1],)
            out = below if i == last else group.members[i + 1]
            places[rank] = TreePosition(start + i, i, into, out, beside)
        if group.down is not None:
            waiting.append((group.down, start + run, (group.members[-1],)))
        if group.right is not None:
            waiting.append((group.right, start + run + 1, group.members))
    return places
