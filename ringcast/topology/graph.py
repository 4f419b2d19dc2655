"""A graph of ranks, with an edge from each rank to the ranks to which it sends."""

from __future__ import annotations

from ringcast.topology.neighbor_calls import Comm
from ringcast.topology.nonblocking import NonblockingNeighborCalls
from ringcast.topology.persistent import PersistentNeighborCalls


class Topology(NonblockingNeighborCalls[Comm], PersistentNeighborCalls[Comm]):
    """The ranks of a communicator, and the edges along which they send to each other.

    `Communicator.graph` makes a topology of any edges, `Communicator.cart` a `Grid`. Its calls are collective: all
    ranks of `comm` make them, in the same order as all collectives of `comm`. Each moves values along all edges at the
    same time, from every rank to its `destinations`, and returns the values of its `sources`, place by place. Of
    several edges from one rank to another, the n-th in the one's list of destinations is the n-th in the other's list
    of sources. An edge from a rank to itself is a copy.

    A place that is None, as a `Grid` has it beyond its ends, has no neighbour: nothing is sent from it; in the result
    its row is zero, or as it was in `out`, and its object is None.

    In the costs d is the most messages that any rank sends, or receives, to and from others. A call takes d rounds,
    which are found when the topology is made (König 1916); messages go straight to their rank, so fewer rounds cannot
    do. Values, `out`, `timeout` and errors are as described at `Communicator`.

    Attributes:
        comm: the communicator of these ranks, which was made for this topology; its `free` frees the topology as well.

    >>> ring = comm.graph([(comm.rank + 1) % comm.size])
    >>> ring.sources, ring.neighbor_allgather("hello")
    ((0,), ['hello'])
    """

    def __repr__(self) -> str:
        return f"<Topology: rank {self.comm.rank} of {self.comm.size}, {self._near.schedule.name}>"

    @property
    def sources(self) -> tuple[int | None, ...]:
        """The ranks of `comm` from which this rank receives, by place; None: the place has no source.

        >>> comm.graph([0, 0]).sources
        (0, 0)
        """
        return self._near.schedule.sources

    @property
    def destinations(self) -> tuple[int | None, ...]:
        """The ranks of `comm` to which this rank sends, by place; None: the place has no destination.

        >>> comm.graph([]).destinations
        ()
        """
        return self._near.schedule.destinations

    @property
    def rounds(self) -> int:
        """Number of rounds of a call, d: the most messages that any rank sends, or receives, to and from others.

        >>> comm.graph([0]).rounds
        0
        """
        return len(self._near.schedule)
