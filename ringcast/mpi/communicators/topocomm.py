"""The classes of communicators with a topology, as mpi4py has them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import accumulate, chain
from math import prod

from ringcast._util.safe_text import safe_text
from ringcast.collectives import split
from ringcast.engine.execute import Steps
from ringcast.mpi.base.constants import CART, DIST_GRAPH, GRAPH, PROC_NULL
from ringcast.mpi.base.contexts import Shared, shared
from ringcast.mpi.base.error_classes import ERR_ARG, ERR_RANK
from ringcast.mpi.base.exceptions import Exception
from ringcast.mpi.communicators.comm import Intracomm
from ringcast.mpi.communicators.neighbors import NeighborCollectives
from ringcast.mpi.communicators.topologies import Graph, Grid, PartialGraph, Weights
from ringcast.mpi.handles.comm_handle import of_kind
from ringcast.mpi.requests.calls import run

__all__ = ["Cartcomm", "Distgraphcomm", "Graphcomm", "Topocomm"]
from ringcast.wire.call import site_of


@of_kind()
class Topocomm(NeighborCollectives, Intracomm):
    """A communicator with a topology."""

    def _checked_rank(self, rank: int) -> int:
        if not 0 <= rank < self._group.size:
            raise Exception(ERR_RANK, f"expected a rank in 0..{self._group.size - 1}, got {safe_text(rank)}")
        return int(rank)


@of_kind(CART)
class Cartcomm(Topocomm):
    """A Cartesian grid."""

    @property
    def _grid(self) -> Grid:
        grid: Grid = self._topology
        return grid

    def Get_dim(self) -> int:
        """Return the number of axes."""
        return len(self._grid.dims)

    dim = ndim = property(Get_dim)

    def Get_topo(self) -> tuple[list[int], list[bool], list[int]]:
        """Return the numbers of ranks along the axes, whether these are rings, and the coordinates of the caller."""
        return self.dims, self.periods, self.coords

    topo = property(Get_topo)

    @property
    def dims(self) -> list[int]:
        """The number of ranks along each axis."""
        return [*self._grid.dims]

    @property
    def periods(self) -> list[bool]:
        """Whether each axis is closed to a ring."""
        return [*self._grid.periods]

    @property
    def coords(self) -> list[int]:
        """The coordinates of the caller."""
        return self._grid.coords_of(self._group.rank)

    def Get_cart_rank(self, coords: Sequence[int]) -> int:
        """Return the rank at some coordinates; on rings these may lie beyond the ends."""
        if len(coords) != self.Get_dim():
            raise ValueError(f"expected {self.Get_dim()} coordinates, got {len(coords)}")
        rank = self._grid.rank_at(coords)
        if rank is None:
            raise Exception(ERR_ARG, f"expected coordinates in a grid of {self.dims}, got {[*coords]}")
        return rank

    def Get_coords(self, rank: int) -> list[int]:
        """Return the coordinates of a rank."""
        return self._grid.coords_of(self._checked_rank(rank))

    def Shift(self, direction: int, disp: int) -> tuple[int, int]:
        """Return the source and the destination of the caller when all values move along an axis."""
        if not 0 <= direction < self.Get_dim():
            raise Exception(ERR_ARG, f"expected an axis in 0..{self.Get_dim() - 1}, got {safe_text(direction)}")
        return self._at(direction, -disp), self._at(direction, disp)

    def _at(self, axis: int, distance: int) -> int:
        coords = self.coords
        coords[axis] += distance
        rank = self._grid.rank_at(coords)
        return PROC_NULL if rank is None else rank

    def Sub(self, remain_dims: Sequence[bool]) -> Cartcomm:
        """Return the grid of the ranks that have the same coordinates along the axes that do not remain."""
        if len(remain_dims) != self.Get_dim():
            raise ValueError(f"expected {self.Get_dim()} truth values, got {len(remain_dims)}")
        return Cartcomm._of_state(run(self, "Sub", self._sub([*map(bool, remain_dims)]), site_of(sys._getframe(1))))

    def _sub(self, kept: list[bool]) -> Steps[Shared]:
        grid, color, key = self._grid, 0, 0
        for n, dim, stays in zip(self.coords, grid.dims, kept, strict=True):
            color, key = (color, key * dim + n) if stays else (color * dim + n, key)
        group = yield from split.split(self._group, color, key, "Sub")
        assert group is not None, "every rank has a colour"
        made = shared(group, self._shared)
        dims = tuple(dim for dim, stays in zip(grid.dims, kept, strict=True) if stays)
        made.topology = Grid(
            group.rank, dims, tuple(ring for ring, stays in zip(grid.periods, kept, strict=True) if stays)
        )
        assert group.size == prod(dims), "all ranks keep the same axes"
        return made


@of_kind(GRAPH)
class Graphcomm(Topocomm):
    """A graph; all ranks know all its edges."""

    @property
    def _graph_here(self) -> Graph:
        graph: Graph = self._topology
        return graph

    def Get_dims(self) -> tuple[int, int]:
        """Return the number of ranks and the number of edges."""
        return len(self.index), len(self.edges)

    dims = property(Get_dims)

    @property
    def nnodes(self) -> int:
        """The number of ranks."""
        return len(self.index)

    @property
    def nedges(self) -> int:
        """The number of edges."""
        return len(self.edges)

    def Get_topo(self) -> tuple[list[int], list[int]]:
        """Return `index` and `edges`."""
        return self.index, self.edges

    topo = property(Get_topo)

    @property
    def index(self) -> list[int]:
        """The cumulative numbers of neighbours: `index[r]` counts the neighbours of ranks 0 to r."""
        return [*accumulate(map(len, self._graph_here.edges))]

    @property
    def edges(self) -> list[int]:
        """The neighbours of all ranks, one rank after the other."""
        return [*chain.from_iterable(self._graph_here.edges)]

    def Get_neighbors_count(self, rank: int) -> int:
        """Return the number of neighbours of a rank."""
        return len(self.Get_neighbors(rank))

    def Get_neighbors(self, rank: int) -> list[int]:
        """Return the neighbours of a rank."""
        return [*self._graph_here.edges[self._checked_rank(rank)]]

    @property
    def nneighbors(self) -> int:
        """The number of neighbours of the caller."""
        return len(self.neighbors)

    @property
    def neighbors(self) -> list[int]:
        """The neighbours of the caller."""
        return self.outedges


@of_kind(DIST_GRAPH)
class Distgraphcomm(Topocomm):
    """A graph; each rank knows the edges that begin or end at it."""

    @property
    def _part_here(self) -> PartialGraph:
        graph: PartialGraph = self._topology
        return graph

    def Get_dist_neighbors_count(self) -> tuple[int, int, bool]:
        """Return the numbers of sources and of destinations of the caller, and whether edges have weights."""
        return len(self.inedges), len(self.outedges), self._part_here.weights is not None

    def Get_dist_neighbors(self) -> tuple[list[int], list[int], Weights]:
        """Return the sources and the destinations of the caller, and the weights of both."""
        weights = self._part_here.weights
        return self.inedges, self.outedges, weights and ([*weights[0]], [*weights[1]])
