# Written by docs/scripts/make_calls.py from the blocking calls: change these, and run it again.
"""The nonblocking calls: each begins the call, and returns a request for its result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

from numpy.typing import NDArray

from ringcast import collectives
from ringcast.collectives.stage import Choice
from ringcast.collectives.status import ANY_SOURCE, ANY_TAG, Source, Status, Tag, Wildcard
from ringcast.ops import SUM, Array, as_op
from ringcast.requests.calls import Calls
from ringcast.requests.request import Request
from ringcast.requests.types import Operator, Scalar, Value


class NonblockingCalls(Calls):
    """The i-forms of the calls: `iallreduce` begins an `allreduce`, and so on.

    They take the arguments of the blocking call, raise errors of arguments at once, and return a `Request`, whose
    `wait` returns the result of the call. All ranks make the same collectives in the same order; a blocking one is
    matched by its i-form. Any number of calls may be under way.
    """

    @overload
    def ibcast(
        self, value: None = None, root: int = 0, *, algorithm: str | None = None, nblocks: int | None = None
    ) -> Request[Any]: ...
    @overload
    def ibcast(
        self, value: Value | None, root: int = 0, *, algorithm: str | None = None, nblocks: int | None = None
    ) -> Request[Value]: ...
    def ibcast(
        self, value: Any = None, root: int = 0, *, algorithm: str | None = None, nblocks: int | None = None
    ) -> Request[Any]:
        """Begin `bcast`, and return a request for its result.

        >>> comm.ibcast(np.arange(3)).wait()
        array([0, 1, 2])
        """
        return self._begin(collectives.broadcast.bcast(self._group, value, root, Choice(algorithm, nblocks)))

    @overload
    def iscatter(
        self, values: Array | None = None, root: int = 0, *, out: Array | None = None, algorithm: str | None = None
    ) -> Request[Any]: ...
    @overload
    def iscatter(
        self, values: Sequence[Value] | None, root: int = 0, *, out: Array | None = None, algorithm: str | None = None
    ) -> Request[Value]: ...
    def iscatter(
        self, values: Any = None, root: int = 0, *, out: Array | None = None, algorithm: str | None = None
    ) -> Request[Any]:
        """Begin `scatter`, and return a request for its result.

        >>> comm.iscatter([{"part": 0}]).wait()
        {'part': 0}
        """
        return self._begin(collectives.scatter.scatter(self._group, values, root, out, Choice(algorithm)))

    @overload
    def iscatterv(
        self,
        value: None = None,
        counts: Sequence[int] | None = None,
        root: int = 0,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
    ) -> Request[Any]: ...
    @overload
    def iscatterv(
        self,
        value: NDArray[Scalar] | None,
        counts: Sequence[int] | None = None,
        root: int = 0,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
    ) -> Request[NDArray[Scalar]]: ...
    @overload
    def iscatterv(
        self,
        value: list[Value] | tuple[Value, ...] | None,
        counts: Sequence[int] | None = None,
        root: int = 0,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
    ) -> Request[list[Value]]: ...
    def iscatterv(
        self,
        value: Any = None,
        counts: Sequence[int] | None = None,
        root: int = 0,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
    ) -> Request[Any]:
        """Begin `scatterv`, and return a request for its result.

        >>> comm.iscatterv(np.arange(4.0), counts=[4]).wait()
        array([0., 1., 2., 3.])
        """
        return self._begin(collectives.scatter.scatterv(self._group, value, counts, root, out, Choice(algorithm)))

    @overload
    def igather(
        self, value: NDArray[Scalar], root: int = 0, *, out: Array | None = None, algorithm: str | None = None
    ) -> Request[NDArray[Scalar] | None]: ...
    @overload
    def igather(
        self, value: Scalar, root: int = 0, *, out: Array | None = None, algorithm: str | None = None
    ) -> Request[NDArray[Scalar] | None]: ...
    @overload
    def igather(
        self, value: Value, root: int = 0, *, out: Array | None = None, algorithm: str | None = None
    ) -> Request[list[Value] | None]: ...
    def igather(
        self, value: Any, root: int = 0, *, out: Array | None = None, algorithm: str | None = None
    ) -> Request[Any]:
        """Begin `gather`, and return a request for its result.

        >>> comm.igather(np.arange(3)).wait()
        array([[0, 1, 2]])
        """
        return self._begin(collectives.gather.gather(self._group, value, root, out, Choice(algorithm)))

    @overload
    def igatherv(
        self,
        value: NDArray[Scalar],
        counts: Sequence[int] | None = None,
        root: int = 0,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
    ) -> Request[NDArray[Scalar] | None]: ...
    @overload
    def igatherv(
        self,
        value: list[Value] | tuple[Value, ...],
        counts: Sequence[int] | None = None,
        root: int = 0,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
    ) -> Request[list[Value] | None]: ...
    def igatherv(
        self,
        value: Any,
        counts: Sequence[int] | None = None,
        root: int = 0,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
    ) -> Request[Any]:
        """Begin `gatherv`, and return a request for its result.

        >>> comm.igatherv(np.ones((2, 2)), counts=[2]).wait()
        array([[1., 1.],
               [1., 1.]])
        """
        return self._begin(collectives.gather.gatherv(self._group, value, counts, root, out, Choice(algorithm)))

    @overload
    def iallgather(
        self,
        value: NDArray[Scalar],
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        nblocks: int | None = None,
    ) -> Request[NDArray[Scalar]]: ...
    @overload
    def iallgather(
        self, value: Scalar, *, out: Array | None = None, algorithm: str | None = None, nblocks: int | None = None
    ) -> Request[NDArray[Scalar]]: ...
    @overload
    def iallgather(
        self, value: Value, *, out: Array | None = None, algorithm: str | None = None, nblocks: int | None = None
    ) -> Request[list[Value]]: ...
    def iallgather(
        self, value: Any, *, out: Array | None = None, algorithm: str | None = None, nblocks: int | None = None
    ) -> Request[Any]:
        """Begin `allgather`, and return a request for its result.

        >>> comm.iallgather("text").wait()
        ['text']
        """
        return self._begin(collectives.gather.allgather(self._group, value, out, Choice(algorithm, nblocks)))

    @overload
    def iallgatherv(
        self,
        value: NDArray[Scalar],
        counts: Sequence[int] | None = None,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        nblocks: int | None = None,
    ) -> Request[NDArray[Scalar]]: ...
    @overload
    def iallgatherv(
        self,
        value: list[Value] | tuple[Value, ...],
        counts: Sequence[int] | None = None,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        nblocks: int | None = None,
    ) -> Request[list[Value]]: ...
    def iallgatherv(
        self,
        value: Any,
        counts: Sequence[int] | None = None,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        nblocks: int | None = None,
    ) -> Request[Any]:
        """Begin `allgatherv`, and return a request for its result.

        >>> comm.iallgatherv(np.arange(3)).wait()
        array([0, 1, 2])
        """
        return self._begin(collectives.gather.allgatherv(self._group, value, counts, out, Choice(algorithm, nblocks)))

    def imerge_sorted(
        self, array: NDArray[Scalar], *, out: Array | None = None, algorithm: str | None = None
    ) -> Request[NDArray[Scalar]]:
        """Begin `merge_sorted`, and return a request for its result.

        >>> comm.imerge_sorted(np.array([1, 2, 2])).wait()
        array([1, 2, 2])
        """
        return self._begin(collectives.merge.merge_sorted(self._group, array, out, Choice(algorithm)))

    @overload
    def ialltoall(
        self, value: NDArray[Scalar], *, out: Array | None = None, algorithm: str | None = None
    ) -> Request[NDArray[Scalar]]: ...
    @overload
    def ialltoall(
        self, value: Sequence[Value], *, out: Array | None = None, algorithm: str | None = None
    ) -> Request[list[Value]]: ...
    def ialltoall(self, value: Any, *, out: Array | None = None, algorithm: str | None = None) -> Request[Any]:
        """Begin `alltoall`, and return a request for its result.

        >>> comm.ialltoall(["for rank 0"]).wait()
        ['for rank 0']
        """
        return self._begin(collectives.alltoall.alltoall(self._group, value, out, Choice(algorithm)))

    @overload
    def ialltoallv(
        self,
        value: NDArray[Scalar],
        counts: Sequence[int],
        recvcounts: Sequence[int] | None = None,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
    ) -> Request[NDArray[Scalar]]: ...
    @overload
    def ialltoallv(
        self,
        value: list[Value] | tuple[Value, ...],
        counts: Sequence[int],
        recvcounts: Sequence[int] | None = None,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
    ) -> Request[list[Value]]: ...
    def ialltoallv(
        self,
        value: Any,
        counts: Sequence[int],
        recvcounts: Sequence[int] | None = None,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
    ) -> Request[Any]:
        """Begin `alltoallv`, and return a request for its result.

        >>> comm.ialltoallv(np.arange(3), counts=[3]).wait()
        array([0, 1, 2])
        """
        choice = Choice(algorithm)
        return self._begin(collectives.alltoall.alltoallv(self._group, value, counts, recvcounts, out, choice))

    def ishift(
        self, value: Value, distance: int, *, out: Array | None = None, algorithm: str | None = None
    ) -> Request[Value]:
        """Begin `shift`, and return a request for its result.

        >>> comm.ishift(np.arange(3), 1).wait()
        array([0, 1, 2])
        """
        return self._begin(collectives.shift.shift(self._group, value, distance, out, Choice(algorithm)))

    def ireduce(
        self,
        value: Value,
        op: Operator = SUM,
        root: int = 0,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        nblocks: int | None = None,
    ) -> Request[Value | None]:
        """Begin `reduce`, and return a request for its result.

        >>> comm.ireduce(np.array([1.5, 2.5]), ringcast.MAX).wait()
        array([1.5, 2.5])
        """
        choice = Choice(algorithm, nblocks)
        return self._begin(collectives.reduce.reduce(self._group, value, as_op(op), root, out, choice))

    def iallreduce(
        self,
        value: Value,
        op: Operator = SUM,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        nblocks: int | None = None,
    ) -> Request[Value]:
        """Begin `allreduce`, and return a request for its result.

        >>> comm.iallreduce(np.arange(3), out=np.zeros(3, int)).wait()
        array([0, 1, 2])
        """
        return self._begin(collectives.reduce.allreduce(self._group, value, as_op(op), out, Choice(algorithm, nblocks)))

    @overload
    def ireduce_scatter(
        self,
        value: NDArray[Scalar],
        op: Operator = SUM,
        counts: Sequence[int] | None = None,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        nblocks: int | None = None,
    ) -> Request[NDArray[Scalar]]: ...
    @overload
    def ireduce_scatter(
        self,
        value: Sequence[Value],
        op: Operator = SUM,
        counts: Sequence[int] | None = None,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        nblocks: int | None = None,
    ) -> Request[Value]: ...
    def ireduce_scatter(
        self,
        value: Any,
        op: Operator = SUM,
        counts: Sequence[int] | None = None,
        *,
        out: Array | None = None,
        algorithm: str | None = None,
        nblocks: int | None = None,
    ) -> Request[Any]:
        """Begin `reduce_scatter`, and return a request for its result.

        >>> comm.ireduce_scatter(np.arange(4)).wait()
        array([0, 1, 2, 3])
        """
        choice = Choice(algorithm, nblocks)
        return self._begin(collectives.reduce.reduce_scatter(self._group, value, as_op(op), counts, out, choice))

    def iscan(
        self, value: Value, op: Operator = SUM, *, out: Array | None = None, algorithm: str | None = None
    ) -> Request[Value]:
        """Begin `scan`, and return a request for its result.

        >>> comm.iscan(np.arange(3)).wait()
        array([0, 1, 2])
        """
        return self._begin(collectives.scan.scan(self._group, value, as_op(op), out, Choice(algorithm)))

    @overload
    def iexscan(
        self, value: Value, op: Operator = SUM, *, out: None = None, algorithm: str | None = None
    ) -> Request[Value | None]: ...
    @overload
    def iexscan(
        self, value: Value, op: Operator = SUM, *, out: Array, algorithm: str | None = None
    ) -> Request[Value]: ...
    def iexscan(
        self, value: Any, op: Operator = SUM, *, out: Array | None = None, algorithm: str | None = None
    ) -> Request[Any]:
        """Begin `exscan`, and return a request for its result.

        >>> comm.iexscan(np.arange(3), out=np.zeros(3, int)).wait()
        array([0, 0, 0])
        """
        return self._begin(collectives.scan.exscan(self._group, value, as_op(op), out, Choice(algorithm)))

    def ibarrier(self) -> Request[None]:
        """Begin `barrier`, and return a request for its result.

        >>> comm.ibarrier().wait()
        """
        return self._begin(collectives.reduce.barrier(self._group))

    def isend(self, value: object, dest: int | None, tag: int = 0) -> Request[None]:
        """Begin `send`, and return a request for its result.

        The program may change the value again when it has waited for the request.

        >>> comm.isend({"a": 1}, dest=0, tag=7).wait()
        >>> comm.recv(0, tag=7)
        {'a': 1}
        """
        return self._begin(collectives.point_to_point.send(self._group, value, dest, tag))

    @overload
    def irecv(
        self, source: Source = ANY_SOURCE, tag: Tag = ANY_TAG, *, out: None = None, status: Status | None = None
    ) -> Request[Any]: ...
    @overload
    def irecv(
        self,
        source: int | Wildcard = ANY_SOURCE,
        tag: Tag = ANY_TAG,
        *,
        out: NDArray[Scalar],
        status: Status | None = None,
    ) -> Request[NDArray[Scalar]]: ...
    @overload
    def irecv(
        self, source: Source = ANY_SOURCE, tag: Tag = ANY_TAG, *, out: NDArray[Scalar], status: Status | None = None
    ) -> Request[NDArray[Scalar] | None]: ...
    def irecv(
        self, source: Source = ANY_SOURCE, tag: Tag = ANY_TAG, *, out: Any = None, status: Status | None = None
    ) -> Request[Any]:
        """Begin `recv`, and return a request for its result.

        Only this request can be cancelled.

        >>> comm.send(np.arange(3), dest=0)
        >>> comm.irecv(out=np.zeros(5, int)).wait()
        array([0, 1, 2])
        """
        return self._begin(collectives.point_to_point.recv(self._group, source, tag, out, status))
