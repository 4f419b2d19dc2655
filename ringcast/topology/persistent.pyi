# Written by docs/scripts/make_stubs.py from the blocking calls: change these, and run it again.
"""The persistent collectives between neighbours: prepared once, started again and again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

from numpy.typing import NDArray

from ringcast.ops import Array
from ringcast.requests.persistent import Persistent
from ringcast.requests.types import Scalar, Value
from ringcast.topology.neighbor_calls import Comm, NeighborCalls

class PersistentNeighborCalls(NeighborCalls[Comm]):
    """The `_init` forms of the calls, which are started later; see `Persistent`."""
    @overload
    def neighbor_allgather_init(
        self, value: NDArray[Scalar], *, out: Array | None = None
    ) -> Persistent[NDArray[Scalar]]:
        """Prepare `neighbor_allgather`, and return a call that can be started any number of times.

        `neighbor_allgather`: send one value to all destinations, and return the values of all sources.

        Cost: d rounds of a value.

        Arguments, but for the timeout, and errors are those of `neighbor_allgather`.

        >>> call = comm.graph([0, 0]).neighbor_allgather_init(np.arange(3))
        >>> call.start()
        >>> call.wait()
        array([[0, 1, 2],
               [0, 1, 2]])
        """
    @overload
    def neighbor_allgather_init(self, value: Scalar, *, out: Array | None = None) -> Persistent[NDArray[Scalar]]: ...
    @overload
    def neighbor_allgather_init(self, value: Value, *, out: Array | None = None) -> Persistent[list[Value | None]]: ...
    @overload
    def neighbor_allgatherv_init(
        self, value: NDArray[Scalar], counts: Sequence[int] | None = None, *, out: Array | None = None
    ) -> Persistent[NDArray[Scalar]]:
        """Prepare `neighbor_allgatherv`, and return a call that can be started any number of times.

        `neighbor_allgatherv`: send any number of rows to all destinations, and return the rows of all sources, one behind the other.

        Cost: d rounds of 8 bytes if counts are left out; then d rounds; in each, a rank's rows go to one rank.

        Arguments, but for the timeout, and errors are those of `neighbor_allgatherv`.

        >>> call = comm.graph([0]).neighbor_allgatherv_init(np.arange(3))
        >>> call.start()
        >>> call.wait()
        array([0, 1, 2])
        """
    @overload
    def neighbor_allgatherv_init(
        self, value: list[Value] | tuple[Value, ...], counts: Sequence[int] | None = None, *, out: Array | None = None
    ) -> Persistent[list[Value]]: ...
    @overload
    def neighbor_alltoall_init(
        self, value: NDArray[Scalar], *, out: Array | None = None
    ) -> Persistent[NDArray[Scalar]]:
        """Prepare `neighbor_alltoall`, and return a call that can be started any number of times.

        `neighbor_alltoall`: send each destination a row of its own, and return the rows that the sources have for this rank.

        Cost: d rounds of a row.

        Arguments, but for the timeout, and errors are those of `neighbor_alltoall`.

        >>> call = comm.graph([0, 0]).neighbor_alltoall_init(["a", "b"])
        >>> call.start()
        >>> call.wait()
        ['a', 'b']
        """
    @overload
    def neighbor_alltoall_init(
        self, value: Sequence[Value], *, out: Array | None = None
    ) -> Persistent[list[Value | None]]: ...
    @overload
    def neighbor_alltoallv_init(
        self,
        value: NDArray[Scalar],
        counts: Sequence[int],
        recvcounts: Sequence[int] | None = None,
        *,
        out: Array | None = None,
    ) -> Persistent[NDArray[Scalar]]:
        """Prepare `neighbor_alltoallv`, and return a call that can be started any number of times.

        `neighbor_alltoallv`: send each destination any number of rows, and return the rows that the sources have for this rank.

        Cost: d rounds of 8 bytes if `recvcounts` are left out; then d rounds, in which rows go straight to their rank.

        Arguments, but for the timeout, and errors are those of `neighbor_alltoallv`.

        >>> call = comm.graph([0, 0]).neighbor_alltoallv_init(np.arange(3), [2, 1])
        >>> call.start()
        >>> call.wait()
        array([0, 1, 2])
        """
    @overload
    def neighbor_alltoallv_init(
        self,
        value: list[Value] | tuple[Value, ...],
        counts: Sequence[int],
        recvcounts: Sequence[int] | None = None,
        *,
        out: Array | None = None,
    ) -> Persistent[list[Value]]: ...
