"""Make full-lane schedules for several ranks per host: all ranks of a host send to other hosts at once, each its share.

Träff, Hunold, "Decomposing MPI collectives for exploiting multi-lane communication", CLUSTER 2020. The i-th ranks of
all hosts are a lane. Within hosts and along lanes the circulant graph's schedules are used. A host of c ranks receives
1/c of the data that it would receive if each of its ranks had to get everything from other hosts.

N hosts of c ranks, p = N*c; rank `grid[j][i]` is the i-th of host j; q(x) = ceil(log2 x).
"""

from __future__ import annotations

from typing import TypeAlias

from ringcast._util.dataclass import dataclass
from ringcast.schedules import circulant
from ringcast.schedules.hypercube import Completion
from ringcast.schedules.one_to_all import Scatter
from ringcast.schedules.schedule import IDLE, Schedule, Slots, Step, concat, joined, relabel, reverse

Grid: TypeAlias = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Widened(Schedule):
    """`inner` on another buffer, whose parts are `cut`: slot s of `inner` becomes the slots `pieces[s]` there."""

    inner: Schedule
    pieces: tuple[range | tuple[int, ...], ...]
    cut: tuple[int, ...]

    @property
    def parts(self) -> tuple[int, ...]:
        return self.cut

    def __len__(self) -> int:
        return len(self.inner)

    def _step(self, i: int) -> Step:
        s = self.inner[i]
        return Step(s.send_to, self._wide(s.send), s.recv_from, self._wide(s.recv), s.accept)

    def _wide(self, slots: Slots) -> Slots:
        if len(slots) == 1:
            return self.pieces[slots[0]]
        return tuple(piece for slot in slots for piece in self.pieces[slot])


@dataclass(frozen=True)
class Pause(Schedule):
    """Idle rounds, in which other ranks scatter."""

    cut: tuple[int, ...]
    rounds: int

    @property
    def parts(self) -> tuple[int, ...]:
        return self.cut

    def __len__(self) -> int:
        return self.rounds

    def _step(self, i: int) -> Step:  # noqa: ARG002 (all rounds are alike)
        return IDLE


def bcast(grid: Grid, rank: int, *, nblocks: int, root: int = 0) -> Schedule:
    """Return the broadcast: the root scatters over its host, each lane broadcasts its share, hosts gather.

    q(c) + n-1+q(N) + q(c) rounds; m is cut into c shares of n blocks. m (c-1)/c is sent within the host twice, and
    (n-1+q(N)) m/(cn) along each lane.
    """
    p, c = _size(grid), len(grid[0])
    host, core = _place(grid, rank)
    root_host, root_core = _place(grid, root)
    cut, shares = (c * nblocks,), tuple(range(i * nblocks, (i + 1) * nblocks) for i in range(c))

    def within(inner: Schedule) -> Schedule:
        return relabel(Widened(c, core, inner, shares, cut), grid[host], p)

    lane = [ranks[core] for ranks in grid]
    blocks = circulant.bcast(len(grid), host, nblocks=nblocks, root=root_host)
    along = relabel(Widened(len(grid), host, blocks, tuple((s,) for s in shares[core]), cut), lane, p)
    scatter, gather = Scatter(c, core, root_core), circulant.allgather(c, core)
    if host != root_host:
        return concat(Pause(p, rank, cut, len(scatter)), concat(along, within(gather)))
    return concat(within(scatter), concat(along, within(Completion(c, core, scatter, gather))))


def reduce(grid: Grid, rank: int, *, nblocks: int, root: int = 0) -> Schedule:
    """Return the broadcast backwards."""
    return reverse(bcast(grid, rank, nblocks=nblocks, root=root))


def allgather(grid: Grid, rank: int) -> Schedule:
    """Return the allgather: each lane gathers its parts, then each host the parts of its lanes; q(N) + q(c) rounds.

    Every rank receives m (p-1)/p in all; N-1 parts of it come from other hosts, each once.
    """
    p, c = _size(grid), len(grid[0])
    host, core = _place(grid, rank)
    cut, lane = (1,) * p, tuple(ranks[core] for ranks in grid)
    parts = tuple((r,) for r in lane)
    along = relabel(Widened(len(grid), host, circulant.allgather(len(grid), host), parts, cut), lane, p)
    lanes = tuple(tuple(ranks[i] for ranks in grid) for i in range(c))
    return concat(along, relabel(Widened(c, core, circulant.allgather(c, core), lanes, cut), grid[host], p))


def reduce_scatter(grid: Grid, rank: int) -> Schedule:
    """Return the allgather backwards."""
    return reverse(allgather(grid, rank))


def allreduce(grid: Grid, rank: int) -> Schedule:
    """Return the reduce-scatter, then the allgather, of a vector cut into p parts: one rank combines each part."""
    return joined(concat(reduce_scatter(grid, rank), allgather(grid, rank)))


def _size(grid: Grid) -> int:
    return len(grid) * len(grid[0])


def _place(grid: Grid, rank: int) -> tuple[int, int]:
    """Return the host of a rank, and its number among the host's ranks."""
    return next((j, ranks.index(rank)) for j, ranks in enumerate(grid) if rank in ranks)
