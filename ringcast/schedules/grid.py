"""Make broadcast and allgather on a mesh: first along its rows, then along its columns, then along further dimensions.

Grama, Gupta, Karypis, Kumar, "Introduction to Parallel Computing", 2003, sections 4.1.2 and 4.2.2; backwards these are
the reductions. Our addition: meshes that are neither square nor cubic. A prime number of ranks has one row, which is
a ring.

p = a*b ranks in a <= b rows of b; rank r is in row r div b and column r mod b. p = u*v*w ranks in u <= v planes of
v <= w rows of w.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import isqrt

from ringcast._util.dataclass import dataclass
from ringcast.schedules.one_to_all import Binomial
from ringcast.schedules.schedule import IDLE, Schedule, Step, relabel


@lru_cache(maxsize=64)
def mesh_shape(p: int) -> tuple[int, int]:
    """Return (a, b), as near to a square as p allows.

    >>> mesh_shape(12), mesh_shape(16), mesh_shape(7)
    ((3, 4), (4, 4), (1, 7))
    """
    a = next(a for a in range(isqrt(p), 0, -1) if p % a == 0)
    return a, p // a


@lru_cache(maxsize=64)
def mesh_3d_shape(p: int) -> tuple[int, int, int]:
    """Return (u, v, w), u <= v <= w, as near to a cube as p allows: with the least sum.

    >>> mesh_3d_shape(24), mesh_3d_shape(27), mesh_3d_shape(68), mesh_3d_shape(7)
    ((2, 3, 4), (3, 3, 3), (2, 2, 17), (1, 1, 7))
    """
    sides = (u for u in range(1, isqrt(p) + 1) if p % u == 0)
    return min(((u, *mesh_shape(p // u)) for u in sides), key=sum)


def doubling_rounds(shape: Sequence[int]) -> int:
    """Return the number of rounds of recursive doubling along all dimensions of `shape`, one after the other."""
    return sum((side - 1).bit_length() for side in shape)


@dataclass(frozen=True)
class Broadcast(Schedule):
    """Broadcast on a mesh of any dimension: recursive doubling in the root's row, then in each column, and so on.

    `shape` gives the sides, whose product is p; the ranks of a row, the last dimension, follow one another. A ring is
    the mesh of shape (p,), a hypercube the mesh of shape (2, ..., 2).
    """

    shape: tuple[int, ...]
    root: int = 0

    def __len__(self) -> int:
        return doubling_rounds(self.shape)

    def _step(self, i: int) -> Step:
        p, (*outer, side) = self.size, self.shape
        (x, y), (root_x, root_y) = divmod(self.rank, side), divmod(self.root, side)
        rounds = (side - 1).bit_length()
        if i >= rounds:  # each place in the row has a mesh of its own, of one dimension less
            column = Broadcast(p // side, x, tuple(outer), root_x)
            return relabel(column, range(y, p, side), p)[i - rounds]
        if x != root_x:
            return IDLE
        return relabel(Binomial(side, y, root_y), range(x * side, x * side + side), p)[i]


@dataclass(frozen=True)
class AllGather(Schedule):
    """Allgather in a+b-2 rounds: around the ring of each row by parts, then around the ring of each column by rows."""

    @property
    def parts(self) -> tuple[int, ...]:
        return (1,) * self.size

    def __len__(self) -> int:
        return sum(mesh_shape(self.size)) - 2

    def _step(self, i: int) -> Step:
        a, b = mesh_shape(self.size)
        x, y = divmod(self.rank, b)
        row, i_down = x * b, i - (b - 1)
        if i_down < 0:
            return Step(row + (y + 1) % b, (row + (y - i) % b,), row + (y - 1) % b, (row + (y - i - 1) % b,))
        out, into = (x - i_down) % a * b, (x - i_down - 1) % a * b
        down, up = (self.rank + b) % self.size, (self.rank - b) % self.size
        return Step(down, range(out, out + b), up, range(into, into + b))
