"""Collectives between neighbours: every rank sends along its edges, and returns the values that arrive along them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, Self, TypeVar, overload

from numpy.typing import NDArray

from ringcast.collectives import neighbors
from ringcast.collectives.stage import Group
from ringcast.engine.execute import Result, Steps
from ringcast.ops import Array
from ringcast.requests.calls import Unmade
from ringcast.requests.persistent import Persistent
from ringcast.requests.request import Request
from ringcast.requests.types import Scalar, Value
from ringcast.schedules.neighborhood import Neighborhood
from ringcast.wire.call import Site


class Communicating(Protocol):
    """A communicator, as a topology uses it."""

    _group: Group

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    def split(self, color: int | None, key: int = 0) -> Self | None: ...

    def _call(self, steps: Steps[Result], timeout: float | None) -> Result: ...

    def _begin(self, operation: str, make: Callable[[], Steps[Result]], site: Site) -> Request[Result]: ...

    def _prepare(self, operation: str, make: Callable[[], Steps[Result]], site: Site) -> Persistent[Result]: ...


Comm = TypeVar("Comm", bound=Communicating)


class NeighborCalls(Generic[Comm]):
    """The blocking calls between neighbours."""

    def __init__(self, comm: Comm, neighborhood: Neighborhood) -> None:
        self.comm = comm
        self._near = neighbors.neighbors_of(comm._group, neighborhood)
        self._unmade = Unmade(comm=Unmade(), _near=self._near)

    def _begin(self, operation: str, make: Callable[[], Steps[Result]], site: Site) -> Request[Result]:
        return self.comm._begin(operation, make, site)

    def _prepare(self, operation: str, make: Callable[[], Steps[Result]], site: Site) -> Persistent[Result]:
        return self.comm._prepare(operation, make, site)

    @overload
    def neighbor_allgather(
        self, value: NDArray[Scalar], *, out: Array | None = None, timeout: float | None = None
    ) -> NDArray[Scalar]: ...
    @overload
    def neighbor_allgather(
        self, value: Scalar, *, out: Array | None = None, timeout: float | None = None
    ) -> NDArray[Scalar]: ...
    @overload
    def neighbor_allgather(
        self, value: Value, *, out: Array | None = None, timeout: float | None = None
    ) -> list[Value | None]: ...
    def neighbor_allgather(self, value: Any, *, out: Array | None = None, timeout: float | None = None) -> Any:
        """Send one value to all destinations, and return the values of all sources.

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

    @overload
    def neighbor_allgatherv(
        self,
        value: NDArray[Scalar],
        counts: Sequence[int] | None = None,
        *,
        out: Array | None = None,
        timeout: float | None = None,
    ) -> NDArray[Scalar]: ...
    @overload
    def neighbor_allgatherv(
        self,
        value: list[Value] | tuple[Value, ...],
        counts: Sequence[int] | None = None,
        *,
        out: Array | None = None,
        timeout: float | None = None,
    ) -> list[Value]: ...
    def neighbor_allgatherv(
        self, value: Any, counts: Sequence[int] | None = None, *, out: Array | None = None, timeout: float | None = None
    ) -> Any:
        """Send any number of rows to all destinations, and return the rows of all sources, one behind the other.

        Cost: d rounds of 8 bytes if counts are left out; then d rounds; in each, a rank's rows go to one rank.

        Args:
            value: an array of one dimension or more; all but the first are equal on all ranks, and so is the dtype. Or
                a list or tuple of objects.
            counts: the rows that come from each source, also 0. All ranks give them; or none, and they are exchanged.
                For a place without a source: the number of rows of the result that stay as they are.
            out: with sum(counts) rows.
            timeout: see `Communicator`.

        Returns:
            An array with sum(counts) rows, or a list of the objects that came.

        Raises:
            ArgumentError: as in `Communicator.alltoallv`, with these counts in the role of its `recvcounts`.
            CollectiveMismatch: counts differ from the rows that the sources have.

        >>> comm.graph([0]).neighbor_allgatherv(np.arange(3))
        array([0, 1, 2])
        """
        return self.comm._call(neighbors.neighbor_allgatherv(self._near, value, counts, out), timeout)

    @overload
    def neighbor_alltoall(
        self, value: NDArray[Scalar], *, out: Array | None = None, timeout: float | None = None
    ) -> NDArray[Scalar]: ...
    @overload
    def neighbor_alltoall(
        self, value: Sequence[Value], *, out: Array | None = None, timeout: float | None = None
    ) -> list[Value | None]: ...
    def neighbor_alltoall(self, value: Any, *, out: Array | None = None, timeout: float | None = None) -> Any:
        """Send each destination a row of its own, and return the rows that the sources have for this rank.

        In a `Grid`, the row for the rank before this one arrives there as the row from the rank behind.

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

    @overload
    def neighbor_alltoallv(
        self,
        value: NDArray[Scalar],
        counts: Sequence[int],
        recvcounts: Sequence[int] | None = None,
        *,
        out: Array | None = None,
        timeout: float | None = None,
    ) -> NDArray[Scalar]: ...
    @overload
    def neighbor_alltoallv(
        self,
        value: list[Value] | tuple[Value, ...],
        counts: Sequence[int],
        recvcounts: Sequence[int] | None = None,
        *,
        out: Array | None = None,
        timeout: float | None = None,
    ) -> list[Value]: ...
    def neighbor_alltoallv(
        self,
        value: Any,
        counts: Sequence[int],
        recvcounts: Sequence[int] | None = None,
        *,
        out: Array | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Send each destination any number of rows, and return the rows that the sources have for this rank.

        Cost: d rounds of 8 bytes if `recvcounts` are left out; then d rounds, in which rows go straight to their rank.

        Args:
            value: as in `neighbor_allgatherv`. The first `counts[0]` rows are for the first destination, and so on.
            counts: a number for each destination, also 0, which add up to the rows of `value`; rows for a place
                without a destination are not sent.
            recvcounts: the rows that come from each source; as `counts` of `neighbor_allgatherv`.
            out: with sum(recvcounts) rows; memory that it shares with `value` is copied first.
            timeout: see `Communicator`.

        Returns:
            An array with sum(recvcounts) rows, or a list of the objects that came.

        Raises:
            ArgumentError: as in `Communicator.alltoallv`.
            CollectiveMismatch: `recvcounts` differ from the rows that the sources have for this rank.

        >>> comm.graph([0, 0]).neighbor_alltoallv(np.arange(3), [2, 1])
        array([0, 1, 2])
        """
        return self.comm._call(neighbors.neighbor_alltoallv(self._near, value, counts, recvcounts, out), timeout)
