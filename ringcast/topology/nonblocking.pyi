# Written by docs/scripts/make_stubs.py from the blocking calls: change these, and run it again.
"""The nonblocking collectives between neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

from numpy.typing import NDArray

from ringcast.ops import Array
from ringcast.requests.request import Request
from ringcast.requests.types import Scalar, Value
from ringcast.topology.neighbor_calls import Comm, NeighborCalls

class NonblockingNeighborCalls(NeighborCalls[Comm]):
    """The i-forms of the calls; see `Request`."""
    @overload
    def ineighbor_allgather(self, value: NDArray[Scalar], *, out: Array | None = None) -> Request[NDArray[Scalar]]:
        """Begin `neighbor_allgather`, and return a request for its result.

        `neighbor_allgather`: send one value to all destinations, and return the values of all sources.

        Cost: d rounds of a value.

        Arguments, but for the timeout, and errors are those of `neighbor_allgather`.

        >>> comm.graph([0, 0]).ineighbor_allgather(np.arange(3)).wait()
        array([[0, 1, 2],
               [0, 1, 2]])
        """
    @overload
    def ineighbor_allgather(self, value: Scalar, *, out: Array | None = None) -> Request[NDArray[Scalar]]: ...
    @overload
    def ineighbor_allgather(self, value: Value, *, out: Array | None = None) -> Request[list[Value | None]]: ...
    @overload
    def ineighbor_allgatherv(
        self, value: NDArray[Scalar], counts: Sequence[int] | None = None, *, out: Array | None = None
    ) -> Request[NDArray[Scalar]]:
        """Begin `neighbor_allgatherv`, and return a request for its result.

        `neighbor_allgatherv`: send any number of rows to all destinations, and return the rows of all sources, one behind the other.

        Cost: d rounds of 8 bytes if counts are left out; then d rounds; in each, a rank's rows go to one rank.

        Arguments, but for the timeout, and errors are those of `neighbor_allgatherv`.

        >>> comm.graph([0]).ineighbor_allgatherv(np.arange(3)).wait()
        array([0, 1, 2])
        """
    @overload
    def ineighbor_allgatherv(
        self, value: list[Value] | tuple[Value, ...], counts: Sequence[int] | None = None, *, out: Array | None = None
    ) -> Request[list[Value]]: ...
    @overload
    def ineighbor_alltoall(self, value: NDArray[Scalar], *, out: Array | None = None) -> Request[NDArray[Scalar]]:
        """Begin `neighbor_alltoall`, and return a request for its result.

        `neighbor_alltoall`: send each destination a row of its own, and return the rows that the sources have for this rank.

        Cost: d rounds of a row.

        Arguments, but for the timeout, and errors are those of `neighbor_alltoall`.

        >>> comm.graph([0, 0]).ineighbor_alltoall(["a", "b"]).wait()
        ['a', 'b']
        """
    @overload
    def ineighbor_alltoall(
        self, value: Sequence[Value], *, out: Array | None = None
    ) -> Request[list[Value | None]]: ...
    @overload
    def ineighbor_alltoallv(
        self,
        value: NDArray[Scalar],
        counts: Sequence[int],
        recvcounts: Sequence[int] | None = None,
        *,
        out: Array | None = None,
    ) -> Request[NDArray[Scalar]]:
        """Begin `neighbor_alltoallv`, and return a request for its result.

        `neighbor_alltoallv`: send each destination any number of rows, and return the rows that the sources have for this rank.

        Cost: d rounds of 8 bytes if `recvcounts` are left out; then d rounds, in which rows go straight to their rank.

        Arguments, but for the timeout, and errors are those of `neighbor_alltoallv`.

        >>> comm.graph([0, 0]).ineighbor_alltoallv(np.arange(3), [2, 1]).wait()
        array([0, 1, 2])
        """
    @overload
    def ineighbor_alltoallv(
        self,
        value: list[Value] | tuple[Value, ...],
        counts: Sequence[int],
        recvcounts: Sequence[int] | None = None,
        *,
        out: Array | None = None,
    ) -> Request[list[Value]]: ...
