"""Arrays of which a host has one, in memory that all its ranks see."""

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
        """Return a new array that all ranks of this host see: what one of them writes, the others read.

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
