"""Broadcast and allgather on a mesh: first along its rows, then along its columns.

Grama, Gupta, Karypis, Kumar, "Introduction to Parallel Computing", 2003, sections 4.1.2 and 4.2.2; backwards these are
the reductions. Our addition: meshes that are not square. A prime number of ranks has one row, which is a ring.

p = a*b ranks in a <= b rows of b; rank r is in row r div b and column r mod b.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import isqrt

from ringcast.schedule import IDLE, Schedule, Step, concat, relabel
from ringcast.schedules.one_to_all import Binomial


@lru_cache(maxsize=64)
def mesh_shape(p: int) -> tuple[int, int]:
    """Return (a, b), as near to a square as p allows.

    >>> mesh_shape(12), mesh_shape(16), mesh_shape(7)
    ((3, 4), (4, 4), (1, 7))
    """
    a = next(a for a in range(isqrt(p), 0, -1) if p % a == 0)
    return a, p // a


@dataclass(frozen=True)
class Broadcast(Schedule):
    """Broadcast in ceil(log2 a) + ceil(log2 b) rounds: recursive doubling in the root's row, then in each column."""

    root: int = 0

    def __len__(self) -> int:
        return len(self._line)

    def _step(self, i: int) -> Step:
        b = mesh_shape(self.size)[1]
        if i < (b - 1).bit_length() and self.rank // b != self.root // b:
            return IDLE
        return self._line[i]

    @cached_property
    def _line(self) -> Schedule:
        """The rank's row, as if it was that of the root, then its column."""
        p, (a, b) = self.size, mesh_shape(self.size)
        (x, y), (root_x, root_y) = divmod(self.rank, b), divmod(self.root, b)
        row = relabel(Binomial(b, y, root_y), range(x * b, x * b + b), p)
        return concat(row, relabel(Binomial(a, x, root_x), range(y, p, b), p))


@dataclass(frozen=True)
class AllGather(Schedule):
    """Allgather in a+b-2 rounds: around the ring of each row by parts, then around that of each column by rows."""

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
