# Written by docs/scripts/make_calls.py from the blocking calls: change these, and run it again.
"""The persistent collectives between neighbours: prepared once, started again and again."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, overload

from numpy.typing import NDArray

from ringcast.collectives import neighbors
from ringcast.ops import Array
from ringcast.requests.persistent import Persistent
from ringcast.requests.types import Scalar, Value
from ringcast.topology.neighbor_calls import Comm, NeighborCalls


class PersistentNeighborCalls(NeighborCalls[Comm]):
    """The `_init` forms of the calls, which are started later; see `Persistent`."""

    @overload
    def neighbor_allgather_init(
        self, value: NDArray[Scalar], *, out: Array | None = None
    ) -> Persistent[NDArray[Scalar]]: ...
    @overload
    def neighbor_allgather_init(self, value: Scalar, *, out: Array | None = None) -> Persistent[NDArray[Scalar]]: ...
    @overload
    def neighbor_allgather_init(self, value: Value, *, out: Array | None = None) -> Persistent[list[Value | None]]: ...
    def neighbor_allgather_init(self, value: Any, *, out: Array | None = None) -> Persistent[Any]:
        """Prepare `neighbor_allgather`, and return a call that can be started any number of times.

        >>> call = comm.graph([0, 0]).neighbor_allgather_init(np.arange(3))
        >>> call.start()
        >>> call.wait()
        array([[0, 1, 2],
               [0, 1, 2]])
        """
        return self.comm._prepare(partial(neighbors.neighbor_allgather, self._near, value, out))

    @overload
    def neighbor_allgatherv_init(
        self, value: NDArray[Scalar], counts: Sequence[int] | None = None, *, out: Array | None = None
    ) -> Persistent[NDArray[Scalar]]: ...
    @overload
    def neighbor_allgatherv_init(
        self, value: list[Value] | tuple[Value, ...], counts: Sequence[int] | None = None, *, out: Array | None = None
    ) -> Persistent[list[Value]]: ...
    def neighbor_allgatherv_init(
        self, value: Any, counts: Sequence[int] | None = None, *, out: Array | None = None
    ) -> Persistent[Any]:
        """Prepare `neighbor_allgatherv`, and return a call that can be started any number of times.

        >>> call = comm.graph([0]).neighbor_allgatherv_init(np.arange(3))
        >>> call.start()
        >>> call.wait()
        array([0, 1, 2])
        """
        return self.comm._prepare(partial(neighbors.neighbor_allgatherv, self._near, value, counts, out))

    @overload
    def neighbor_alltoall_init(
        self, value: NDArray[Scalar], *, out: Array | None = None
    ) -> Persistent[NDArray[Scalar]]: ...
    @overload
    def neighbor_alltoall_init(
        self, value: Sequence[Value], *, out: Array | None = None
    ) -> Persistent[list[Value | None]]: ...
    def neighbor_alltoall_init(self, value: Any, *, out: Array | None = None) -> Persistent[Any]:
        """Prepare `neighbor_alltoall`, and return a call that can be started any number of times.

        >>> call = comm.graph([0, 0]).neighbor_alltoall_init(["a", "b"])
        >>> call.start()
        >>> call.wait()
        ['a', 'b']
        """
        return self.comm._prepare(partial(neighbors.neighbor_alltoall, self._near, value, out))

    @overload
    def neighbor_alltoallv_init(
        self,
        value: NDArray[Scalar],
        counts: Sequence[int],
        recvcounts: Sequence[int] | None = None,
        *,
        out: Array | None = None,
    ) -> Persistent[NDArray[Scalar]]: ...
    @overload
    def neighbor_alltoallv_init(
        self,
        value: list[Value] | tuple[Value, ...],
        counts: Sequence[int],
        recvcounts: Sequence[int] | None = None,
        *,
        out: Array | None = None,
    ) -> Persistent[list[Value]]: ...
    def neighbor_alltoallv_init(
        self, value: Any, counts: Sequence[int], recvcounts: Sequence[int] | None = None, *, out: Array | None = None
    ) -> Persistent[Any]:
        """Prepare `neighbor_alltoallv`, and return a call that can be started any number of times.

        >>> call = comm.graph([0, 0]).neighbor_alltoallv_init(np.arange(3), [2, 1])
        >>> call.start()
        >>> call.wait()
        array([0, 1, 2])
        """
        return self.comm._prepare(partial(neighbors.neighbor_alltoallv, self._near, value, counts, recvcounts, out))
