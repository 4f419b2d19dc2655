"""Embed groups of ranks in a mesh, so that no link is used twice in a round.

Sanders and Sibeyn, "A bandwidth latency tradeoff for broadcast and reduction", IPL 86, 2003, section 4.

The mesh is cut into submeshes of r1 x r2 ranks, each a group, r = r1 r2. A group's chain goes through the submesh
column by column. Rank y * b + x is in row y and column x of b. The two directions of a link count as two links;
messages go along the row first, then along the column (x-y routing). After r+1 rounds everything repeats.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TypeAlias

from ringcast._util.dataclass import dataclass
from ringcast.schedules.grouptree import TreeGroup

Spot: TypeAlias = tuple[int, int]  # row and column of a group
Turn: TypeAlias = tuple[int, int]  # of a chain: columns to the right (1) or left (-1); first column down (1) or up (-1)
Link: TypeAlias = tuple[int, int]


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

    def route(self, source: int, target: int) -> list[Link]:
        """Return the links from `source` to `target`; see `xy_route`."""
        return xy_route(self.columns, source, target)

    def snake(self, spot: Spot, turn: Turn) -> tuple[int, ...]:
        """Return the way through the submesh at `spot`, column by column.

        >>> Mesh(2, 4, 2, 4).snake((0, 0), (1, -1))
        (4, 0, 1, 5, 6, 2, 3, 7)
        """
        ys = range(spot[0] * self.high, (spot[0] + 1) * self.high)[:: turn[1]]
        xs = range(spot[1] * self.wide, (spot[1] + 1) * self.wide)[:: turn[0]]
        return tuple(y * self.columns + x for i, x in enumerate(xs) for y in ys[:: (-1) ** i])


def xy_route(columns: int, source: int, target: int) -> list[Link]:
    """Return the links from rank `source` to rank `target` of a mesh: along the row, then along the column.

    >>> xy_route(4, 0, 6)
    [(0, 1), (1, 2), (2, 6)]
    """
    (y0, x0), (y1, x1) = divmod(source, columns), divmod(target, columns)
    dx, dy = (1 if x1 >= x0 else -1), (1 if y1 >= y0 else -1)
    ranks = [y0 * columns + x for x in range(x0, x1 + dx, dx)]
    ranks += [y * columns + x1 for y in range(y0 + dy, y1 + dy, dy)] if y0 != y1 else []
    return list(pairwise(ranks))


@dataclass(frozen=True)
class Node:
    """A group in its place."""

    spot: Spot
    turn: Turn
    members: tuple[int, ...]
    start: int  # the round in which its head gets the first block; see `ringcast.schedules.fractional.TreePosition`
    parent: Spot | None
    below: bool  # whether it follows its parent's last member
    links: dict[Link, int]  # the links that it uses, and their rounds: bit i stands for the rounds i modulo r+1


class Embedding:
    """The groups that have their places, and the links that they use."""

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self.nodes: dict[Spot, Node] = {}
        self._followed: set[tuple[Spot | None, bool]] = set()  # a group, and whether below
        self._used: dict[Link, int] = {}

    def node(self, spot: Spot, turn: Turn, parent: Spot | None = None, *, below: bool = True) -> Node | None:
        """Return a group in this place, or None if its messages would collide with each other or with other groups'."""
        members, start, feeds = self.mesh.snake(spot, turn), -1, []
        if parent is not None:
            above = self.nodes[parent]
            start = above.start + self.mesh.run + (not below)
            feeds = self._feeds(above.members, members[0], start, below=below)
        chain = [(link, self._all_but(start + i)) for i, link in enumerate(pairwise(members))]
        links: dict[Link, int] = {}
        for link, rounds in [*feeds, *chain]:
            if links.get(link, 0) & rounds:
                return None
            links[link] = links.get(link, 0) | rounds
        node = Node(spot, turn, members, start, parent, below, links)
        return node if self.fits(node) else None

    def fits(self, node: Node) -> bool:
        """Return whether no other group uses the node's links in its rounds, or follows its parent on the same side."""
        free = all(not self._used.get(link, 0) & rounds for link, rounds in node.links.items())
        return free and (node.parent, node.below) not in self._followed

    def _feeds(self, above: tuple[int, ...], head: int, start: int, *, below: bool) -> list[tuple[Link, int]]:
        """Return links and rounds by which a head gets its blocks: all from the last member, or one from each."""
        if below:
            return [(link, self._all_but(start - 1)) for link in self.mesh.route(above[-1], head)]
        period = self.mesh.run + 1
        return [(link, 1 << (start + i) % period) for i, a in enumerate(above) for link in self.mesh.route(a, head)]

    def _all_but(self, pause: int) -> int:
        period = self.mesh.run + 1
        return (1 << period) - 1 - (1 << pause % period)

    def put(self, node: Node) -> None:
        self.nodes[node.spot] = node
        self._followed.add((node.parent, node.below))
        for link, rounds in node.links.items():
            self._used[link] = self._used.get(link, 0) | rounds

    def remove(self, node: Node) -> None:
        del self.nodes[node.spot]
        self._followed.remove((node.parent, node.below))
        for link, rounds in node.links.items():
            self._used[link] -= rounds

    def tree(self) -> TreeGroup:
        """Return the tree of the groups."""
        groups = {spot: TreeGroup(node.members) for spot, node in self.nodes.items()}
        for spot, node in self.nodes.items():
            if node.parent is None:
                root = groups[spot]
            elif node.below:
                groups[node.parent].down = groups[spot]
            else:
                groups[node.parent].right = groups[spot]
        return root
