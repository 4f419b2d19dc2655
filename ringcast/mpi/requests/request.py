"""Requests: calls under way, for which the program waits or tests, one or several at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, Self

from ringcast._util.safe_text import safe_text
from ringcast.engine.execute import Steps
from ringcast.mpi.base.constants import UNDEFINED
from ringcast.mpi.base.exceptions import ERR_IN_STATUS, ERR_REQUEST, Exception
from ringcast.mpi.handles.handle import Handle, forget, predefined
from ringcast.mpi.handles.status import Status, check_status
from ringcast.mpi.requests.pending import Pending, Start, await_calls, poll_calls
from ringcast.mpi.unsupported import PARTITIONS, lacking
from ringcast.wire.call import NOWHERE, Site

__all__ = ["REQUEST_NULL", "Prequest", "Request"]

Statuses = Sequence[Status] | None


class Request(Handle):
    """A call under way; null when the program has seen its end.

    A request that the program drops goes on by itself.
    """

    _state: Any
    _own: tuple[type[Request]]  # this class, or its base among mpi4py's classes

    def __new__(cls, request: Request | None = None) -> Self:
        """Return a null request, or another one of the same call.

        Raises:
            TypeError: it is of another kind than this class.
        """
        self = super().__new__(cls, request)
        if self._state is not None and not isinstance(request, cls._own):
            raise TypeError(f"expected a {cls._own[0].__name__}, got a {type(request).__name__}")
        return self

    @classmethod
    def begun(
        cls,
        comm: Any,
        operation: str,
        steps: Steps[Any],
        site: Site = NOWHERE,
        status: Status | None = None,
        start: Start | None = None,
    ) -> Self:
        """Begin a call of these steps; the steps of a receive fill the status."""
        call = Pending(comm, operation, site, lambda: steps, status, start)
        call.start()
        return cls._of_state(call)

    # One request.

    def Wait(self, status: Status | None = None) -> Literal[True]:
        """Wait until the call is done."""
        Request.wait(self, status)
        return True

    def wait(self, status: Status | None = None) -> Any:
        """Wait until the call is done, and return the object that it has received."""
        call = self._state
        if call is not None:
            call.wait()
        return self._result(status)

    def Test(self, status: Status | None = None) -> bool:
        """Return whether the call is done."""
        return Request.test(self, status)[0]

    def test(self, status: Status | None = None) -> tuple[bool, Any | None]:
        """Return whether the call is done, and if so the object that it has received."""
        call = self._state
        if call is not None and not call.poll():
            return False, None
        return True, self._result(status)

    def Get_status(self, status: Status | None = None) -> bool:
        """Return whether the call is done; the request stays as it is."""
        call = self._state
        if call is not None and not call.poll():
            return False
        if status is not None:
            status._copy(_status_of(call))
        return True

    get_status = Get_status

    def Cancel(self) -> None:
        """Take back a receive for which no message has come; anything else goes on."""
        self._checked("Cancel").cancel()

    cancel = Cancel

    def Free(self) -> None:
        """Let the call go on without a request."""
        self._checked("Free").free()
        forget(self._state)
        self._state = None

    def _checked(self, operation: str) -> Any:
        if self._state is None:
            raise Exception(ERR_REQUEST, f"{operation} of a null request")
        return self._state

    def _result(self, status: Status | None) -> Any:
        """Return the result of a call that is done, or raise its error."""
        call = self._state
        result, error = self._ended(status)
        if error is not None:
            call.fail(error)
        return result

    def _ended(self, status: Status | None) -> tuple[Any, Exception | None]:
        """Return result and error of a call that is done; the request becomes null, unless it is persistent."""
        check_status(status)
        call = self._state
        if call is None or not call.active:
            if status is not None:
                status._copy(None)
            return None, None
        if not call.persistent:
            forget(call)
            self._state = None
        result, error = call.end()
        if status is not None:
            status._copy(call.status)
            status.Set_error(0 if error is None else error.Get_error_code())
        return result, error

    # Several requests: any of them.

    @classmethod
    def Waitany(cls, requests: Sequence[Request], status: Status | None = None) -> int:
        """Wait until any of the requests is done, and return its index; UNDEFINED if none is active."""
        return cls.waitany(requests, status)[0]

    @classmethod
    def waitany(cls, requests: Sequence[Request], status: Status | None = None) -> tuple[int, Any]:
        """Wait until any of the requests is done, and return its index and object."""
        await_calls(_calls(requests), every=False)
        index, _, result = _any(requests, status)
        return index, result

    @classmethod
    def Testany(cls, requests: Sequence[Request], status: Status | None = None) -> tuple[int, bool]:
        """Return the index of a request that is done, and whether there is one."""
        return cls.testany(requests, status)[:2]

    @classmethod
    def testany(cls, requests: Sequence[Request], status: Status | None = None) -> tuple[int, bool, Any | None]:
        """Return the index of a request that is done, whether there is one, and its object."""
        poll_calls(_calls(requests))
        return _any(requests, status)

    @classmethod
    def Get_status_any(cls, requests: Sequence[Request], status: Status | None = None) -> tuple[int, bool]:
        """Return as `Testany`; the requests stay as they are."""
        poll_calls(_calls(requests))
        index, flag = _first_done(requests)
        if flag and status is not None:
            status._copy(_status_of(requests[index]._state) if index != UNDEFINED else None)
        return index, flag

    get_status_any = Get_status_any

    # All of them.

    @classmethod
    def Waitall(cls, requests: Sequence[Request], statuses: Statuses = None) -> Literal[True]:
        """Wait until all requests are done."""
        cls.waitall(requests, statuses)
        return True

    @classmethod
    def waitall(cls, requests: Sequence[Request], statuses: Statuses = None) -> list[Any]:
        """Wait until all requests are done, and return their objects."""
        await_calls(_calls(requests), every=True)
        return _ended_together(requests, statuses)

    @classmethod
    def Testall(cls, requests: Sequence[Request], statuses: Statuses = None) -> bool:
        """Return whether all requests are done; if not, they stay as they are."""
        return cls.testall(requests, statuses)[0]

    @classmethod
    def testall(cls, requests: Sequence[Request], statuses: Statuses = None) -> tuple[bool, list[Any] | None]:
        """Return whether all requests are done, and if so their objects."""
        if not _all_done(requests):
            return False, None
        return True, _ended_together(requests, statuses)

    @classmethod
    def Get_status_all(cls, requests: Sequence[Request], statuses: Statuses = None) -> bool:
        """Return whether all requests are done; they stay as they are."""
        if not _all_done(requests):
            return False
        _put(statuses, [_status_of(request._state) for request in requests])
        return True

    get_status_all = Get_status_all

    # Some of them.

    @classmethod
    def Waitsome(cls, requests: Sequence[Request], statuses: Statuses = None) -> list[int] | None:
        """Wait until a request is done, and return the indices of all that are done; None if none is active."""
        return cls.waitsome(requests, statuses)[0]

    @classmethod
    def waitsome(
        cls, requests: Sequence[Request], statuses: Statuses = None
    ) -> tuple[list[int] | None, list[Any] | None]:
        """Wait until a request is done, and return the indices and objects of all that are done."""
        await_calls(_calls(requests), every=False)
        return _some(requests, statuses)

    @classmethod
    def Testsome(cls, requests: Sequence[Request], statuses: Statuses = None) -> list[int] | None:
        """Return the indices of the requests that are done; None if none is active."""
        return cls.testsome(requests, statuses)[0]

    @classmethod
    def testsome(
        cls, requests: Sequence[Request], statuses: Statuses = None
    ) -> tuple[list[int] | None, list[Any] | None]:
        """Return the indices and objects of the requests that are done."""
        poll_calls(_calls(requests))
        return _some(requests, statuses)

    @classmethod
    def Get_status_some(cls, requests: Sequence[Request], statuses: Statuses = None) -> list[int] | None:
        """Return as `Testsome`; the requests stay as they are."""
        poll_calls(_calls(requests))
        indices = _all_of_done(requests)
        if indices is not None:
            _put(statuses, [_status_of(requests[index]._state) for index in indices])
        return indices

    get_status_some = Get_status_some


class Prequest(Request):
    """A call that is prepared, and started any number of times."""

    @classmethod
    def prepared(
        cls,
        comm: Any,
        operation: str,
        make: Callable[[], Steps[Any]],
        site: Site = NOWHERE,
        status: Status | None = None,
        start: Start | None = None,
    ) -> Self:
        """Prepare a call whose steps `make` returns, anew for every start; the steps of a receive fill the status."""
        return cls._of_state(Pending(comm, operation, site, make, status, start, persistent=True))

    def Start(self) -> None:
        """Begin the call."""
        call = self._checked("Start")
        if call.active:
            call.fail(Exception(ERR_REQUEST, "Start of a request that is under way"))
        call.start()

    @classmethod
    def Startall(cls, requests: Iterable[Prequest]) -> None:
        """Begin the calls of several requests."""
        for request in requests:
            request.Start()

    Pready, Pready_range, Pready_list, Parrived = (lacking(PARTITIONS) for _ in range(4))


Request._own, Prequest._own = (Request,), (Prequest,)
REQUEST_NULL = predefined(Request(), "REQUEST_NULL")


def _calls(requests: Sequence[Request]) -> list[Any]:
    """Return the calls of the requests that are not null.

    Raises:
        TypeError: they are not requests, or can be looked at only once.
    """
    if not hasattr(requests, "__len__") or not all(isinstance(request, Request) for request in requests):
        raise TypeError(f"expected a list of requests, got {safe_text(requests)}")
    return [request._state for request in requests if request._state is not None]


def _is_active(request: Request) -> bool:
    return request._state is not None and request._state.active


def _status_of(call: Any) -> Status | None:
    return call.known_status() if call is not None and call.active else None


def _first_done(requests: Sequence[Request]) -> tuple[int, bool]:
    """Return the index of the first request that is done, and whether there is one, or none is active."""
    active = [index for index, request in enumerate(requests) if _is_active(request)]
    index = next((index for index in active if requests[index]._state.done), None)
    return (UNDEFINED, not active) if index is None else (index, True)


def _any(requests: Sequence[Request], status: Status | None) -> tuple[int, bool, Any]:
    index, flag = _first_done(requests)
    if index == UNDEFINED:
        if flag and status is not None:
            status._copy(None)
        return index, flag, None
    return index, True, requests[index]._result(status)


def _all_done(requests: Sequence[Request]) -> bool:
    calls = _calls(requests)
    poll_calls(calls)
    return all(call.done for call in calls)


def _all_of_done(requests: Sequence[Request]) -> list[int] | None:
    """Return the indices of the requests that are done; None if none is active."""
    active = [index for index, request in enumerate(requests) if _is_active(request)]
    return [index for index in active if requests[index]._state.done] if active else None


def _some(requests: Sequence[Request], statuses: Statuses) -> tuple[list[int] | None, list[Any] | None]:
    indices = _all_of_done(requests)
    if indices is None:
        return None, None
    return indices, _ended_together([requests[index] for index in indices], statuses)


def _ended_together(requests: Sequence[Request], statuses: Statuses) -> list[Any]:
    """Return the results of requests that are done.

    Raises:
        Exception: ERR_IN_STATUS, if one of them has failed; the statuses say which.
    """
    calls, found = _calls(requests), [Status() for _ in requests]
    ends = [request._ended(status) for request, status in zip(requests, found, strict=True)]
    _put(statuses, found)
    failed = next((error for _, error in ends if error is not None), None)
    if failed is not None:
        calls[0].fail(Exception(ERR_IN_STATUS, str(failed)), failed)
    return [result for result, _ in ends]


def _put(statuses: Statuses, found: Sequence[Status | None]) -> None:
    """Copy statuses to the program's; a list grows as needed."""
    if isinstance(statuses, list):
        statuses += [Status() for _ in found[len(statuses) :]]
    for status, one in zip(statuses or (), found, strict=False):
        status._copy(one)
