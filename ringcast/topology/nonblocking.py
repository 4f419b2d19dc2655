# Written by docs/scripts/make_calls.py from the blocking calls: change these, and run it again.
"""The nonblocking collectives between neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

from numpy.typing import NDArray

from ringcast.collectives import neighbors
from ringcast.ops import Array
from ringcast.requests.request import Request
from ringcast.requests.types import Scalar, Value
from ringcast.topology.neighbor_calls import Comm, NeighborCalls


class NonblockingNeighborCalls(NeighborCalls[Comm]):
    """The i-forms of the calls; see `Request`."""

    @overload
    def ineighbor_allgather(self, value: NDArray[Scalar], *, out: Array | None = None) -> Request[NDArray[Scalar]]: ...
    @overload
    def ineighbor_allgather(self, value: Scalar, *, out: Array | None = None) -> Request[NDArray[Scalar]]: ...
    @overload
    def ineighbor_allgather(self, value: Value, *, out: Array | None = None) -> Request[list[Value | None]]: ...
    def ineighbor_allgather(self, value: Any, *, out: Array | None = None) -> Request[Any]:
        """Begin `neighbor_allgather`, and return a request for its result.

        >>> comm.graph([0, 0]).ineighbor_allgather(np.arange(3)).wait()
        array([[0, 1, 2],
               [0, 1, 2]])
        """
        return self.comm._begin(neighbors.neighbor_allgather(self._near, value, out))

    @overload
    def ineighbor_allgatherv(
        self, value: NDArray[Scalar], counts: Sequence[int] | None = None, *, out: Array | None = None
    ) -> Request[NDArray[Scalar]]: ...
    @overload
    def ineighbor_allgatherv(
        self, value: list[Value] | tuple[Value, ...], counts: Sequence[int] | None = None, *, out: Array | None = None
    ) -> Request[list[Value]]: ...
    def ineighbor_allgatherv(
        self, value: Any, counts: Sequence[int] | None = None, *, out: Array | None = None
    ) -> Request[Any]:
        """Begin `neighbor_allgatherv`, and return a request for its result.

        >>> comm.graph([0]).ineighbor_allgatherv(np.arange(3)).wait()
        array([0, 1, 2])
        """
        return self.comm._begin(neighbors.neighbor_allgatherv(self._near, value, counts, out))

    @overload
    def ineighbor_alltoall(self, value: NDArray[Scalar], *, out: Array | None = None) -> Request[NDArray[Scalar]]: ...
    @overload
    def ineighbor_alltoall(
        self, value: Sequence[Value], *, out: Array | None = None
    ) -> Request[list[Value | None]]: ...
    def ineighbor_alltoall(self, value: Any, *, out: Array | None = None) -> Request[Any]:
        """Begin `neighbor_alltoall`, and return a request for its result.

        >>> comm.graph([0, 0]).ineighbor_alltoall(["a", "b"]).wait()
        ['a', 'b']
        """
        return self.comm._begin(neighbors.neighbor_alltoall(self._near, value, out))

    @overload
    def ineighbor_alltoallv(
        self,
        value: NDArray[Scalar],
        counts: Sequence[int],
        recvcounts: Sequence[int] | None = None,
        *,
        out: Array | None = None,
    ) -> Request[NDArray[Scalar]]: ...
    @overload
    def ineighbor_alltoallv(
        self,
        value: list[Value] | tuple[Value, ...],
        counts: Sequence[int],
        recvcounts: Sequence[int] | None = None,
        *,
        out: Array | None = None,
    ) -> Request[list[Value]]: ...
    def ineighbor_alltoallv(
        self, value: Any, counts: Sequence[int], recvcounts: Sequence[int] | None = None, *, out: Array | None = None
    ) -> Request[Any]:
        """Begin `neighbor_alltoallv`, and return a request for its result.

        >>> comm.graph([0, 0]).ineighbor_alltoallv(np.arange(3), [2, 1]).wait()
        array([0, 1, 2])
        """
        return self.comm._begin(neighbors.neighbor_alltoallv(self._near, value, counts, recvcounts, out))
