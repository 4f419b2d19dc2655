"""Make fractional trees on a mesh: an H-tree of groups, in which no link of the mesh ever has two messages at a time.

Sanders and Sibeyn, "A bandwidth latency tradeoff for broadcast and reduction", IPL 86, 2003, section 4, Figure 4; see
`ringcast.schedules.embedding`.

Against the direction of a chain the links of its submesh are free for messages of others: along the rows from the end
of the chain to its beginning, in a column up or down. Messages of all ranks of a group to the head of the group on its
right are collected along the rows, and then in the column of that head. If the sending group begins in this column,
both directions of the column are in use, and messages to this group must come straight to its head.

So a group that sends up and down is fed by the end of a chain beside it. A group that sends to the left and right has
two groups beside it: its chain leads to the first; its ranks feed a helper, whose chain leads to the second. Helpers
need room: this H-tree has a leaf in each square of 4 x 4 groups (2 x 2 in the paper). The other groups of a square
follow the leaf in the best way that some attempts in random order find; a plan for one square fits most squares of the
same kind.
"""

from __future__ import annotations

from itertools import islice, product
from random import Random
from typing import TypeAlias

from ringcast.schedules.embedding import Embedding, Mesh, Node, Spot, Turn, xy_route
from ringcast.schedules.grouptree import TreeGroup

__all__ = ["Mesh", "h_tree", "mesh_tree", "xy_route"]

SQUARE = 4  # groups in a row of a square
ATTEMPTS = 200  # to fill a square; a quarter of them succeed, or more
ENOUGH = 5  # attempts that succeed: the best of them is taken

_Plan: TypeAlias = "list[tuple[Spot, Turn, Spot, bool]]"  # spot in the square, turn, parent, below


def mesh_tree(mesh: Mesh) -> TreeGroup:
    """Return the tree of the groups of `mesh`, whose root is in the middle.

    Tests cover groups of r1, r2 <= 4 and some larger ones, up to 32 x 32 groups; whether r2 is odd or even matters
    most.

    Raises:
        ValueError: no attempt to fill a square succeeded.

    >>> mesh_tree(Mesh(1, 3, 1, 3))
    TreeGroup(members=(2, 1, 0), down=None, right=None)
    """
    embedding = h_tree(mesh)
    _fill(embedding)
    return embedding.tree()


