"""Schedule the messages of each rank to and from its neighbours in a directed graph.

In a round of the one-ported model a rank sends at most one message and receives at most one. So the rounds of a graph
are a proper edge colouring of the bipartite multigraph whose two sides are the ranks as senders and as receivers. As
many colours suffice as the busiest rank sends or receives messages (D. König, "Über Graphen und ihre Anwendung auf
Determinantentheorie und Mengenlehre", Mathematische Annalen 77, 1916, Satz C): if messages go straight to their rank,
no schedule has fewer rounds. Hoefler and Träff, "Sparse collective operations for MPI", IPDPS 2009, proposed a schedule
of the whole graph in place of the order in which each rank alone would send.

p ranks; r = rank; d = the most places that any rank has among its destinations or among its sources. Slot i, i < d, is
the message to destination i, slot d+i the message from source i. Edges of a rank to itself do not move.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple, TypeAlias

import numpy as np

from ringcast._util.dataclass import dataclass
from ringcast.schedules.schedule import Schedule, Step

Lists: TypeAlias = tuple[tuple[int, ...], ...]  # of ranks, one list for each rank
Places: TypeAlias = tuple[int | None, int | None]  # among the destinations, and among the sources


@dataclass(frozen=True)
class Neighborhood(Schedule):
    """The messages of one rank to and from its neighbours, in the order of `rounds`.

    Attributes:
        sources: of each place the rank from which a message comes; None: nothing comes.
        destinations: of each place the rank to which a message goes; None: nothing goes.
        rounds: of each round the places of the destination and of the source; None: that side is idle.
        own: of each edge from this rank to itself the places of the destination and of the source.
        degree: d.
        name: of the graph, equal on all ranks of a graph, and different for different ones.
    """

    sources: tuple[int | None, ...]
    destinations: tuple[int | None, ...]
    rounds: tuple[Places, ...]
    own: tuple[tuple[int, int], ...]
    degree: int
    name: str

    @property
    def parts(self) -> tuple[int, ...]:
        return (1,) * (2 * self.degree)

    def __len__(self) -> int:
        return len(self.rounds)

    def _step(self, i: int) -> Step:
        out, into = self.rounds[i]
        to, sent = (None, ()) if out is None else (self.destinations[out], (out,))
        source, received = (None, ()) if into is None else (self.sources[into], (self.degree + into,))
        return Step(to, sent, source, received)


class Edge(NamedTuple):
    """A message from `sender`, at place `out` of its destinations, to `receiver`, at place `into` of its sources."""

    sender: int
    out: int
    receiver: int
    into: int


def of_graph(rank: int, destinations: Lists, sources: Sequence[Sequence[int] | None] | None = None) -> Neighborhood:
    """Return the messages of a rank in a graph with the edges `destinations`.

    Args:
        rank: 0 <= rank < p = len(destinations).
        destinations: of each rank the ranks to which it sends, in its order; a rank may occur several times.
        sources: of each rank the ranks from which it receives, in its order; None, for a rank or for all: rank order.

    Raises:
        ValueError: sources and destinations contradict each other; the text names two ranks with a contradiction.

    >>> of_graph(0, ((1, 2), (0,), (0,))).rounds
    ((0, 1), (1, 0))
    """
    given = [None] * len(destinations) if sources is None else sources
    graph = _coloured(destinations, tuple(None if one is None else tuple(one) for one in given))
    out: list[int | None] = [None] * graph.colours
    into: list[int | None] = [None] * graph.colours
    origins: dict[int, int] = {}
    own = []
    for edge, colour in zip(graph.edges, graph.colour, strict=True):
        if edge.receiver == rank:
            origins[edge.into] = edge.sender
        if edge.sender == edge.receiver == rank:
            own.append((edge.out, edge.into))
        elif edge.sender == rank:
            out[colour] = edge.out
        elif edge.receiver == rank:
            into[colour] = edge.into
    origin = tuple(origins[place] for place in range(len(origins)))
    rounds = tuple(zip(out, into, strict=True))
    return Neighborhood(
        len(destinations), rank, origin, destinations[rank], rounds, tuple(own), graph.degree, graph.name
    )


def of_grid(rank: int, dims: tuple[int, ...], periods: tuple[bool, ...]) -> Neighborhood:
    """Return the messages of a rank in a Cartesian grid: along each axis to the ranks before and behind it.

    A message to the rank before arrives there as the message from the rank behind, also where both are the same rank.
    Each axis and direction is a round; an axis of two ranks that is not closed has only one round, as its ranks have
    one neighbour each, and an axis of one rank has none.

    Args:
        rank: 0 <= rank < p = prod(dims); the last coordinate changes fastest.
        dims: number of ranks along each axis.
        periods: of each axis, whether its last rank is next to the first one.

    >>> of_grid(1, (3,), (False,)).rounds, of_grid(0, (2,), (True,)).destinations
    (((0, 1), (1, 0)), (1, 1))
    """
    neighbors: list[int | None] = []
    rounds: list[Places] = []
    own: list[tuple[int, int]] = []
    stride = int(np.prod(dims, dtype=np.int64))
    for axis, (dim, ring) in enumerate(zip(dims, periods, strict=True)):
        stride //= dim
        at, before, behind = rank // stride % dim, 2 * axis, 2 * axis + 1
        for step in (-1, 1):
            there = (at + step) % dim if ring else at + step
            neighbors.append(rank + (there - at) * stride if 0 <= there < dim else None)
        down, up = neighbors[before:]
        if dim == 1:
            own += [(before, behind), (behind, before)] if ring else []
        elif dim == 2 and not ring:
            place = behind if at == 0 else before
            rounds.append((place, place))
        else:
            first, last = None if down is None else before, None if up is None else behind
            rounds += [(first, last), (last, first)]
    places, name = tuple(neighbors), f"grid {dims}, periods {periods}"
    size = int(np.prod(dims, dtype=np.int64))
    return Neighborhood(size, rank, places, places, tuple(rounds), tuple(own), len(places), name)


def matched(destinations: Lists, sources: Sequence[Sequence[int] | None]) -> list[Edge]:
    """Return the edges of a graph: the n-th edge from a rank to another one is the n-th in the lists of both.

    Raises:
        ValueError: see `of_graph`.

    >>> matched(((1, 1), ()), (None, (0, 0)))
    [Edge(sender=0, out=0, receiver=1, into=0), Edge(sender=0, out=1, receiver=1, into=1)]
    """
    arriving: list[defaultdict[int, deque[int]]] = [defaultdict(deque) for _ in destinations]
    for sender, receivers in enumerate(destinations):
        for out, receiver in enumerate(receivers):
            arriving[receiver][sender].append(out)
    edges = []
    for receiver, (places, given) in enumerate(zip(arriving, sources, strict=True)):
        if given is not None:
            _check_ends(receiver, {sender: len(outs) for sender, outs in places.items()}, Counter(given))
        order = [sender for sender in sorted(places) for _ in places[sender]] if given is None else given
        edges += [Edge(sender, places[sender].popleft(), receiver, into) for into, sender in enumerate(order)]
    return edges


def _check_ends(receiver: int, sent: dict[int, int], listed: Counter[int]) -> None:
    for sender in sorted({*sent, *listed}):
        many, named = sent.get(sender, 0), listed[sender]
        if many != named:
            one, other = _in_words(many), _in_words(named)
            raise ValueError(
                f"rank {sender} lists {one} to rank {receiver}, and rank {receiver} lists {other} from rank {sender}"
            )


def _in_words(edges: int) -> str:
    return f"{edges or 'no'} edge{'s' * (edges > 1)}"


def coloured(edges: Sequence[tuple[int, int]], size: int) -> list[int]:
    """Return a colour for each edge from a sender to a receiver: 0, 1, ..., as few as possible.

    No two edges of a sender have the same colour, nor two of a receiver. Each edge gets the first colour that both of
    its ends have free; where there is none, the sender's and the receiver's first free colours are exchanged along the
    path on which they alternate, which begins at the receiver and cannot reach the sender. Edges that lead equally far
    come one after the other, so that each colour of a circulant graph is a shift of all ranks. Deterministic.

    >>> coloured([(0, 1), (0, 2), (1, 2), (2, 0)], 3)
    [0, 1, 0, 0]
    """
    ends = [(sender, size + receiver) for sender, receiver in edges]
    most = max(Counter(vertex for edge in ends for vertex in edge).values(), default=0)
    free = [(1 << most) - 1] * (2 * size)  # of each vertex: its free colours, as bits
    at: list[dict[int, int]] = [{} for _ in free]  # of each vertex: the edge of each colour
    for number in sorted(range(len(edges)), key=lambda e: ((edges[e][1] - edges[e][0]) % size, edges[e])):
        sender, receiver = ends[number]
        both = free[sender] & free[receiver]
        if not both:
            both = free[sender] & -free[sender]
            _exchange(at, free, ends, receiver, _lowest(both), _lowest(free[receiver]))
        colour = _lowest(both)
        for vertex in (sender, receiver):
            at[vertex][colour] = number
            free[vertex] ^= 1 << colour
    found = {edge: colour for vertex in at[:size] for colour, edge in vertex.items()}
    return [found[number] for number in range(len(edges))]


def _lowest(bits: int) -> int:
    return (bits & -bits).bit_length() - 1


def _exchange(
    at: list[dict[int, int]], free: list[int], ends: Sequence[tuple[int, int]], start: int, one: int, other: int
) -> None:
    """Exchange two colours on the path that begins at `start` with an edge of colour `one`; `other` is free there."""
    path, vertex, colour = [], start, one
    while (edge := at[vertex].get(colour)) is not None:
        path.append((edge, colour))
        sender, receiver = ends[edge]
        vertex = receiver if vertex == sender else sender
        colour = one + other - colour
    for edge, colour in path:
        for end in ends[edge]:
            del at[end][colour]
    for edge, colour in path:
        for end in ends[edge]:
            at[end][one + other - colour] = edge
    for end in (start, vertex):
        free[end] ^= 1 << one | 1 << other


@dataclass(frozen=True, slots=True, eq=False)
class _Graph:
    """The part of the schedules that all ranks share: the edges, the colour of each that moves, and d."""

    edges: tuple[Edge, ...]
    colour: tuple[int, ...]  # without meaning for an edge of a rank to itself
    colours: int
    degree: int
    name: str


@lru_cache(maxsize=8)  # for ranks that are threads of one process
def _coloured(destinations: Lists, sources: tuple[tuple[int, ...] | None, ...]) -> _Graph:
    edges = matched(destinations, sources)
    moving = [(edge.sender, edge.receiver) for edge in edges if edge.sender != edge.receiver]
    found = coloured(moving, len(destinations))
    colours = iter(found)
    each = tuple(next(colours) if edge.sender != edge.receiver else -1 for edge in edges)
    digest = blake2b(np.array(edges, "<i8").tobytes(), digest_size=8).hexdigest()
    received = Counter(edge.receiver for edge in edges)
    degree = max(max(map(len, destinations)), max(received.values(), default=0))
    name = f"graph {digest} of {len(edges)} edges"
    return _Graph(tuple(edges), each, max(found, default=-1) + 1, degree, name)
