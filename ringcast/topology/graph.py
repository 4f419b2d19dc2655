"""A graph of ranks, and the collectives between neighbours in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, Protocol, Self, TypeVar

from ringcast.collectives import neighbors
from ringcast.collectives.stage import Group
from ringcast.engine.execute import Result, Steps
from ringcast.requests.request import Request
from ringcast.schedules.neighborhood import Neighborhood


class Communicating(Protocol):
    """A communicator, as a topology uses it."""

    _group: Group

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    def split(self, color: int | None, key: int = 0) -> Self | None: ...

    def _call(self, steps: Steps[Result], timeout: float | None) -> Result: ...

    def _begin(self, steps: Steps[Result]) -> Request[Result]: ...


Comm = TypeVar("Comm", bound=Communicating)


class Topology(Generic[Comm]):
    """The ranks of a communicator, and the edges along which they send to each other.

    `Communicator.graph` makes a topology of any edges, `Communicator.cart` a `Grid`. Its calls are collective: all
    ranks of `comm` make them, in the same order as all collectives of `comm`. Each moves values along all edges at the
    same time, from every rank to its `destinations`, and returns what has come from its `sources`, place by place. The
    n-th edge from a rank to another one is the n-th of both. An edge from a rank to itself is a copy.

    A place that is None, as a `Grid` has it beyond its ends, has no neighbour: nothing is sent from it; in the result
    its row is zero, or as it was in `out`, and its object is None.

    In the costs d is the most messages that any rank sends, or receives, to and from others: so many rounds the edges
    take, which are found when the topology is made (König 1916); messages go straight to their rank, for which fewer
    do not suffice. Values, `out` and `timeout`, and all errors, are those of `Communicator`.

    Attributes:
        comm: the communicator of these ranks, which was made for this topology; its `free` frees the topology as well.

    >>> ring = comm.graph([(comm.rank + 1) % comm.size])
    >>> ring.sources, ring.neighbor_allgather("hello")
    ((0,), ['hello'])
    """

    def __init__(self, comm: Comm, neighborhood: Neighborhood) -> None:
        self.comm = comm
        self._near = neighbors.neighbors_of(comm._group, neighborhood)

    def __repr__(self) -> str:
        return f"<Topology: rank {self.comm.rank} of {self.comm.size}, {self._near.schedule.name}>"

    @property
    def sources(self) -> tuple[int | None, ...]:
        """Of each place the rank of `comm` from which this rank receives; None: there is none.

        >>> comm.graph([0, 0]).sources
        (0, 0)
        """
        return self._near.schedule.sources

    @property
    def destinations(self) -> tuple[int | None, ...]:
        """Of each place the rank of `comm` to which this rank sends; None: there is none.

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

    def neighbor_allgather(self, value: Any, *, out: Any = None, timeout: float | None = None) -> Any:
        """Send one value to all destinations, and return those of all sources.

        Cost: d rounds of a value.

        Args:
            value: an array or scalar, of one shape and dtype on all ranks, or an object.
            out: of shape (number of sources, *value.shape).
            timeout: see `Communicator`.

        Returns:
            An array of shape (number of sources, *value.shape), or a list of as many objects.

        >>> comm.graph([0, 0]).neighbor_allgather(np.arange(3))
        array([[0, 1, 2],
               [0, 1, 2]])
        """
        return self.comm._call(neighbors.neighbor_allgather(self._near, value, out), timeout)

    def neighbor_allgatherv(
        self, value: Any, counts: Sequence[int] | None = None, *, out: Any = None, timeout: float | None = None
    ) -> Any:
        """Send any number of rows to all destinations, and return those of all sources, one behind the other.

        Cost: d rounds of 8 bytes if counts are left out; then d rounds, in each of which a rank's rows go to one rank.

        Args:
            value: an array of one dimension or more; all but the first are equal on all ranks, and so is the dtype. Or
                a list or tuple of objects.
            counts: the rows that come from each source, also 0. All ranks give them; or none, and they are exchanged.
                Of a place without a source: how many rows of the result stay as they are.
            out: with sum(counts) rows.
            timeout: see `Communicator`.

        Returns:
            An array with sum(counts) rows, or a list of the objects that came.

        Raises:
            ArgumentError: as in `Communicator.alltoallv`, with these counts in the part of its `recvcounts`.
            CollectiveMismatch: counts are not what the sources have.

        >>> comm.graph([0]).neighbor_allgatherv(np.arange(3))
        array([0, 1, 2])
        """
        return self.comm._call(neighbors.neighbor_allgatherv(self._near, value, counts, out), timeout)

    def neighbor_alltoall(self, value: Any, *, out: Any = None, timeout: float | None = None) -> Any:
        """Send each destination a row of its own, and return the rows that the sources have for this rank.

        In a `Grid`, what goes to the rank before this one comes there from the rank behind.

        Cost: d rounds of a row.

        Args:
            value: an array with a row for each destination, rows of one shape and dtype on all ranks, or a sequence of
                as many objects.
            out: with a row for each source; memory that it shares with `value` is copied first.
            timeout: see `Communicator`.

        Returns:
            An array with a row for each source, or a list of as many objects.

        >>> comm.graph([0, 0]).neighbor_alltoall(["a", "b"])
        ['a', 'b']
        """
        return self.comm._call(neighbors.neighbor_alltoall(self._near, value, out), timeout)

    def neighbor_alltoallv(
        self,
        value: Any,
        counts: Sequence[int],
        recvcounts: Sequence[int] | None = None,
        *,
        out: Any = None,
        timeout: float | None = None,
    ) -> Any:
        """Send each destination any number of rows, and return the rows that the sources have for this rank.

        Cost: d rounds of 8 bytes if `recvcounts` are left out; then d rounds, in which rows go straight to their rank.

        Args:
            value: as in `neighbor_allgatherv`. The first `counts[0]` rows are for the first destination, and so on.
            counts: a number for each destination, also 0, which add up to the rows of `value`; those for a place
                without a destination are not sent.
            recvcounts: the rows that come from each source; as `counts` of `neighbor_allgatherv`.
            out: with sum(recvcounts) rows; memory that it shares with `value` is copied first.
            timeout: see `Communicator`.

        Returns:
            An array with sum(recvcounts) rows, or a list of the objects that came.

        Raises:
            ArgumentError: as in `Communicator.alltoallv`.
            CollectiveMismatch: `recvcounts` are not what the sources have for this rank.

        >>> comm.graph([0, 0]).neighbor_alltoallv(np.arange(3), [2, 1])
        array([0, 1, 2])
        """
        return self.comm._call(neighbors.neighbor_alltoallv(self._near, value, counts, recvcounts, out), timeout)

    def ineighbor_allgather(self, value: Any, *, out: Any = None) -> Request[Any]:
        """Begin `neighbor_allgather`, and return a request for what that returns.

        >>> comm.graph([0]).ineighbor_allgather("a").wait()
        ['a']
        """
        return self.comm._begin(neighbors.neighbor_allgather(self._near, value, out))

    def ineighbor_allgatherv(self, value: Any, counts: Sequence[int] | None = None, *, out: Any = None) -> Request[Any]:
        """Begin `neighbor_allgatherv`, and return a request for what that returns.

        >>> comm.graph([0]).ineighbor_allgatherv(["a", "b"]).wait()
        ['a', 'b']
        """
        return self.comm._begin(neighbors.neighbor_allgatherv(self._near, value, counts, out))

    def ineighbor_alltoall(self, value: Any, *, out: Any = None) -> Request[Any]:
        """Begin `neighbor_alltoall`, and return a request for what that returns.

        >>> comm.graph([0]).ineighbor_alltoall(np.ones((1, 2))).wait()
        array([[1., 1.]])
        """
        return self.comm._begin(neighbors.neighbor_alltoall(self._near, value, out))

    def ineighbor_alltoallv(
        self, value: Any, counts: Sequence[int], recvcounts: Sequence[int] | None = None, *, out: Any = None
    ) -> Request[Any]:
        """Begin `neighbor_alltoallv`, and return a request for what that returns.

        >>> comm.graph([0]).ineighbor_alltoallv(np.arange(2), [2]).wait()
        array([0, 1])
        """
        return self.comm._begin(neighbors.neighbor_alltoallv(self._near, value, counts, recvcounts, out))
