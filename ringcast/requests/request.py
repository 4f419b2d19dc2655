"""Requests: calls under way, which the program tests or waits for, one or several at a time."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeAlias, TypeVar

from ringcast._util.safe_text import safe_text
from ringcast.engine.drive import begun, wait
from ringcast.engine.execute import Result
from ringcast.engine.open_call import OpenCall
from ringcast.engine.predicted import is_done
from ringcast.engine.task import Task
from ringcast.errors import FAILURES, UsageError
from ringcast.requests.buffers import check_buffers
from ringcast.requests.caller import Caller
from ringcast.wire.call import in_words

# Begins a call by prediction in place of its steps, and returns it; None, and nothing is begun, if it needs these.
Start: TypeAlias = Callable[[OpenCall], "Task[Any] | None"]

Returned = TypeVar("Returned", covariant=True)  # the type of a call's result; a list of requests may have several


class Request(Generic[Returned]):
    """A call under way: `Communicator.iallreduce`, and all whose names begin with an i, return one.

    The call goes on whenever this rank communicates: in any call, wait or test, of any communicator. Until the request
    was waited for, the program must leave the arrays of the call alone; other calls that would write memory that the
    call uses, or read memory that it writes, are refused. Every request has to be waited for once.

    A coroutine of asyncio waits by `await request`: the loop serves others meanwhile, and the call goes on. The
    communicator's timeout holds. If the `await` is cancelled, the request has still to be waited for.

    >>> request = comm.iallreduce(np.arange(3))
    >>> request.wait()
    array([0, 1, 2])
    """

    _task: Task[Returned] | None = None  # the call, from its beginning until the program has its result

    def __init__(self, caller: Caller, call: OpenCall) -> None:
        self._caller, self._call = caller, call

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._words}, {self._state}>"

    def wait(self, timeout: float | None = None) -> Returned:
        """Wait until this rank's part of the call is done, and return its result.

        Args:
            timeout: seconds, above 0, before `CollectiveTimeout`; None: the `timeout` of the communicator.

        Returns:
            The result of the blocking call, for an `iallreduce` of `Communicator.allreduce`.

        Raises:
            UsageError: the request was waited for before, or the communicator belongs to another thread.
            CollectiveTimeout, PeerFailed, ...: as of the call that blocks; the communicator is given up.

        >>> comm.ibcast("hello").wait()
        'hello'
        """
        task, limit = self._usable("wait", timeout)
        if not task.done or task.endpoint.undelivered:
            wait(task.endpoint, [task], limit)
        return self._take(task, "wait")

    def __await__(self) -> Generator[Any, None, Returned]:
        from ringcast.requests.awaiting import awaited  # with it asyncio, which takes long to import

        return awaited(self)

    def test(self) -> bool:
        """Return whether the call is done, so that `wait` returns, or raises, at once.

        It makes progress with the messages that have arrived, and does not wait. A program that only tests is never
        reported as in a deadlock.

        Raises:
            UsageError: the request was waited for before, or the communicator belongs to another thread.

        >>> request = comm.ibarrier()
        >>> request.test()
        True
        >>> request.wait()
        """
        task, _ = self._usable("test")
        endpoint = task.endpoint
        with endpoint.gate:
            if is_done(task):
                return True
            endpoint.catch_up()
            return task.poll()

    def cancel(self) -> bool:
        """Take back a receive if no message has come for it by now; return whether it was taken back.

        A request that was taken back has ended, and need not be waited for; any other still has to be.

        Returns:
            True if nothing is received; False if the message has come, or begun to come.

        Raises:
            UsageError: it is no receive; or see `test`.

        >>> comm.irecv().cancel()
        True
        """
        task, _ = self._usable("cancel")
        endpoint = task.endpoint
        if self._call.operation not in ("irecv", "recv_init"):
            raise UsageError(f"rank {endpoint.rank}: cancel of {self._words}; only a receive can be cancelled")
        with endpoint.gate:
            if id(task) not in endpoint.requests:
                raise self._unusable("cancel")
            endpoint.catch_up()
            cancelled = task.cancel()
            if cancelled:
                with suppress(UsageError):  # another thread that waits has the error already
                    self._claim(task, "cancel")
        return cancelled

    def __del__(self) -> None:
        task = self._task
        if task is None:
            return
        endpoint = task.endpoint
        call = endpoint.requests.pop(id(task), None)
        if call is not None and endpoint.protocol.whole(call.context):
            endpoint.dropped.append((call.operation, call.site))

    def _begin(self, call: OpenCall, start: Start | None) -> None:
        """Begin a call whose caller may make it.

        It is registered before the handler of a signal can run: should that raise, the call is not forgotten.

        Raises:
            UsageError: a call of this request is under way; or see `check_buffers`.
            BaseException: see `begun`.
        """
        caller = self._caller
        endpoint = caller._group.endpoint
        try:
            with endpoint.gate:
                if self._task is not None:
                    raise UsageError(
                        f"rank {endpoint.rank}: start of {self._words}, which is under way; call wait() before"
                    )
                if endpoint.requests:
                    check_buffers(endpoint, call, stays=True)
                task = begun(endpoint, call.steps, call.site, start, call)
                endpoint.requests[id(task)] = call
                self._task, self._call = task, call
        except BaseException as error:
            caller._raised(error, call.operation, call.site)
            raise

    def _usable(self, operation: str, timeout: float | None = None) -> tuple[Task[Returned], float | None]:
        """Return the call under way, and how long it may take."""
        task = self._task
        if task is None:
            raise self._unusable(operation)
        return task, self._caller._check(operation, timeout)

    def _unusable(self, operation: str) -> UsageError:
        rank = self._caller._group.rank
        return UsageError(f"rank {rank}: {operation} of a request that was waited for before: {self._words}")

    def _claim(self, task: Task[Returned], operation: str) -> None:
        """Note that the program has waited for a call.

        Raises:
            UsageError: another thread has done so meanwhile; it may have started the next call of this request.
        """
        if task.endpoint.requests.pop(id(task), None) is None:  # one thread gets it, without a lock
            raise self._unusable(operation)
        self._task = None

    def _take(self, task: Task[Returned], operation: str) -> Returned:
        """Return the result, once."""
        self._claim(task, operation)
        try:
            return task.result
        except FAILURES as error:
            self._caller._raised(error, self._call.operation, self._call.site)
            raise

    @property
    def _words(self) -> str:
        return in_words(self._call.operation, self._call.site)

    @property
    def _state(self) -> str:
        return "done" if self._task is None or self._task.done else "under way"


def has_ended(request: Request[Any]) -> bool:
    """Return whether a call is done, or was waited for, as far as is known: no progress is made."""
    task = request._task
    return task is None or task.done


def wait_all(requests: Iterable[Request[Result]], timeout: float | None = None) -> list[Result]:
    """Wait for all requests.

    Args:
        requests: of one rank, in any order, of one communicator or several.
        timeout: seconds, above 0, before `CollectiveTimeout`; None: the `timeout` of the first one's communicator.

    Returns:
        The results of the calls, in the order of the requests.

    Raises:
        UsageError: see `Request.wait`.
        CollectiveTimeout, PeerFailed, ...: the first error of any request. Requests that are then done or have failed
            have ended; others, as of another communicator, may go on, and have still to be waited for.

    >>> ringcast.wait_all([comm.iallreduce(1), comm.ibcast("hello")])
    [1, 'hello']
    """
    asked = _listed(requests, "wait_all")
    tasks = _await(asked, "wait_all", timeout, every=True)
    failed = next((place for place, task in enumerate(tasks) if task.error is not None), None)
    if failed is None:
        return [request._take(task, "wait_all") for request, task in zip(asked, tasks, strict=True)]
    for place, task in enumerate(tasks):
        if task.done and place != failed:
            with suppress(UsageError):  # another thread has its result
                asked[place]._claim(task, "wait_all")
    return [asked[failed]._take(tasks[failed], "wait_all")]


def wait_any(requests: Iterable[Request[Result]], timeout: float | None = None) -> tuple[int, Result]:
    """Wait until any of several requests is done; of several done ones it takes the first in the list.

    Args:
        requests: see `wait_all`; one or more.
        timeout: see `wait_all`.

    Returns:
        The index of the request, and the result of its call. The others have still to be waited for.

    Raises:
        UsageError: see `Request.wait`; or there are no requests.
        CollectiveTimeout, PeerFailed, ...: the error of that request; after a timeout, all of them have failed.

    >>> ringcast.wait_any([comm.iallreduce(1)])
    (0, 1)
    """
    asked = _listed(requests, "wait_any")
    tasks = _await(asked, "wait_any", timeout, every=False)
    place = next(place for place, task in enumerate(tasks) if task.done)
    return place, asked[place]._take(tasks[place], "wait_any")


def wait_some(requests: Iterable[Request[Result]], timeout: float | None = None) -> list[tuple[int, Result]]:
    """Wait until at least one of several requests is done.

    Args:
        requests: see `wait_all`; one or more.
        timeout: see `wait_all`.

    Returns:
        For each request that is done its index and the result of its call. The others have still to be waited for.

    Raises:
        UsageError: see `Request.wait`; or there are no requests.
        CollectiveTimeout, PeerFailed, ...: the error of the first one that has failed.

    >>> ringcast.wait_some([comm.iallreduce(1), comm.iallreduce(2)])
    [(0, 1), (1, 2)]
    """
    asked = _listed(requests, "wait_some")
    tasks = _await(asked, "wait_some", timeout, every=False)
    return [(place, asked[place]._take(task, "wait_some")) for place, task in enumerate(tasks) if task.done]


def _listed(requests: Iterable[Request[Any]], operation: str) -> list[Request[Any]]:
    """Return requests as a list.

    Raises:
        UsageError: an item is no request.
    """
    found = list(requests) if isinstance(requests, Iterable) else None
    if found is None or not all(isinstance(one, Request) for one in found):
        raise UsageError(f"{operation} takes a list of requests, got {safe_text(requests if found is None else found)}")
    return found


def _await(requests: Sequence[Request[Any]], operation: str, timeout: float | None, *, every: bool) -> list[Task[Any]]:
    """Wait for requests, and return their calls."""
    if not requests:
        if every:
            return []
        raise UsageError(f"{operation} of no requests: none of them can ever be done")
    usable = [request._usable(operation, timeout) for request in requests]
    tasks, (first, limit) = [task for task, _ in usable], usable[0]
    endpoint = first.endpoint
    if len({id(request) for request in requests}) < len(requests):
        raise UsageError(f"rank {endpoint.rank}: {operation} got a request twice")
    wait(endpoint, tasks, limit, every=every)
    return tasks
