"""Make the circular shift: rank r sends its value to rank r + s (mod p).

Grama, Gupta, Karypis, Kumar, "Introduction to Parallel Computing", 2003, section 4.6, where s is called q.

p ranks; s = distance, 0 <= s < p; r = rank. Slot 0 is the value that a rank has, slot 1 the value that it gets. In
every round the ranks pass on the values that they hold, by a permutation; with s = 0 nothing moves, and the caller
copies slot 0 to slot 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from itertools import accumulate
from types import MappingProxyType
from typing import TypeAlias

from ringcast._util.dataclass import dataclass
from ringcast.schedules.grid import mesh_shape
from ringcast.schedules.schedule import IDLE, Schedule, Step

Peers: TypeAlias = "tuple[int, int] | None"  # destination and source; None: the rank keeps the value that it holds


@dataclass(frozen=True)
class Shift(Schedule):
    """A circular shift along the links of a graph, named by `way`. Values on their way lie in two scratch slots."""

    distance: int
    way: str

    @property
    def parts(self) -> tuple[int, ...]:
        return (1, 1)

    @property
    def scratch(self) -> tuple[int, ...]:
        return (0, 0)

    def __len__(self) -> int:
        return len(self._rounds)

    @cached_property
    def _rounds(self) -> tuple[Peers, ...]:
        return tuple(_WAYS[self.way](self.size, self.distance, self.rank))

    @cached_property
    def _turns(self) -> tuple[int, ...]:
        """The number of messages that the rank has sent, before each round and after the last."""
        return tuple(accumulate((peers is not None for peers in self._rounds), initial=0))

    def _step(self, i: int) -> Step:
        peers, turn = self._rounds[i], self._turns[i]
        if peers is None:
            return IDLE
        held = 2 + turn % 2 if turn else 0
        new = 3 - turn % 2 if turn + 1 < self._turns[-1] else 1
        return Step(peers[0], (held,), peers[1], (new,))


def _direct(p: int, s: int, r: int) -> list[Peers]:
    return [((r + s) % p, (r - s) % p)] if s else []


def _ring(p: int, s: int, r: int) -> list[Peers]:
    """Neighbour by neighbour, the shorter way round."""
    return _steps(p, s if s <= p - s else s - p, r)


def _mesh(p: int, s: int, r: int) -> list[Peers]:
    """Along the rows by s mod b; then along the columns; a value that passed the end of its row goes a row further.

    Columns with one step more do it first, then all columns go together: forwards or backwards, the shorter way.
    """
    rows, columns = mesh_shape(p)
    row, column = divmod(r, columns)
    down, across = divmod(s, columns)
    rest: list[Peers] = [None]
    if not across or rows == 1:
        in_column = _ring(rows, down, row)
    elif down + 1 <= rows - down:
        in_column = (_steps(rows, 1, row) if column < across else rest) + _steps(rows, down, row)
    else:
        in_column = (_steps(rows, -1, row) if column >= across else rest) + _steps(rows, down + 1 - rows, row)
    in_row = _ring(columns, across, column)
    return [peers and (row * columns + peers[0], row * columns + peers[1]) for peers in in_row] + [
        peers and (peers[0] * columns + column, peers[1] * columns + column) for peers in in_column
    ]


def _steps(n: int, steps: int, i: int) -> list[Peers]:
    """Return `steps` steps around a ring of n, backwards if negative."""
    sign = 1 if steps > 0 else -1
    return [((i + sign) % n, (i - sign) % n)] * abs(steps)


def _hypercube(p: int, s: int, r: int) -> list[Peers]:
    """A shift for each power of two in s. Rank r sits at node gray(r), so neighbours on the ring are neighbours.

    Nodes whose ranks are 2^j apart, j > 0, differ in bit j-1 and in another bit: the two rounds take this order.
    """

    def across(rank: int) -> int:
        return _rank(gray(rank) ^ power >> 1)

    rounds: list[Peers] = []
    for power in (1 << j for j in reversed(range(s.bit_length())) if s >> j & 1):
        if power > 1:
            rounds.append((across(r), across(r)))
        rounds.append(((across(r) + power) % p, across((r - power) % p)))
    return rounds


_WAYS: Mapping[str, Callable[[int, int, int], list[Peers]]] = MappingProxyType(
    {"direct": _direct, "ring": _ring, "mesh": _mesh, "hypercube": _hypercube}
)


def shift(size: int, rank: int, *, distance: int, way: str) -> Schedule:
    """Return the circular shift by `distance`: direct, or along the links of a ring, mesh or hypercube."""
    return Shift(size, rank, distance, way)


def mesh_rounds(p: int, s: int) -> int:
    """Return the rounds on a mesh: at most sqrt(p) where it is a square, one less than the paper's bound.

    >>> mesh_rounds(16, 5), mesh_rounds(16, 4), mesh_rounds(16, 10), mesh_rounds(7, 6)
    (3, 1, 4, 1)
    """
    rows, columns = mesh_shape(p)
    down, across = divmod(s, columns)
    further = 1 if across and rows > 1 else 0
    return min(across, columns - across) + min(down + further, rows - down)


def hypercube_rounds(s: int) -> int:
    """Return two rounds for each power of two in s, one for 1: at most 2 log2 p - 1.

    >>> [hypercube_rounds(s) for s in range(8)]
    [0, 1, 2, 3, 2, 3, 4, 5]
    """
    return 2 * s.bit_count() - s % 2


def gray(rank: int) -> int:
    """Return the node of a hypercube at which a rank sits; the nodes of neighbours on the ring differ in one bit.

    >>> [gray(rank) for rank in range(8)]
    [0, 1, 3, 2, 6, 7, 5, 4]
    """
    return rank ^ rank >> 1


def _rank(node: int) -> int:
    """Return the rank that sits at a node."""
    rank = 0
    while node:
        rank ^= node
        node >>= 1
    return rank
