"""Arrays in memory that all ranks of a host share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ringcast import collectives
from ringcast.errors import SharedMemoryError
from ringcast.requests.calls import Calls
from ringcast.requests.types import Scalar


class SharedArrays(Calls):
    """Calls that make one array on each host, which its ranks of the communicator share."""

    @overload
    def shared_array(
        self,
        shape: int | Sequence[int],
        dtype: type[float] = float,
        fill: Any = None,
        *,
        timeout: float | None = None,
    ) -> NDArray[np.float64]: ...
    @overload
    def shared_array(
        self,
        shape: int | Sequence[int],
        dtype: type[Scalar] | np.dtype[Scalar],
        fill: Any = None,
        *,
        timeout: float | None = None,
    ) -> NDArray[Scalar]: ...
    @overload
    def shared_array(
        self,
        shape: int | Sequence[int],
        dtype: DTypeLike,
        fill: Any = None,
        *,
        timeout: float | None = None,
    ) -> NDArray[Any]: ...
    def shared_array(
        self,
        shape: int | Sequence[int],
        dtype: DTypeLike = float,
        fill: Any = None,
        *,
        timeout: float | None = None,
    ) -> NDArray[Any]:
        """Return a new array in memory that all ranks of this host see.

        Collective. Each host has one array, whose memory is given back when no rank has the array, or a view of it, any
        more: `del` it, as any array. Nothing is left of it however ranks end. ringcast does not order the accesses:
        `comm.split_by_host()` returns a communicator whose `barrier` separates writes from reads.

        Cost: three `allgather` of 8, 32 and 256 bytes a rank. Memory: one array on each host, all of it allocated by
        this call; each rank keeps a file descriptor open.

        Args:
            shape: length of the array, or of each dimension; equal on all ranks, as are `dtype` and `fill`.
            dtype: as for `np.zeros`, without Python objects.
            fill: the value of all items, which the ranks of a host write together; None: zeros.

        Returns:
            A C-contiguous, writeable array, equal on all ranks when the call returns.

        Raises:
            SharedMemoryError: a host has no room for it, its ranks cannot share memory (one of them is another user's,
                or in another container), or its system cannot (macOS), and it has several ranks. All ranks raise it,
                and the communicator stays in use.

        >>> counts = comm.shared_array(3, int)
        >>> counts[comm.rank] += 1
        >>> counts
        array([1, 0, 0])
        """
        made = self._call(collectives.shared_memory.shared_array(self._group, shape, dtype, fill), timeout)
        if isinstance(made, SharedMemoryError):
            raise made
        return made

    @overload
    def bcast_shared(
        self, value: None = None, root: int = 0, *, writeable: bool = False, timeout: float | None = None
    ) -> NDArray[Any]: ...
    @overload
    def bcast_shared(
        self, value: NDArray[Scalar] | None, root: int = 0, *, writeable: bool = False, timeout: float | None = None
    ) -> NDArray[Scalar]: ...
    def bcast_shared(
        self, value: Any = None, root: int = 0, *, writeable: bool = False, timeout: float | None = None
    ) -> NDArray[Any]:
        """Return the root's array on every rank, in memory that the ranks of a host share: see `shared_array`.

        One rank of each host receives the data, straight into that memory.

        Cost: a descriptor in q rounds; three `allgather` and a `barrier`, as of `shared_array`; a `bcast` of m bytes
        among one rank of each host; and a copy on the root. Memory: m bytes on each host.

        Args:
            value: at the root an array or scalar of numpy, without Python objects; other ranks' are ignored.
            writeable: whether this rank may write into the array; each rank has its own choice.

        Returns:
            An array of the root's shape, dtype and order (C, unless that is Fortran's), also on the root. Without
            `writeable` no view of it can be made writeable, and the system refuses any write to its memory.

        Raises:
            SharedMemoryError: as of `shared_array`.

        >>> comm.bcast_shared(np.arange(3))
        array([0, 1, 2])
        """
        made = self._call(collectives.shared_memory.bcast_shared(self._group, value, root, bool(writeable)), timeout)
        if isinstance(made, SharedMemoryError):
            raise made
        return made
