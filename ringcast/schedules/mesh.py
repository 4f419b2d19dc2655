"""Fractional trees on an a x b mesh: an H-tree of groups, in which no link of the mesh ever has two messages at a time.

Sanders and Sibeyn, "A bandwidth latency tradeoff for broadcast and reduction", IPL 86, 2003, section 4, Figure 4.

The mesh is cut into 2^g x 2^g submeshes of r1 x r2 ranks, each a group, whose chain goes through it like a snake. An
H-tree of groups has a leaf in each square of 2 x 2 groups; the groups that are not in it follow a leaf. Rank y * b + x
is in row y and column x. Links have two directions, which count as two; messages go along the row first, then along the
column (x-y routing).

How groups are turned, and which successor is the one below, is found by search: a group goes where all its messages
find their links free, in each of the r+1 rounds after which everything repeats. It finds cuts into 1 x 2, as in
Figure 4 (tried up to 16 x 16 groups), and into 2 x 2 groups; of longer ones, rows of up to four ranks in 4 x 4 groups.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise, product
from typing import TypeAlias

from ringcast.schedules.grouptree import Group

Spot: TypeAlias = tuple[int, int]  # row and column of a group
Use: TypeAlias = tuple[int, int, int]  # from rank, to rank, round mod r+1

TRIES = 1_000  # of the search; most of those that end well hardly take a step back


@dataclass(frozen=True)
class Mesh:
    """A mesh of `rows` x `columns` ranks, cut into groups of `high` x `wide`.

    Raises:
        ValueError: rows / high and columns / wide are not the same power of two.
    """

    rows: int
    columns: int
    high: int
    wide: int

    def __post_init__(self) -> None:
        n = self.rows // self.high if self.high > 0 else 0
        if n * self.high != self.rows or n * self.wide != self.columns or n < 1 or n & (n - 1):
            shape = f"{self.rows} x {self.columns} ranks in groups of {self.high} x {self.wide}"
            raise ValueError(f"{shape}: there must be as many groups in a row as in a column, a power of two")

    @property
    def run(self) -> int:
        return self.high * self.wide

    @property
    def side(self) -> int:
        """The number of groups in a row, and in a column."""
        return self.rows // self.high

    def route(self, source: int, target: int) -> list[tuple[int, int]]:
        """Return the links from `source` to `target`; see `xy_route`."""
        return xy_route(self.columns, source, target)

    def snakes(self, spot: Spot) -> list[tuple[int, ...]]:
        """Return the ways through the submesh at `spot`: from each corner, row by row or column by column."""
        top, left = spot[0] * self.high, spot[1] * self.wide
        ys, xs = range(top, top + self.high), range(left, left + self.wide)
        ways = set()
        for v, h in product((ys, ys[::-1]), (xs, xs[::-1])):
            ways.add(tuple(y * self.columns + x for i, y in enumerate(v) for x in h[:: (-1) ** i]))
            ways.add(tuple(y * self.columns + x for i, x in enumerate(h) for y in v[:: (-1) ** i]))
        return sorted(ways)


def xy_route(columns: int, source: int, target: int) -> list[tuple[int, int]]:
    """Return the links from rank `source` to rank `target` of a mesh: along the row, then along the column.

    >>> xy_route(4, 0, 6)
    [(0, 1), (1, 2), (2, 6)]
    """
    (y0, x0), (y1, x1) = divmod(source, columns), divmod(target, columns)
    dx, dy = (1 if x1 >= x0 else -1), (1 if y1 >= y0 else -1)
    ranks = [y0 * columns + x for x in range(x0, x1 + dx, dx)]
    ranks += [y * columns + x1 for y in range(y0 + dy, y1 + dy, dy)] if y0 != y1 else []
    return list(pairwise(ranks))


def h_tree(side: int) -> list[tuple[Spot, Spot]]:
    """Return the edges of the H-tree on side x side spots, from the root on: each level before the next.

    >>> h_tree(4)
    [((1, 1), (1, 0)), ((1, 1), (1, 2)), ((1, 0), (0, 0)), ((1, 0), (2, 0)), ((1, 2), (0, 2)), ((1, 2), (2, 2))]
    """
    edges: list[tuple[Spot, Spot]] = []
    level = [(side // 2 - 1, side // 2 - 1)] if side > 1 else []
    step = side // 4
    while step:
        for along in ((0, step), (step, 0)):
            new = [(spot, (spot[0] + sign * along[0], spot[1] + sign * along[1])) for spot in level for sign in (-1, 1)]
            edges += new
            level = [child for _, child in new]
        step //= 2
    return edges


def mesh_tree(mesh: Mesh) -> Group:
    """Return the tree of the groups of `mesh`, whose root is in the middle.

    Raises:
        ValueError: no embedding with congestion one was found.
    """
    search = _Search(mesh)
    if not search.done():
        shape = f"{mesh.rows} x {mesh.columns} ranks in groups of {mesh.high} x {mesh.wide}"
        raise ValueError(f"{shape}: found no embedding with congestion one; use groups of another shape")
    return search.tree()


def _order(side: int) -> list[tuple[Spot, Spot | None]]:
    """Return the spots in the order in which they are filled, each with what it follows in the H-tree, if anything.

    That is depth first, each leaf before the others of its square: what is in the way of a group was placed lately.
    """
    edges = h_tree(side)
    successors: dict[Spot, list[Spot]] = {}
    for parent, child in edges:
        successors.setdefault(parent, []).append(child)
    root = edges[0][0] if edges else (0, 0)
    planned = {root, *(child for _, child in edges)}
    order: list[tuple[Spot, Spot | None]] = []
    waiting: list[tuple[Spot, Spot | None]] = [(root, None)]
    while waiting:
        spot, follows = waiting.pop()
        order.append((spot, follows))
        waiting += [(child, spot) for child in successors.get(spot, ())]
        if spot not in successors:
            y, x = spot
            square = [(y, x + 1), (y + 1, x), (y + 1, x + 1)] if side > 1 else []
            order += [(other, None) for other in square if other not in planned]
    return order


@dataclass(frozen=True)
class _Node:
    """A group where the search has put it."""

    members: tuple[int, ...]
    start: int  # when its head gets the first block; see `ringcast.schedules.fractional.Place`
    parent: Spot | None
    below: bool  # it follows its parent's last member
    uses: tuple[Use, ...]


class _Search:
    """Puts one group after the other, and takes back what leads nowhere."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh
        self._tasks = _order(mesh.side)
        self._nodes: dict[Spot, _Node] = {}
        self._used: set[Use] = set()

    def done(self) -> bool:
        """Place all groups; return whether that was possible."""
        options = [self._options(0)]
        for _ in range(TRIES):
            if len(options) > len(self._tasks):
                return True
            node = next(options[-1], None)
            if node is None:
                options.pop()
                if not options:
                    return False
                self._take_back(len(options) - 1)
                continue
            self._nodes[self._tasks[len(options) - 1][0]] = node
            self._used.update(node.uses)
            options.append(self._options(len(options)))
        return False

    def _take_back(self, task: int) -> None:
        self._used.difference_update(self._nodes.pop(self._tasks[task][0]).uses)

    def _options(self, task: int) -> Iterator[_Node]:
        """Return the ways to place the group of a task that are in nobody's way."""
        if task == len(self._tasks):
            return
        spot, parent = self._tasks[task]
        ways = self._mesh.snakes(spot)
        if task == 0:
            for members in ways:
                yield _Node(members, -1, None, False, tuple(self._along(members, -1)))
            return
        for above in [parent] if parent else self._neighbours(spot):
            for below in self._free_links(above):
                for members in ways:
                    node = self._node(members, above, below=below)
                    if len(set(node.uses)) == len(node.uses) and self._used.isdisjoint(node.uses):
                        yield node

    def _neighbours(self, spot: Spot) -> list[Spot]:
        y, x = spot
        near = [(y, x - 1), (y - 1, x), (y, x + 1), (y + 1, x)]
        return [other for other in near if other in self._nodes]

    def _free_links(self, spot: Spot) -> list[bool]:
        taken = {node.below for node in self._nodes.values() if node.parent == spot}
        return [below for below in (True, False) if below not in taken]

    def _node(self, members: tuple[int, ...], parent: Spot, *, below: bool) -> _Node:
        above, r = self._nodes[parent], self._mesh.run
        start = above.start + r + (not below)
        sources = above.members[-1:] * r if below else above.members
        uses = [use for i, source in enumerate(sources) for use in self._uses(source, members[0], start + i)]
        return _Node(members, start, parent, below, (*uses, *self._along(members, start)))

    def _along(self, members: tuple[int, ...], start: int) -> list[Use]:
        """Return what the chain of a group uses: member i sends block j of a run in round start + i + 1 + j."""
        r = self._mesh.run
        pairs = enumerate(pairwise(members))
        return [use for i, (a, b) in pairs for j in range(r) for use in self._uses(a, b, start + i + 1 + j)]

    def _uses(self, source: int, target: int, when: int) -> list[Use]:
        return [(a, b, when % (self._mesh.run + 1)) for a, b in self._mesh.route(source, target)]

    def tree(self) -> Group:
        groups = {spot: Group(node.members) for spot, node in self._nodes.items()}
        for spot, node in self._nodes.items():
            if node.parent is None:
                continue
            if node.below:
                groups[node.parent].down = groups[spot]
            else:
                groups[node.parent].right = groups[spot]
        return groups[self._tasks[0][0]]
