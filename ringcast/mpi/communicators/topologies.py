"""Communicators with a topology: a Cartesian grid, or a graph, given as a whole or in parts."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from ringcast import collectives
from ringcast.collectives import graph as edges_of_ranks
from ringcast.collectives import split
from ringcast.collectives.neighbors import Neighbors, neighbors_of
from ringcast.collectives.stage import AUTOMATIC
from ringcast.engine.execute import Steps
from ringcast.errors import ArgumentError
from ringcast.mpi.base.constants import CART, DIST_GRAPH, GRAPH, PROC_NULL, UNDEFINED, UNWEIGHTED, WEIGHTS_EMPTY
from ringcast.mpi.base.contexts import Shared, shared
from ringcast.mpi.base.error_classes import ERR_ARG, ERR_DIMS, ERR_TOPOLOGY
from ringcast.mpi.base.exceptions import Exception
from ringcast.mpi.handles.comm_handle import CommHandle, class_of_kind
from ringcast.mpi.requests.calls import run
from ringcast.schedules.neighborhood import Neighborhood, of_graph, of_grid
from ringcast.topology.cartesian import dims_create
from ringcast.wire.call import site_of

Weights = tuple[list[int], list[int]] | None
Places = tuple[int | None, ...]  # PROC_NULL is None
Edges = tuple[tuple[int, ...], ...]  # the destinations of each rank


class Grid:
    """A Cartesian grid; the last coordinate changes fastest."""

    kind = CART

    def __init__(self, rank: int, dims: tuple[int, ...], periods: tuple[bool, ...]) -> None:
        self.rank, self.dims, self.periods = rank, dims, periods

    @cached_property
    def neighborhood(self) -> Neighborhood:
        """The neighbours of this rank."""
        return of_grid(self.rank, self.dims, self.periods)

    @property
    def sources(self) -> Places:
        """The ranks from which this one receives."""
        return self.neighborhood.sources

    destinations = sources

    def coords_of(self, rank: int) -> list[int]:
        """Return the coordinates of a rank."""
        return [int(n) for n in np.unravel_index(rank, self.dims)] if self.dims else []

    def rank_at(self, coords: Sequence[int]) -> int | None:
        """Return the rank at some coordinates; None beyond the ends of an axis that is not closed to a ring."""
        rank = 0
        for n, dim, ring in zip(coords, self.dims, self.periods, strict=True):
            if not ring and not 0 <= n < dim:
                return None
            rank = rank * dim + n % dim
        return rank


class Graph:
    """A graph; all ranks know all its edges."""

    kind = GRAPH

    def __init__(self, rank: int, edges: Edges) -> None:
        self.rank, self.edges = rank, edges

    @cached_property
    def neighborhood(self) -> Neighborhood:
        """The neighbours of this rank; its destinations are its sources, too."""
        try:
            return of_graph(self.rank, self.edges, self.edges)
        except ValueError as error:
            raise Exception(ERR_TOPOLOGY, f"expected a graph with each edge in both directions: {error}") from None

    @property
    def sources(self) -> Places:
        """The ranks from which this one receives."""
        return self.edges[self.rank]

    destinations = sources


class PartialGraph:
    """A graph; each rank knows the edges that begin or end at it."""

    kind = DIST_GRAPH

    def __init__(self, sources: Places, destinations: Places, weights: Weights) -> None:
        self.sources, self.destinations, self.weights = sources, destinations, weights
        self.known: Neighborhood | str = ""  # or a text: the mistake in the edges, which matters to later calls only

    @property
    def neighborhood(self) -> Neighborhood:
        """The neighbours of this rank."""
        if isinstance(self.known, str):
            raise Exception(ERR_TOPOLOGY, self.known)
        return self.known


class MakingTopologies(CommHandle):
    """Calls of an intracommunicator that make one with a topology; ranks keep their order."""

    def Create_cart(
        self, dims: Sequence[int], periods: bool | Sequence[bool] | None = None, reorder: bool = False
    ) -> Any:
        """Return a grid of the first ranks; COMM_NULL on others."""
        shape = _whole(dims)
        steps = self._create_cart(shape, _periods(periods, len(shape)))
        return self._plain_or_null(CART, run(self, "Create_cart", steps, site_of(sys._getframe(1))))

    def _create_cart(self, dims: tuple[int, ...], periods: tuple[bool, ...]) -> Steps[Shared | None]:
        self._check_grid(dims)
        group = yield from split.cart(self._group, dims, periods)
        return None if group is None else _with(shared(group, self._shared), Grid(group.rank, dims, periods))

    def Cart_map(self, dims: Sequence[int], periods: bool | Sequence[bool] | None = None) -> int:
        """Return the rank that the caller would have in a grid; UNDEFINED if none."""
        shape = _whole(dims)
        _periods(periods, len(shape))
        self._check_grid(shape)
        return self._group.rank if self._group.rank < prod(shape) else UNDEFINED

    def _check_grid(self, dims: tuple[int, ...]) -> None:
        if min(dims, default=0) < 0 or prod(dims) > self._group.size:
            expected = f"expected numbers of ranks along each axis, {self._group.size} in all at most"
            raise Exception(ERR_ARG, f"{expected}, got {[*dims]}")

    def Create_graph(self, index: Sequence[int], edges: Sequence[int], reorder: bool = False) -> Any:
        """Return a graph of the first ranks; COMM_NULL on others.

        `edges` has the neighbours of all ranks, one rank after the other; the neighbours of rank r end before
        `edges[index[r]]`.
        """
        steps = self._create_graph(_whole(index), _whole(edges))
        return self._plain_or_null(GRAPH, run(self, "Create_graph", steps, site_of(sys._getframe(1))))

    def _create_graph(self, index: tuple[int, ...], edges: tuple[int, ...]) -> Steps[Shared | None]:
        graph = self._graph(index, edges)
        color = 0 if self._group.rank < len(graph) else None
        group = yield from split.split(self._group, color, 0, "Create_graph")
        return None if group is None else _with(shared(group, self._shared), Graph(group.rank, graph))

    def Graph_map(self, index: Sequence[int], edges: Sequence[int]) -> int:
        """Return the rank that the caller would have in a graph; UNDEFINED if none."""
        graph = self._graph(_whole(index), _whole(edges))
        return self._group.rank if self._group.rank < len(graph) else UNDEFINED

    def _graph(self, index: tuple[int, ...], edges: tuple[int, ...]) -> Edges:
        """Return the neighbours of each rank; a 0 may stand before the first end."""
        ends = index[1:] if len(index) > 1 and index[0] == 0 and index[-1] == len(edges) > 0 else index
        starts = (0, *ends[:-1])
        right = len(ends) <= self._group.size and [*starts, *ends[-1:]] == sorted([*starts, *ends[-1:]])
        if not right or (ends[-1] if ends else 0) != len(edges) or not self._are_ranks(edges):
            expected = f"expected a graph of at most {self._group.size} ranks, and the end of the edges of each"
            raise Exception(ERR_ARG, f"{expected}, got index {[*index]} and edges {[*edges]}")
        return tuple(edges[start:end] for start, end in zip(starts, ends, strict=True))

    def _are_ranks(self, ranks: Iterable[int]) -> bool:
        return all(0 <= rank < self._group.size for rank in ranks)

    def Create_dist_graph_adjacent(
        self,
        sources: Sequence[int] | None,
        destinations: Sequence[int] | None,
        sourceweights: Any = None,
        destweights: Any = None,
        info: Any = None,
        reorder: bool = False,
    ) -> Any:
        """Return a graph in which each rank gives its own sources and destinations."""
        origins, to = _whole(sources or ()), _whole(destinations or ())
        weights = _both_weights(sourceweights, destweights, len(origins), len(to))
        steps = self._create_adjacent(origins, to, weights)
        return self._plain(run(self, "Create_dist_graph_adjacent", steps, site_of(sys._getframe(1))))

    def _create_adjacent(
        self, sources: tuple[int, ...], destinations: tuple[int, ...], weights: Weights
    ) -> Steps[Shared]:
        if not self._are_ranks((*sources, *destinations)):
            raise Exception(ERR_ARG, f"expected ranks in 0..{self._group.size - 1}, got {[*sources, *destinations]}")
        return (yield from self._graph_of_parts(PartialGraph(sources, destinations, weights)))

    def _graph_of_parts(self, graph: PartialGraph) -> Steps[Shared]:
        """Return a communicator with this graph, after the ranks have exchanged its edges."""
        made = yield from edges_of_ranks.graph(self._group, graph.destinations, graph.sources)
        if isinstance(made, ArgumentError):
            graph.known, group = str(made), split.made(self._group, range(self._group.size), 0)
        else:
            group, graph.known = made
        return _with(shared(group, self._shared), graph)

    def Create_dist_graph(
        self,
        sources: Sequence[int],
        degrees: Sequence[int],
        destinations: Sequence[int],
        weights: Any = None,
        info: Any = None,
        reorder: bool = False,
    ) -> Any:
        """Return a graph in which any rank gives any edges: `degrees[i]` of them begin at `sources[i]`."""
        counts, to = _whole(degrees), _whole(destinations)
        given = _weights(weights, len(to))
        senders = np.repeat(np.array(_whole(sources), np.int64), counts)
        if len(senders) != len(to):
            raise ValueError(f"expected {sum(counts)} destinations, as the degrees say, got {len(to)}")
        edges = np.column_stack([senders, np.array(to, np.int64), np.array(given or [0] * len(to), np.int64)])
        steps = self._create_dist_graph(edges, given is not None)
        return self._plain(run(self, "Create_dist_graph", steps, site_of(sys._getframe(1))))

    def _create_dist_graph(self, mine: Any, weighted: bool) -> Steps[Shared]:
        group = self._group
        if not self._are_ranks(mine[:, :2].flat):
            raise Exception(ERR_ARG, f"expected ranks in 0..{group.size - 1}, got {mine[:, :2].tolist()}")
        edges = yield from collectives.gather.allgatherv(group, mine, None, None, AUTOMATIC)
        out, into = edges[edges[:, 0] == group.rank], edges[edges[:, 1] == group.rank]
        into = into[np.argsort(into[:, 0], kind="stable")]
        weights = (into[:, 2].tolist(), out[:, 2].tolist()) if weighted else None
        graph = PartialGraph(tuple(into[:, 0].tolist()), tuple(out[:, 1].tolist()), weights)
        return (yield from self._graph_of_parts(graph))

    def _plain_or_null(self, kind: int, state: Shared | None) -> Any:
        """Return a communicator of its class, or a null one of the class of this kind of topology."""
        return class_of_kind(kind)() if state is None else self._plain(state)


class Topologies(CommHandle):
    """Calls of all communicators with a topology."""

    @property
    def _topology(self) -> Any:
        return self._shared.topology

    @cached_property
    def _near(self) -> Neighbors:
        """The neighbours of this rank, as ringcast's calls between neighbours take them."""
        return neighbors_of(self._group, self._topology.neighborhood)

    @property
    def degrees(self) -> tuple[int, int]:
        """The number of neighbours from which this rank receives, and to which it sends."""
        return self.indegree, self.outdegree

    @property
    def indegree(self) -> int:
        """The number of neighbours from which this rank receives."""
        return len(self.inedges)

    @property
    def outdegree(self) -> int:
        """The number of neighbours to which this rank sends."""
        return len(self.outedges)

    @property
    def inoutedges(self) -> tuple[list[int], list[int]]:
        """The sources of this rank, and its destinations."""
        return self.inedges, self.outedges

    @property
    def inedges(self) -> list[int]:
        """The neighbours from which this rank receives; PROC_NULL for none."""
        return _ranks(self._topology.sources)

    @property
    def outedges(self) -> list[int]:
        """The neighbours to which this rank sends; PROC_NULL for none."""
        return _ranks(self._topology.destinations)


