"""Requests: calls under way, which the program tests or waits for, one or several at a time."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import Any, Generic, TypeVar

from ringcast.engine.drive import wait
from ringcast.engine.execute import Result
from ringcast.engine.open_call import OpenCall
from ringcast.engine.task import Task
from ringcast.errors import UsageError
from ringcast.requests.caller import Caller
from ringcast.wire.call import in_words
from ringcast.wire.unanswered import FAILURES

Returned = TypeVar("Returned", covariant=True)  # what the call returns: a list of requests may have several types


class Request(Generic[Returned]):
    """A call under way: `Communicator.iallreduce`, and all whose names begin with an i, return one.

    The call goes on whenever this rank communicates: in any call, wait or test, of any communicator. Until it was
    waited for, the program must leave the arrays alone that it has given to it; other calls that would write memory
    that it uses, or read memory that it writes, are refused. Every request has to be waited for once.

    A coroutine of asyncio waits by `await request`: the loop serves others meanwhile, and the call goes on. The timeout
    is that of the communicator. If the `await` is cancelled, the request has still to be waited for.

    >>> request = comm.iallreduce(np.arange(3))
    >>> request.wait()
    array([0, 1, 2])
    """

    def __init__(self, caller: Caller, task: Task[Returned], call: OpenCall) -> None:
        self._caller, self._task, self._operation = caller, task, call.operation
        self._waited = False
        task.endpoint.requests[id(self)] = call

    def __repr__(self) -> str:
        return f"<Request: {in_words(self._operation, self._task.site)}, {'done' if self._task.done else 'under way'}>"

    def wait(self, timeout: float | None = None) -> Returned:
        """Return what the call returns, when this rank's part of it is done.

        Args:
            timeout: seconds, above 0, before `CollectiveTimeout`; None: those of the communicator.

        Returns:
            The same as the call that blocks, as `Communicator.allreduce`.

        Raises:
            UsageError: it was waited for before, or by another thread than that of the communicator.
            CollectiveTimeout, PeerFailed, ...: as of the call that blocks; the communicator is given up.

        >>> comm.ibcast("hello").wait()
        'hello'
        """
        limit = self._usable("wait", timeout)
        if not self._task.done:
            wait(self._task.endpoint, [self._task], limit)
        return self._take()

    def __await__(self) -> Generator[Any, None, Returned]:
        from ringcast.requests.awaiting import awaited  # with it asyncio, which takes long to import

        return awaited(self)

    def test(self) -> bool:
        """Return whether the call is done, so that `wait` returns, or raises, at once.

        It makes progress with what has arrived, and does not wait. A program that only tests is never taken for one
        that is in a deadlock.

        Raises:
            UsageError: it was waited for before, or by another thread than that of the communicator.

        >>> request = comm.ibarrier()
        >>> request.test()
        True
        >>> request.wait()
        """
        self._usable("test", None)
        endpoint = self._task.endpoint
        with endpoint.gate:
            endpoint.catch_up()
            return self._task.poll()

    def cancel(self) -> bool:
        """Take back a receive, and return whether that was possible: no message has come for it by now.

        Then the request is at its end, and has not to be waited for; else it has.

        Returns:
            True if nothing is received; False if the message has come, or begun to come.

        Raises:
            UsageError: it is no receive; or see `test`.

        >>> comm.irecv().cancel()
        True
        """
        self._usable("cancel", None)
        if self._operation not in ("irecv", "recv_init"):
            call = in_words(self._operation, self._task.site)
            raise UsageError(f"rank {self._task.endpoint.rank}: cancel of {call}; only a receive can be cancelled")
        with self._task.endpoint.gate:
            cancelled = self._task.cancel()
        if cancelled:
            self._forget()
        return cancelled

    def __del__(self) -> None:
        endpoint = self._task.endpoint
        call = endpoint.requests.pop(id(self), None)
        if call is not None and not endpoint.protocol.revoked(call.context):
            endpoint.dropped.append((call.operation, call.site))

    def _usable(self, operation: str, timeout: float | None) -> float | None:
        if self._waited:
            rank, call = self._task.endpoint.rank, in_words(self._operation, self._task.site)
            raise UsageError(f"rank {rank}: {operation} of a request that was waited for before: {call}")
        return self._caller._check(operation, timeout)

    def _forget(self) -> None:
        self._waited = True
        self._task.endpoint.requests.pop(id(self), None)

    def _take(self) -> Returned:
        """Return the result, once."""
        self._forget()
        try:
            return self._task.result
        except FAILURES as error:
            self._caller._raised(error, self._operation, self._task.site)
            raise


def wait_all(requests: Iterable[Request[Result]], timeout: float | None = None) -> list[Result]:
    """Wait for all requests.

    Args:
        requests: of one rank, in any order, of one communicator or several.
        timeout: seconds, above 0, before `CollectiveTimeout`; None: those of the communicator of the first one.

    Returns:
        What each call returns, in the order of the requests.

    Raises:
        UsageError: see `Request.wait`.
        CollectiveTimeout, PeerFailed, ...: the first error of any request. Those that are done then, or have failed,
            are at their end; the others go on, as calls of another communicator may, and have still to be waited for.

    >>> ringcast.wait_all([comm.iallreduce(1), comm.ibcast("hello")])
    [1, 'hello']
    """
    asked = _listed(requests, "wait_all")
    _await(asked, "wait_all", timeout, every=True)
    failed = next((request for request in asked if request._task.error is not None), None)
    if failed is None:
        return [request._take() for request in asked]
    for request in asked:
        if request._task.done:
            request._forget()
    return [failed._take()]


def wait_any(requests: Iterable[Request[Result]], timeout: float | None = None) -> tuple[int, Result]:
    """Wait for any of several requests, the first one of those that are done.

    Args:
        requests: see `wait_all`; one or more.
        timeout: see `wait_all`.

    Returns:
        Its place among the requests, and what its call returns. The others have still to be waited for.

    Raises:
        UsageError: see `Request.wait`; or there are no requests.
        CollectiveTimeout, PeerFailed, ...: the error of that request; after a timeout, all of them have failed.

    >>> ringcast.wait_any([comm.iallreduce(1)])
    (0, 1)
    """
    asked = _listed(requests, "wait_any")
    place = _await(asked, "wait_any", timeout, every=False)[0]
    return place, asked[place]._take()


def wait_some(requests: Iterable[Request[Result]], timeout: float | None = None) -> list[tuple[int, Result]]:
    """Wait until at least one of several requests is done.

    Args:
        requests: see `wait_all`; one or more.
        timeout: see `wait_all`.

    Returns:
        For each one that is done its place among the requests, and what its call returns. The others have still to be
        waited for.

    Raises:
        UsageError: see `Request.wait`; or there are no requests.
        CollectiveTimeout, PeerFailed, ...: the error of the first one that has failed.

    >>> ringcast.wait_some([comm.iallreduce(1), comm.iallreduce(2)])
    [(0, 1), (1, 2)]
    """
    asked = _listed(requests, "wait_some")
    return [(place, asked[place]._take()) for place in _await(asked, "wait_some", timeout, every=False)]


def _listed(requests: Iterable[Request[Any]], operation: str) -> list[Request[Any]]:
    """Return requests as a list.

    Raises:
        UsageError: it is something else.
    """
    found = list(requests) if isinstance(requests, Iterable) else None
    if found is None or not all(isinstance(one, Request) for one in found):
        raise UsageError(f"{operation} takes a list of requests, got {requests if found is None else found!r}"[:300])
    return found


def _await(requests: Sequence[Request[Any]], operation: str, timeout: float | None, *, every: bool) -> list[int]:
    """Wait for requests, and return the places of those that are done."""
    if not requests:
        if every:
            return []
        raise UsageError(f"{operation} of no requests: none of them can ever be done")
    limits = [request._usable(operation, timeout) for request in requests]
    endpoint = requests[0]._task.endpoint
    if len({id(request) for request in requests}) < len(requests):
        raise UsageError(f"rank {endpoint.rank}: {operation} got a request twice")
    wait(endpoint, [request._task for request in requests], limits[0], every=every)
    return [place for place, request in enumerate(requests) if request._task.done]
