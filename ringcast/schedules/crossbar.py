"""Make fractional trees on an a x b hierarchical crossbar: a modules of b ranks, with few channels between modules.

Sanders and Sibeyn, "A bandwidth latency tradeoff for broadcast and reduction", IPL 86, 2003, section 4.

Within a module any two ranks are connected. A channel leads out of a module, or into it; a message between modules
takes one of each. Rank r is in module r // b. Groups have `run` ranks. An edge of the tree keeps its channels, and in a
round no channel has more than one message.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from ringcast._util.dataclass import dataclass
from ringcast.schedules.fractional import split
from ringcast.schedules.grouptree import TreeGroup, groups_of, tree_of


@dataclass(frozen=True)
class Channel:
    """One of the channels that lead out of a module, or into it."""

    module: int
    out: bool
    number: int


def one_group(modules: int, width: int, run: int) -> TreeGroup:
    """Return the first variant: one group of each module in a global tree; two channels out and two in.

    A group of the global tree with fewer than two successors is followed by the tree of its own module. The links that
    are then left at the leaves, one more than needed, lead to the trees of the other groups' modules.

    Raises:
        ValueError: a module has no room for a group.
    """
    _check(modules, width, run, 1)
    home = [range(m * width, (m + 1) * width) for m in range(modules)]
    tree = _modules(0, modules)
    group = [TreeGroup(tuple(ranks[:run])) for ranks in home]
    for m, children in enumerate(tree):
        for child in children:
            group[m].attach(group[child])
    local = [tree_of(ranks[run:], run) for ranks in home]
    leaves = iter([m for m, children in enumerate(tree) if not children])
    for m, children in enumerate(tree):
        if len(children) < 2:
            group[m].attach(local[m])
    for m, children in enumerate(tree):
        if len(children) == 2:
            group[next(leaves)].attach(local[m])
    return group[0]


def two_groups(modules: int, width: int, run: int) -> TreeGroup:
    """Return the second variant: two groups of each module in the global tree; two channels out, one in.

    The first leads to the second and to another module, the second to the local tree and perhaps to one more module.
    This variant costs at most r+1 more rounds on each level of the global tree.

    Raises:
        ValueError: a module has no room for two groups.
    """
    _check(modules, width, run, 2)
    home = [range(m * width, (m + 1) * width) for m in range(modules)]
    first = [TreeGroup(tuple(ranks[:run])) for ranks in home]
    second = [TreeGroup(tuple(ranks[run : 2 * run]), tree_of(ranks[2 * run :], run)) for ranks in home]
    for m, children in enumerate(_modules(0, modules)):
        first[m].down = second[m]
        for link, child in zip((first[m], second[m]), children, strict=False):
            link.attach(first[child])
    return first[0]


def channels(root: TreeGroup, width: int) -> dict[tuple[int, int], tuple[Channel, ...]]:
    """Return for each edge of the tree, sender and receiver, the channels that it takes: none within a module.

    The members of a group that feed the head on its right, one in each round, share their channels.
    """
    used: Counter[tuple[int, bool]] = Counter()
    taken: dict[tuple[int, int], tuple[Channel, ...]] = {}
    for group in groups_of(root):
        links = [(group.members[-1:], group.down), (group.members, group.right)]
        for senders, successor in links:
            if successor is None:
                continue
            source, target = senders[0] // width, successor.head // width
            ends = ((source, True), (target, False)) if source != target else ()
            route = tuple(Channel(*end, used[end]) for end in ends)
            used.update(ends)
            taken |= {(sender, successor.head): route for sender in senders}
        taken |= dict.fromkeys(pairwise(group.members), ())
    return taken


def _modules(first: int, size: int) -> list[tuple[int, ...]]:
    """Return for each of the modules from `first` on its successors in a skewed binary tree, in preorder."""
    if not size:
        return []
    down, right = split(size, 1)
    children = tuple(child for child, n in ((first + 1, down), (first + 1 + down, right)) if n)
    return [children, *_modules(first + 1, down), *_modules(first + 1 + down, right)]


def _check(modules: int, width: int, run: int, groups: int) -> None:
    if modules < 1 or run < 1:
        raise ValueError(f"modules and run must be positive, not {modules} and {run}")
    if width < groups * run:
        raise ValueError(f"a module of {width} ranks has no room for {groups} groups of {run}; use a smaller run")