def Compute_dims(nnodes: int, dims: int | Sequence[int]) -> list[int]:
    """Return numbers of ranks along the axes of a grid, as even as possible; `dims` has 0 where one is to be found."""
    wanted = (0,) * dims if isinstance(dims, int) else _whole(dims)
    try:
        if nnodes < 1 or min(wanted, default=0) < 0:
            raise ValueError(f"expected numbers from 0 on, got {nnodes} ranks, {[*wanted]}")
        if wanted and prod(wanted) not in (0, nnodes):
            raise ValueError(f"expected numbers whose product is {nnodes}, got {[*wanted]}")
        return [*dims_create(nnodes, wanted)]
    except ValueError as error:
        raise Exception(ERR_DIMS, str(error)) from None


def _with(made: Shared, topology: Any) -> Shared:
    made.topology = topology
    return made


def _ranks(places: Sequence[int | None]) -> list[int]:
    return [PROC_NULL if rank is None else rank for rank in places]


def _whole(numbers: Sequence[int]) -> tuple[int, ...]:
    return tuple(int(n) for n in numbers)


def _periods(periods: bool | Sequence[bool] | None, axes: int) -> tuple[bool, ...]:
    if periods is None or isinstance(periods, bool):
        return (bool(periods),) * axes
    if len(periods) != axes:
        raise ValueError(f"expected {axes} periods, got {len(periods)}")
    return tuple(map(bool, periods))


def _weights(weights: Any, edges: int) -> list[int] | None:
    """Return a weight for each edge; None if edges have no weights."""
    if weights is None or (isinstance(weights, int) and weights == UNWEIGHTED):
        return None
    given = [] if isinstance(weights, int) and weights == WEIGHTS_EMPTY else [*_whole(weights)]
    if len(given) != edges:
        raise ValueError(f"expected {edges} weights, got {len(given)}")
    return given


def _both_weights(sourceweights: Any, destweights: Any, sources: int, destinations: int) -> Weights:
    incoming, outgoing = _weights(sourceweights, sources), _weights(destweights, destinations)
    return (
        None if incoming is None and outgoing is None else (incoming or [0] * sources, outgoing or [0] * destinations)
    )
