"""Make schedules of the total exchange, in which every rank has a block for every other rank.

Träff, "Optimal, non-pipelined reduce-scatter and allreduce algorithms", arXiv 2410.14234 (its template, with
concatenation as the operator); Grama, Gupta, Karypis, Kumar, "Introduction to Parallel Computing", 2003, section 4.5;
Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH", IJHPCA 19(1), 2005.

p ranks; r = rank; e = offset of a block: its destination is e further than its origin, on the graph in question.
Part j, j < p, is the block for rank j, part p+j the block from rank j. A rank's block for itself does not move.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ringcast._util.dataclass import dataclass
from ringcast.schedules.blocks import skips
from ringcast.schedules.grid import mesh_shape
from ringcast.schedules.schedule import Schedule, Step

Offsets: TypeAlias = "range | NDArray[np.intp]"
Move: TypeAlias = tuple[int, Offsets]  # in one round: the distance, and the offsets of the blocks that make this hop


@dataclass(frozen=True)
class Pairwise(Schedule):
    """Every block goes straight to its destination, in p-1 rounds of a block each.

    In round i rank r sends to r + i and receives from r - i; with `xor` it exchanges with r XOR i (p a power of two).
    """

    xor: bool = False

    @property
    def parts(self) -> tuple[int, ...]:
        return (1,) * (2 * self.size)

    def __len__(self) -> int:
        return self.size - 1

    def _step(self, i: int) -> Step:
        p, r, e = self.size, self.rank, i + 1
        to, source = (r ^ e, r ^ e) if self.xor else ((r + e) % p, (r - e) % p)
        return Step(to, (to,), source, (p + source,))


@dataclass(frozen=True)
class Scattered(Pairwise):
    """The rounds of `Pairwise`, but they overlap: every message moves as fast as both of its ranks allow.

    One by one, rounds last as long as their largest message, and links are idle where blocks differ in size. As all
    ranks begin their rounds in the same order, they send to different ranks.
    """

    @property
    def concurrent(self) -> bool:
        return True


@dataclass(frozen=True)
class Forwarding(Schedule):
    """Blocks travel together, and the ranks between pass them on; all blocks of one offset take the same way.

    So a rank holds, of each offset, at most one block that is neither from it nor for it. This block waits in a scratch
    slot; blocks that wait more than once need two slots, as one is received while the other is sent.
    """

    way: str

    @property
    def parts(self) -> tuple[int, ...]:
        return (1,) * (2 * self.size)

    @property
    def scratch(self) -> tuple[int, ...]:
        return (0,) * _plan(self.way, self.size).rooms

    def __len__(self) -> int:
        return len(_plan(self.way, self.size).hops)

    def _step(self, i: int) -> Step:
        hop, slots = _plan(self.way, self.size).hops[i], self._slots
        to, source = int(slots[hop.by]), int(slots[self.size + hop.by]) - self.size
        return Step(to, slots[hop.out], source, slots[hop.into])

    @cached_property
    def _slots(self) -> NDArray[np.intp]:
        """The slots of this rank, in the numbering of `_Hop`."""
        p = self.size
        places = _places(self.way, p, self.rank, 1), p + _places(self.way, p, self.rank, -1)
        return np.concatenate((*places, np.arange(2 * p, self.nslots)))


@dataclass(frozen=True, slots=True, eq=False)
class _Hop:
    """A round: the distance, and the slots of the blocks before and after it.

    Slots are numbered alike on all ranks: e for the block to the rank e further, p+e for the block from the rank e
    behind; scratch slots as in schedules.
    """

    by: int
    out: NDArray[np.intp]
    into: NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class _Plan:
    """The part of a schedule that all ranks share: the rounds, and the number of scratch slots."""

    hops: tuple[_Hop, ...]
    rooms: int


@lru_cache(maxsize=16)
def _plan(way: str, p: int) -> _Plan:
    moves = [(by, np.asarray(blocks, dtype=np.intp)) for by, blocks in _WAYS[way](p)]
    hops = np.zeros(p, np.intp)  # of each offset: the number of hops of its blocks
    for _, blocks in moves:
        hops[blocks] += 1
    # room[h % 2]: the slot of each offset after h hops; the second slot is only for blocks with three or more hops.
    waits, waits_again = hops > 1, hops > 2
    room = 2 * p + np.stack((waits.sum() + np.cumsum(waits_again) - 1, np.cumsum(waits) - 1))
    done = np.zeros(p, np.intp)
    rounds = []
    for by, blocks in moves:
        before = done[blocks]
        done[blocks] += 1
        out = np.where(before == 0, blocks, room[before % 2, blocks])
        into = np.where(before + 1 == hops[blocks], p + blocks, room[(before + 1) % 2, blocks])
        rounds.append(_Hop(by, out, into))
    return _Plan(tuple(rounds), int(waits.sum() + waits_again.sum()))


def _places(way: str, p: int, r: int, sign: int) -> NDArray[np.intp]:
    """Return for each e the rank that is e further than r (sign 1), or e behind it (sign -1)."""
    e = np.arange(p)
    if way == "hypercube":
        return e ^ r
    columns = mesh_shape(p)[1] if way == "mesh" else p
    row = (r // columns + sign * (e // columns)) % (p // columns)
    return row * columns + (r + sign * e) % columns


def _ring(p: int) -> Sequence[Move]:
    """All blocks go the same way round; in each round one arrives at its rank."""
    return [(1, range(i, p)) for i in range(1, p)]


def _ring_two_way(p: int) -> Sequence[Move]:
    """Blocks go the shorter way round: first forwards, then backwards, as a rank has one port."""
    half = p // 2
    forwards = [(1, range(i, half + 1)) for i in range(1, half + 1)]
    backwards = [(p - 1, range(half + 1, p - i + 1)) for i in range(1, p - half)]
    return [*forwards, *backwards]


def _mesh(p: int) -> Sequence[Move]:
    """Every row is a ring, on which the blocks for a column travel together; then every column is a ring."""
    rows, columns = mesh_shape(p)
    column = np.arange(p) % columns
    along_rows = [(1, np.flatnonzero(column >= i)) for i in range(1, columns)]
    along_columns = [(columns, range(i * columns, p)) for i in range(1, rows)]
    return [*along_rows, *along_columns]


def _hypercube(p: int) -> Sequence[Move]:
    """In each dimension half of the blocks change sides."""
    offsets = np.arange(p)
    return [(1 << k, np.flatnonzero(offsets >> k & 1)) for k in range(p.bit_length() - 1)]


def _circulant(p: int) -> Sequence[Move]:
    """An offset is a sum of skips, the largest that fits first; a round moves the blocks whose sum has its skip."""
    rest = np.arange(p)
    moves = []
    for skip in reversed(skips(p)[:-1]):
        blocks = np.flatnonzero(rest >= skip)
        rest[blocks] -= skip
        moves.append((skip, blocks))
    return moves


_WAYS: Mapping[str, Callable[[int], Sequence[Move]]] = MappingProxyType(
    {
        "circulant": _circulant,
        "ring": _ring,
        "ring_two_way": _ring_two_way,
        "mesh": _mesh,
        "hypercube": _hypercube,
    }
)


def linear(size: int, rank: int) -> Schedule:
    """Return the exchange with r + i and r - i: p-1 rounds of one block, which goes straight to its rank."""
    return Pairwise(size, rank)


def scattered(size: int, rank: int) -> Schedule:
    """Return the exchange with r + i and r - i whose p-1 rounds overlap."""
    return Scattered(size, rank)


def xor(size: int, rank: int) -> Schedule:
    """Return the exchange with r XOR i: p-1 rounds, each of a block, without congestion on a hypercube."""
    return Pairwise(size, rank, xor=True)


def circulant(size: int, rank: int) -> Schedule:
    """Return the exchange on the circulant graph: ceil(log2 p) rounds, each of half of the blocks or less."""
    return Forwarding(size, rank, "circulant")


def ring(size: int, rank: int) -> Schedule:
    """Return the exchange around a ring: p-1 rounds, of p-1, p-2, ..., 1 blocks."""
    return Forwarding(size, rank, "ring")


def ring_two_way(size: int, rank: int) -> Schedule:
    """Return the exchange around a ring in both directions: p-1 rounds, and half of the volume of one direction."""
    return Forwarding(size, rank, "ring_two_way")


def mesh(size: int, rank: int) -> Schedule:
    """Return the exchange on a mesh of a x b ranks, along the rows, then along the columns: a+b-2 rounds."""
    return Forwarding(size, rank, "mesh")


def hypercube(size: int, rank: int) -> Schedule:
    """Return the exchange along the dimensions of a hypercube: log2 p rounds of p/2 blocks."""
    return Forwarding(size, rank, "hypercube")


@lru_cache(maxsize=64)
def circulant_sizes(p: int) -> tuple[int, ...]:
    """Return the number of blocks that each round moves on the circulant graph.

    >>> circulant_sizes(9), sum(circulant_sizes(129))
    ((4, 3, 2, 3), 408)
    """
    return tuple(len(blocks) for _, blocks in _circulant(p))