def h_tree(mesh: Mesh) -> Embedding:
    """Return the H-tree with its helpers: leaves are about in the middle of the squares."""
    embedding = Embedding(mesh)
    middle = max(mesh.side // 2 - 1, 0)
    _plant(embedding, (middle, middle), mesh.side, (-1, _last(mesh)))
    return embedding


def _last(mesh: Mesh) -> int:
    """Return the direction in which a chain ends if it begins downwards (1); or begins if it ends downwards."""
    return 1 if mesh.wide % 2 else -1


def _plant(
    embedding: Embedding, spot: Spot, side: int, turn: Turn, parent: Spot | None = None, *, below: bool = True
) -> None:
    """Place the H-tree of side x side groups with its root at `spot`.

    The root ends at the bottom, and so do helpers; the groups beside them begin there. Their ranks feed the group
    underneath, and their chains lead upwards.
    """
    _put(embedding, spot, turn, parent, below=below)
    if side <= SQUARE:
        return
    (y, x), last, leaves = spot, _last(embedding.mesh), side == 2 * SQUARE
    away = 1 if leaves else side // 4
    for h in (-1, 1):
        feeder = spot
        if h != turn[0]:
            feeder = (y, x + h)
            _put(embedding, feeder, (h, last), spot, below=False)
        beside = (y, feeder[1] + h if leaves else x + h * away)
        _put(embedding, beside, (h, -1), feeder)
        under, over = (y + away, beside[1]), (y - away, beside[1])
        _plant(embedding, under, side // 2, (h, -last if leaves else last), beside, below=False)
        _plant(embedding, over, side // 2, (-h, last), beside)


def _put(embedding: Embedding, spot: Spot, turn: Turn, parent: Spot | None, *, below: bool = True) -> None:
    node = embedding.node(spot, turn, parent, below=below)
    assert node is not None, f"the group at {spot} is in the way of another one"
    embedding.put(node)


def _fill(embedding: Embedding) -> None:
    """Let all other groups follow the leaves, square by square."""
    total = embedding.mesh.side
    side = min(total, SQUARE)
    plans: list[_Plan] = []
    for corner in product(range(0, total, side), range(0, total, side)):
        square = {_plus(corner, spot) for spot in product(range(side), range(side))}
        spots = square - embedding.nodes.keys()
        if not any(_follow(embedding, plan, corner, spots) for plan in plans):
            best = _best(embedding, square)
            plans.append(
                [(_minus(n.spot, corner), n.turn, _minus(n.parent, corner), n.below) for n in best if n.parent]
            )
            for node in best:
                embedding.put(node)


def _follow(embedding: Embedding, plan: _Plan, corner: Spot, spots: set[Spot]) -> bool:
    """Fill the spots of the square at `corner` by a plan; return whether it fits."""
    placed: list[Node] = []
    if {_plus(corner, spot) for spot, *_ in plan} == spots:
        for spot, turn, parent, below in plan:
            node = embedding.node(_plus(corner, spot), turn, _plus(corner, parent), below=below)
            if node is None:
                break
            embedding.put(node)
            placed.append(node)
        else:
            return True
    for node in placed:
        embedding.remove(node)
    return False


def _best(embedding: Embedding, square: set[Spot]) -> list[Node]:
    """Return groups that fill the square; of the attempts the one whose last group gets its first block earliest."""
    attempts = (_attempt(embedding, square, Random(seed)) for seed in range(ATTEMPTS))
    found = list(islice((nodes for nodes in attempts if nodes is not None), ENOUGH))
    if not found:
        shape = f"groups of {embedding.mesh.high} x {embedding.mesh.wide}"
        raise ValueError(f"{shape}: no attempt has filled a square of them; use groups of another shape")
    return min(found, key=lambda nodes: max((node.start for node in nodes), default=-1))


def _attempt(embedding: Embedding, square: set[Spot], chance: Random) -> list[Node] | None:
    """Return groups that fill the square, in the order in which they follow each other, or None if the attempt fails.

    Groups that can have their first block early go first; but a group without free neighbours goes even before them.
    """
    left, placed = square - embedding.nodes.keys(), list[Node]()
    options = [node for spot in sorted(square - left) for node in _followers(embedding, spot, left)]
    while left:
        options = [node for node in options if node.spot in left and embedding.fits(node)]
        last = {spot for spot in left if left.isdisjoint(_near(spot))}
        if not options or not last <= {node.spot for node in options}:
            break
        first = [node for node in options if node.spot in last] or options
        node = min(first, key=lambda node: node.start + embedding.mesh.run * chance.random())
        embedding.put(node)
        placed.append(node)
        left.remove(node.spot)
        options += _followers(embedding, node.spot, left)
    for node in placed:
        embedding.remove(node)
    return None if left else placed


def _followers(embedding: Embedding, parent: Spot, spots: set[Spot]) -> list[Node]:
    """Return the ways in which the group at `parent` can be followed by one at some of the spots."""
    every = product(sorted(_near(parent) & spots), product((1, -1), (1, -1)), (True, False))
    nodes = (embedding.node(spot, turn, parent, below=below) for spot, turn, below in every)
    return [node for node in nodes if node is not None]


def _near(spot: Spot) -> set[Spot]:
    y, x = spot
    return {(y, x - 1), (y - 1, x), (y, x + 1), (y + 1, x)}


def _plus(a: Spot, b: Spot) -> Spot:
    return a[0] + b[0], a[1] + b[1]


def _minus(a: Spot, b: Spot) -> Spot:
    return a[0] - b[0], a[1] - b[1]
