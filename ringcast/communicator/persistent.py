# Written by docs/scripts/make_calls.py from the blocking calls: change these, and run it again.
"""The persistent calls: each checks the arguments once, and returns a call to be started again and again."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, overload

from numpy.typing import NDArray

from ringcast import collectives
from ringcast.collectives.stage import Choice
from ringcast.collectives.status import ANY_SOURCE, ANY_TAG, Source, Status, Tag, Wildcard
from ringcast.ops import SUM, Array, as_op
from ringcast.requests.calls import Calls
from ringcast.requests.persistent import Persistent
from ringcast.requests.types import Operator, Scalar, Value


class PersistentCalls(Calls):
    """The `_init` forms of the calls, which are started later.

    They take the arguments of the blocking call, raise errors of arguments at once, and return a `Persistent`. Its
    `start` begins the call with the present values of the arrays, its `wait` returns the result of the call.
    """

    @overload
    def bcast_init(
        self, value: None = None, root: int = 0, *, algorithm: str | None = None, nblocks: int | None = None
    ) -> Persistent[Any]: ...
    @overload
    def bcast_init(
        self, value: Value | None, root: int = 0, *, algorithm: str | None = None, nblocks: int | None = None
    ) -> Persistent[Value]: ...
    def bcast_init(
        self, value: Any = None, root: int = 0, *, algorithm: str | None = None, nblocks: int | None = None
    ) -> Persistent[Any]:
        """Prepare `bcast`, and return a call that can be started any number of times.

        >>> call = comm.bcast_init(np.arange(3))
        >>> call.start()
        >>> call.wait()
        array([0, 1, 2])
        """
        return self._prepare(partial(collectives.broadcast.bcast, self._group, value, root, Choice(algorithm, nblocks)))

    @overload
    def scatter_init(
        self, values: Array | None = None, root: int = 0, *, out: Array | None = None, algorithm: str | None = None
    ) -> Persistent[Any]: ...
    @overload
    def scatter_init(
        self, values: Sequence[Value] | None, root: int = 0, *, out: Array | None = None, algorithm: str | None = None
    ) -> Persistent[Value]: ...
    def scatter_init(
        self, values: Any = None, root: int = 0, *, out: Array | None = None, algorithm: str | None = None
    ) -> Persistent[Any]:
        """Prepare `scatter`, and return a call that can be started any number of times.

        >>> call = comm.scatter_init([{"part": 0}])
        >>> call.start()
        >>> call.wait()
        {'part': 0}
        """
        return self._prepare(partial(collectives.scatter.scatter, self._group, values, root, out, Choice(algorithm)))

    @overload
    def scatterv_init(
        self,
        value: None = None,
        counts: Sequence[int] | None = None,
        root: int = 0,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
    ) -> Persistent[Any]: ...
    @overload
    def scatterv_init(
        self,
        value: NDArray[Scalar] | None,
        counts: Sequence[int] | None = None,
        root: int = 0,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
    ) -> Persistent[NDArray[Scalar]]: ...
    @overload
    def scatterv_init(
        self,
        value: list[Value] | tuple[Value, ...] | None,
        counts: Sequence[int] | None = None,
        root: int = 0,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
    ) -> Persistent[list[Value]]: ...
    def scatterv_init(
        self,
        value: Any = None,
        counts: Sequence[int] | None = None,
        root: int = 0,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
    ) -> Persistent[Any]:
        """Prepare `scatterv`, and return a call that can be started any number of times.

        >>> call = comm.scatterv_init(np.arange(4.0), counts=[4])
        >>> call.start()
        >>> call.wait()
        array([0., 1., 2., 3.])
        """
        return self._prepare(
            partial(collectives.scatter.scatterv, self._group, value, counts, root, out, Choice(algorithm))
        )

    @overload
    def gather_init(
        self, value: NDArray[Scalar], root: int = 0, *, out: Array | None = None, algorithm: str | None = None
    ) -> Persistent[NDArray[Scalar] | None]: ...
    @overload
    def gather_init(
        self, value: Scalar, root: int = 0, *, out: Array | None = None, algorithm: str | None = None
    ) -> Persistent[NDArray[Scalar] | None]: ...
    @overload
    def gather_init(
        self, value: Value, root: int = 0, *, out: Array | None = None, algorithm: str | None = None
    ) -> Persistent[list[Value] | None]: ...
    def gather_init(
        self, value: Any, root: int = 0, *, out: Array | None = None, algorithm: str | None = None
    ) -> Persistent[Any]:
        """Prepare `gather`, and return a call that can be started any number of times.

        >>> call = comm.gather_init(np.arange(3))
        >>> call.start()
        >>> call.wait()
        array([[0, 1, 2]])
        """
        return self._prepare(partial(collectives.gather.gather, self._group, value, root, out, Choice(algorithm)))

    @overload
    def gatherv_init(
        self,
        value: NDArray[Scalar],
        counts: Sequence[int] | None = None,
        root: int = 0,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
    ) -> Persistent[NDArray[Scalar] | None]: ...
    @overload
    def gatherv_init(
        self,
        value: list[Value] | tuple[Value, ...],
        counts: Sequence[int] | None = None,
        root: int = 0,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
    ) -> Persistent[list[Value] | None]: ...
    def gatherv_init(
        self,
        value: Any,
        counts: Sequence[int] | None = None,
        root: int = 0,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
    ) -> Persistent[Any]:
        """Prepare `gatherv`, and return a call that can be started any number of times.

        >>> call = comm.gatherv_init(np.ones((2, 2)), counts=[2])
        >>> call.start()
        >>> call.wait()
        array([[1., 1.],
               [1., 1.]])
        """
        return self._prepare(
            partial(collectives.gather.gatherv, self._group, value, counts, root, out, Choice(algorithm))
        )

    @overload
    def allgather_init(
        self,
        value: NDArray[Scalar],
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        nblocks: int | None = None,
    ) -> Persistent[NDArray[Scalar]]: ...
    @overload
    def allgather_init(
        self, value: Scalar, *, out: Array | None = None, algorithm: str | None = None, nblocks: int | None = None
    ) -> Persistent[NDArray[Scalar]]: ...
    @overload
    def allgather_init(
        self, value: Value, *, out: Array | None = None, algorithm: str | None = None, nblocks: int | None = None
    ) -> Persistent[list[Value]]: ...
    def allgather_init(
        self, value: Any, *, out: Array | None = None, algorithm: str | None = None, nblocks: int | None = None
    ) -> Persistent[Any]:
        """Prepare `allgather`, and return a call that can be started any number of times.

        >>> call = comm.allgather_init("text")
        >>> call.start()
        >>> call.wait()
        ['text']
        """
        return self._prepare(partial(collectives.gather.allgather, self._group, value, out, Choice(algorithm, nblocks)))

    @overload
    def allgatherv_init(
        self,
        value: NDArray[Scalar],
        counts: Sequence[int] | None = None,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        nblocks: int | None = None,
    ) -> Persistent[NDArray[Scalar]]: ...
    @overload
    def allgatherv_init(
        self,
        value: list[Value] | tuple[Value, ...],
        counts: Sequence[int] | None = None,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        nblocks: int | None = None,
    ) -> Persistent[list[Value]]: ...
    def allgatherv_init(
        self,
        value: Any,
        counts: Sequence[int] | None = None,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        nblocks: int | None = None,
    ) -> Persistent[Any]:
        """Prepare `allgatherv`, and return a call that can be started any number of times.

        >>> call = comm.allgatherv_init(np.arange(3))
        >>> call.start()
        >>> call.wait()
        array([0, 1, 2])
        """
        return self._prepare(
            partial(collectives.gather.allgatherv, self._group, value, counts, out, Choice(algorithm, nblocks))
        )

    def merge_sorted_init(
        self, array: NDArray[Scalar], *, out: Array | None = None, algorithm: str | None = None
    ) -> Persistent[NDArray[Scalar]]:
        """Prepare `merge_sorted`, and return a call that can be started any number of times.

        >>> call = comm.merge_sorted_init(np.array([1, 2, 2]))
        >>> call.start()
        >>> call.wait()
        array([1, 2, 2])
        """
        return self._prepare(partial(collectives.merge.merge_sorted, self._group, array, out, Choice(algorithm)))

    @overload
    def alltoall_init(
        self, value: NDArray[Scalar], *, out: Array | None = None, algorithm: str | None = None
    ) -> Persistent[NDArray[Scalar]]: ...
    @overload
    def alltoall_init(
        self, value: Sequence[Value], *, out: Array | None = None, algorithm: str | None = None
    ) -> Persistent[list[Value]]: ...
    def alltoall_init(self, value: Any, *, out: Array | None = None, algorithm: str | None = None) -> Persistent[Any]:
        """Prepare `alltoall`, and return a call that can be started any number of times.

        >>> call = comm.alltoall_init(["for rank 0"])
        >>> call.start()
        >>> call.wait()
        ['for rank 0']
        """
        return self._prepare(partial(collectives.alltoall.alltoall, self._group, value, out, Choice(algorithm)))

    @overload
    def alltoallv_init(
        self,
        value: NDArray[Scalar],
        counts: Sequence[int],
        recvcounts: Sequence[int] | None = None,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
    ) -> Persistent[NDArray[Scalar]]: ...
    @overload
    def alltoallv_init(
        self,
        value: list[Value] | tuple[Value, ...],
        counts: Sequence[int],
        recvcounts: Sequence[int] | None = None,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
    ) -> Persistent[list[Value]]: ...
    def alltoallv_init(
        self,
        value: Any,
        counts: Sequence[int],
        recvcounts: Sequence[int] | None = None,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
    ) -> Persistent[Any]:
        """Prepare `alltoallv`, and return a call that can be started any number of times.

        >>> call = comm.alltoallv_init(np.arange(3), counts=[3])
        >>> call.start()
        >>> call.wait()
        array([0, 1, 2])
        """
        choice = Choice(algorithm)
        return self._prepare(
            partial(collectives.alltoall.alltoallv, self._group, value, counts, recvcounts, out, choice)
        )

    def shift_init(
        self, value: Value, distance: int, *, out: Array | None = None, algorithm: str | None = None
    ) -> Persistent[Value]:
        """Prepare `shift`, and return a call that can be started any number of times.

        >>> call = comm.shift_init(np.arange(3), 1)
        >>> call.start()
        >>> call.wait()
        array([0, 1, 2])
        """
        return self._prepare(partial(collectives.shift.shift, self._group, value, distance, out, Choice(algorithm)))

    def reduce_init(
        self,
        value: Value,
        op: Operator = SUM,
        root: int = 0,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        nblocks: int | None = None,
    ) -> Persistent[Value | None]:
        """Prepare `reduce`, and return a call that can be started any number of times.

        >>> call = comm.reduce_init(np.array([1.5, 2.5]), ringcast.MAX)
        >>> call.start()
        >>> call.wait()
        array([1.5, 2.5])
        """
        choice = Choice(algorithm, nblocks)
        return self._prepare(partial(collectives.reduce.reduce, self._group, value, as_op(op), root, out, choice))

    def allreduce_init(
        self,
        value: Value,
        op: Operator = SUM,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        nblocks: int | None = None,
    ) -> Persistent[Value]:
        """Prepare `allreduce`, and return a call that can be started any number of times.

        >>> call = comm.allreduce_init(np.arange(3), out=np.zeros(3, int))
        >>> call.start()
        >>> call.wait()
        array([0, 1, 2])
        """
        return self._prepare(
            partial(collectives.reduce.allreduce, self._group, value, as_op(op), out, Choice(algorithm, nblocks))
        )

    @overload
    def reduce_scatter_init(
        self,
        value: NDArray[Scalar],
        op: Operator = SUM,
        counts: Sequence[int] | None = None,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        nblocks: int | None = None,
    ) -> Persistent[NDArray[Scalar]]: ...
    @overload
    def reduce_scatter_init(
        self,
        value: Sequence[Value],
        op: Operator = SUM,
        counts: Sequence[int] | None = None,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        nblocks: int | None = None,
    ) -> Persistent[Value]: ...
    def reduce_scatter_init(
        self,
        value: Any,
        op: Operator = SUM,
        counts: Sequence[int] | None = None,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        nblocks: int | None = None,
    ) -> Persistent[Any]:
        """Prepare `reduce_scatter`, and return a call that can be started any number of times.

        >>> call = comm.reduce_scatter_init(np.arange(4))
        >>> call.start()
        >>> call.wait()
        array([0, 1, 2, 3])
        """
        choice = Choice(algorithm, nblocks)
        return self._prepare(
            partial(collectives.reduce.reduce_scatter, self._group, value, as_op(op), counts, out, choice)
        )

    def scan_init(
        self, value: Value, op: Operator = SUM, *, out: Array | None = None, algorithm: str | None = None
    ) -> Persistent[Value]:
        """Prepare `scan`, and return a call that can be started any number of times.

        >>> call = comm.scan_init(np.arange(3))
        >>> call.start()
        >>> call.wait()
        array([0, 1, 2])
        """
        return self._prepare(partial(collectives.scan.scan, self._group, value, as_op(op), out, Choice(algorithm)))

    @overload
    def exscan_init(
        self, value: Value, op: Operator = SUM, *, out: None = None, algorithm: str | None = None
    ) -> Persistent[Value | None]: ...
    @overload
    def exscan_init(
        self, value: Value, op: Operator = SUM, *, out: Array, algorithm: str | None = None
    ) -> Persistent[Value]: ...
    def exscan_init(
        self, value: Any, op: Operator = SUM, *, out: Array | None = None, algorithm: str | None = None
    ) -> Persistent[Any]:
        """Prepare `exscan`, and return a call that can be started any number of times.

        >>> call = comm.exscan_init(np.arange(3), out=np.zeros(3, int))
        >>> call.start()
        >>> call.wait()
        array([0, 0, 0])
        """
        return self._prepare(partial(collectives.scan.exscan, self._group, value, as_op(op), out, Choice(algorithm)))

    def barrier_init(self) -> Persistent[None]:
        """Prepare `barrier`, and return a call that can be started any number of times.

        >>> call = comm.barrier_init()
        >>> call.start()
        >>> call.wait()
        """
        return self._prepare(partial(collectives.reduce.barrier, self._group))

    def send_init(self, value: object, dest: int | None, tag: int = 0) -> Persistent[None]:
        """Prepare `send`, and return a call that can be started any number of times.

        >>> call = comm.send_init({"a": 1}, dest=0, tag=7)
        >>> call.start()
        >>> call.wait()
        >>> comm.recv(0, tag=7)
        {'a': 1}
        """
        return self._prepare(partial(collectives.point_to_point.send, self._group, value, dest, tag))

    @overload
    def recv_init(
        self, source: Source = ANY_SOURCE, tag: Tag = ANY_TAG, *, out: None = None, status: Status | None = None
    ) -> Persistent[Any]: ...
    @overload
    def recv_init(
        self,
        source: int | Wildcard = ANY_SOURCE,
        tag: Tag = ANY_TAG,
        *,
        out: NDArray[Scalar],
        status: Status | None = None,
    ) -> Persistent[NDArray[Scalar]]: ...
    @overload
    def recv_init(
        self, source: Source = ANY_SOURCE, tag: Tag = ANY_TAG, *, out: NDArray[Scalar], status: Status | None = None
    ) -> Persistent[NDArray[Scalar] | None]: ...
    def recv_init(
        self, source: Source = ANY_SOURCE, tag: Tag = ANY_TAG, *, out: Any = None, status: Status | None = None
    ) -> Persistent[Any]:
        """Prepare `recv`, and return a call that can be started any number of times.

        It can be cancelled while it is under way.

        >>> comm.send(np.arange(3), dest=0)
        >>> call = comm.recv_init(out=np.zeros(5, int))
        >>> call.start()
        >>> call.wait()
        array([0, 1, 2])
        """
        return self._prepare(partial(collectives.point_to_point.recv, self._group, source, tag, out, status))
