"""The calls that do not block: each begins the call, and returns a request for its result."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, TypeAlias

from ringcast import collectives
from ringcast.collectives import point_to_point
from ringcast.collectives.point_to_point import Source, Tag
from ringcast.collectives.stage import Choice
from ringcast.collectives.status import ANY_SOURCE, ANY_TAG, Status
from ringcast.engine.execute import Result, Steps
from ringcast.engine.task import begin
from ringcast.ops import SUM, Op, as_op
from ringcast.requests.caller import Caller
from ringcast.requests.request import Request
from ringcast.wire.call import NOWHERE, Site

Operator: TypeAlias = Op | Callable[[Any, Any], Any]


class NonblockingCalls(Caller):
    """The i-forms of the calls, of which each is the call without the `i`, but for its result.

    They take the same arguments, raise at once what is wrong with them, and return a `Request`, whose `wait` returns
    what that call returns. All ranks make the same collectives in the same order; one that blocks is matched by its
    i-form. Any number of calls may be under way.
    """

    def _begin(self, steps: Steps[Result]) -> Request[Result]:
        method = sys._getframe(1)
        operation, site = method.f_code.co_name, site_of(method)
        self._enter(operation)
        endpoint = self._group.endpoint
        try:
            with endpoint.gate:
                task = begin(endpoint, steps, site)
        except BaseException as error:
            self._raised(error, operation, site)
            raise
        return Request(self, task, operation)

    def ibcast(
        self, value: Any = None, root: int = 0, *, algorithm: str | None = None, nblocks: int | None = None
    ) -> Request[Any]:
        """Begin `bcast`, and return a request for what that returns.

        >>> comm.ibcast([1, 2]).wait()
        [1, 2]
        """
        return self._begin(collectives.bcast(self._group, value, root, Choice(algorithm, nblocks)))

    def ireduce(
        self,
        value: Any,
        op: Operator = SUM,
        root: int = 0,
        *,
        out: Any = None,
        algorithm: str | None = None,
        nblocks: int | None = None,
    ) -> Request[Any]:
        """Begin `reduce`, and return a request for what that returns.

        >>> comm.ireduce(2).wait()
        2
        """
        return self._begin(collectives.reduce(self._group, value, as_op(op), root, out, Choice(algorithm, nblocks)))

    def iallreduce(
        self,
        value: Any,
        op: Operator = SUM,
        *,
        out: Any = None,
        algorithm: str | None = None,
        nblocks: int | None = None,
    ) -> Request[Any]:
        """Begin `allreduce`, and return a request for what that returns.

        >>> comm.iallreduce(2).wait()
        2
        """
        return self._begin(collectives.allreduce(self._group, value, as_op(op), out, Choice(algorithm, nblocks)))

    def igather(self, value: Any, root: int = 0, *, out: Any = None, algorithm: str | None = None) -> Request[Any]:
        """Begin `gather`, and return a request for what that returns.

        >>> comm.igather("a").wait()
        ['a']
        """
        return self._begin(collectives.gather(self._group, value, root, out, Choice(algorithm)))

    def igatherv(
        self,
        value: Any,
        counts: Sequence[int] | None = None,
        root: int = 0,
        *,
        out: Any = None,
        algorithm: str | None = None,
    ) -> Request[Any]:
        """Begin `gatherv`, and return a request for what that returns.

        >>> comm.igatherv(np.arange(2), [2]).wait()
        array([0, 1])
        """
        return self._begin(collectives.gatherv(self._group, value, counts, root, out, Choice(algorithm)))

    def iscatter(self, values: Any = None, root: int = 0, *, algorithm: str | None = None) -> Request[Any]:
        """Begin `scatter`, and return a request for what that returns.

        >>> comm.iscatter(["a"]).wait()
        'a'
        """
        return self._begin(collectives.scatter(self._group, values, root, Choice(algorithm)))

    def iscatterv(
        self, value: Any = None, counts: Sequence[int] | None = None, root: int = 0, *, algorithm: str | None = None
    ) -> Request[Any]:
        """Begin `scatterv`, and return a request for what that returns.

        >>> comm.iscatterv(np.arange(2), [2]).wait()
        array([0, 1])
        """
        return self._begin(collectives.scatterv(self._group, value, counts, root, Choice(algorithm)))

    def iallgather(
        self, value: Any, *, out: Any = None, algorithm: str | None = None, nblocks: int | None = None
    ) -> Request[Any]:
        """Begin `allgather`, and return a request for what that returns.

        >>> comm.iallgather("a").wait()
        ['a']
        """
        return self._begin(collectives.allgather(self._group, value, out, Choice(algorithm, nblocks)))

    def iallgatherv(
        self,
        value: Any,
        counts: Sequence[int] | None = None,
        *,
        out: Any = None,
        algorithm: str | None = None,
        nblocks: int | None = None,
    ) -> Request[Any]:
        """Begin `allgatherv`, and return a request for what that returns.

        >>> comm.iallgatherv(np.arange(2), [2]).wait()
        array([0, 1])
        """
        return self._begin(collectives.allgatherv(self._group, value, counts, out, Choice(algorithm, nblocks)))

    def imerge_sorted(self, array: Any, *, algorithm: str | None = None) -> Request[Any]:
        """Begin `merge_sorted`, and return a request for what that returns.

        >>> comm.imerge_sorted(np.arange(2)).wait()
        array([0, 1])
        """
        return self._begin(collectives.merge_sorted(self._group, array, Choice(algorithm)))

    def ireduce_scatter(
        self,
        value: Any,
        op: Operator = SUM,
        counts: Sequence[int] | None = None,
        *,
        out: Any = None,
        algorithm: str | None = None,
        nblocks: int | None = None,
    ) -> Request[Any]:
        """Begin `reduce_scatter`, and return a request for what that returns.

        >>> comm.ireduce_scatter(np.arange(2)).wait()
        array([0, 1])
        """
        return self._begin(
            collectives.reduce_scatter(self._group, value, as_op(op), counts, out, Choice(algorithm, nblocks))
        )

    def iscan(self, value: Any, op: Operator = SUM, *, out: Any = None, algorithm: str | None = None) -> Request[Any]:
        """Begin `scan`, and return a request for what that returns.

        >>> comm.iscan(2).wait()
        2
        """
        return self._begin(collectives.scan(self._group, value, as_op(op), out, Choice(algorithm)))

    def iexscan(self, value: Any, op: Operator = SUM, *, out: Any = None, algorithm: str | None = None) -> Request[Any]:
        """Begin `exscan`, and return a request for what that returns.

        >>> comm.iexscan(2).wait() is None
        True
        """
        return self._begin(collectives.exscan(self._group, value, as_op(op), out, Choice(algorithm)))

    def ialltoall(self, value: Any, *, out: Any = None, algorithm: str | None = None) -> Request[Any]:
        """Begin `alltoall`, and return a request for what that returns.

        >>> comm.ialltoall(["a"]).wait()
        ['a']
        """
        return self._begin(collectives.alltoall(self._group, value, out, Choice(algorithm)))

    def ialltoallv(
        self,
        value: Any,
        counts: Sequence[int],
        recvcounts: Sequence[int] | None = None,
        *,
        out: Any = None,
        algorithm: str | None = None,
    ) -> Request[Any]:
        """Begin `alltoallv`, and return a request for what that returns.

        >>> comm.ialltoallv(np.arange(2), [2]).wait()
        array([0, 1])
        """
        return self._begin(collectives.alltoallv(self._group, value, counts, recvcounts, out, Choice(algorithm)))

    def ishift(self, value: Any, distance: int, *, algorithm: str | None = None) -> Request[Any]:
        """Begin `shift`, and return a request for what that returns.

        >>> comm.ishift("a", 1).wait()
        'a'
        """
        return self._begin(collectives.shift(self._group, value, distance, Choice(algorithm)))

    def ibarrier(self) -> Request[None]:
        """Begin `barrier`, and return a request for what that returns.

        >>> comm.ibarrier().wait()
        """
        return self._begin(collectives.barrier(self._group))

    def isend(self, value: Any, dest: int | None, tag: int = 0) -> Request[None]:
        """Begin `send`, and return a request, whose `wait` returns when the program may change the value again.

        >>> ringcast.wait_all([comm.isend("a", 0), comm.irecv(0)])
        [None, 'a']
        """
        return self._begin(point_to_point.send(self._group, value, dest, tag))

    def irecv(
        self, source: Source = ANY_SOURCE, tag: Tag = ANY_TAG, *, out: Any = None, status: Status | None = None
    ) -> Request[Any]:
        """Begin `recv`, and return a request for what that returns; only this one can be cancelled.

        >>> request = comm.irecv(0)
        >>> comm.send("a", 0)
        >>> request.wait()
        'a'
        """
        return self._begin(point_to_point.recv(self._group, source, tag, out, status))


def site_of(method: FrameType) -> Site:
    """Return the file and line of the program that called a method."""
    user = method.f_back
    return (user.f_code.co_filename, user.f_lineno) if user is not None else NOWHERE
