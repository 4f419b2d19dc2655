"""Generalized requests: operations that the program itself does, and completes."""

from __future__ import annotations

import sys
import threading
from builtins import Exception as AnyException
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, Self

from ringcast._util.safe_text import is_a
from ringcast.mpi.base.exceptions import ERR_OTHER, Exception
from ringcast.mpi.handles.status import Status
from ringcast.mpi.requests.pending import await_calls
from ringcast.mpi.requests.request import Request
from ringcast.wire.error_text import in_a_line, text_of

__all__ = ["Grequest"]

REST = 0.002  # seconds between looks at requests that other threads may complete


class Operation:
    """An operation of the program; has the parts of `Pending` that a request needs.

    Attributes:
        query: fills the status of the request.
        free: is called when the request is freed.
        cancel: is called when the request is cancelled.
    """

    persistent = False

    def __init__(self, query: Callable[..., None], free: Callable[..., None], cancel: Callable[..., None]) -> None:
        self._query, self._free, self._cancel = query, free, cancel
        self.active, self.status = True, Status()
        self.result: Any = None
        self._completed = threading.Event()
        self._freed = False

    def complete(self, result: Any) -> None:
        """Note that the operation is done."""
        self.result = result
        self._completed.set()
        if self._freed:
            self._called(self._free)

    @property
    def done(self) -> bool:
        """Whether the operation is done, or the program has already seen its end."""
        return not self.active or self._completed.is_set()

    def poll(self) -> bool:
        """Return whether the operation is done."""
        return self.done

    def wait(self) -> None:
        """Wait until another thread completes the operation."""
        await_calls([self], every=True)

    def rest(self) -> None:
        """Wait at most `REST` seconds for another thread to complete the operation."""
        self._completed.wait(REST)

    def known_status(self) -> Status:
        """Return the status of a finished operation."""
        error = self._called(self._query, self.status)
        if error is not None:
            self.fail(error)
        return self.status

    def end(self) -> tuple[Any, Exception | None]:
        """Call `query` and `free`; return the result of the operation and the first error of the two."""
        self.active = False
        errors = self._called(self._query, self.status), self._called(self._free)
        return self.result, errors[0] or errors[1]

    def cancel(self) -> None:
        """Have the program cancel the operation."""
        error = self._called(self._cancel, self._completed.is_set())
        if error is not None:
            self.fail(error)

    def free(self) -> None:
        """Free the operation when it is done."""
        self._freed = True
        if self._completed.is_set():
            self._called(self._free)

    def fail(self, error: Exception) -> NoReturn:
        """Raise an error."""
        raise error

    @staticmethod
    def _called(function: Callable[..., None], *args: Any) -> Exception | None:
        """Call a function of the program; print its error, and return the error as one of MPI."""
        try:
            function(*args)
        except AnyException as error:
            print(text_of(error, whole=True), end="", file=sys.stderr)
            return error if is_a(error, Exception) else Exception(ERR_OTHER, in_a_line(error))
        return None


class Grequest(Request):
    """A request for an operation that the program itself does."""

    @classmethod
    def Start(
        cls,
        query_fn: Callable[..., None] | None = None,
        free_fn: Callable[..., None] | None = None,
        cancel_fn: Callable[..., None] | None = None,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> Self:
        """Return a request that the program completes.

        Args:
            query_fn: is called with a status, and fills it, when the request is complete.
            free_fn: is called when the request is freed.
            cancel_fn: is called by `Cancel`; its first argument is whether the request was complete already.
            args: more arguments for all of them.
            kwargs: keyword arguments for all of them.
        """

        def bound(function: Callable[..., None] | None) -> Callable[..., None]:
            return lambda *own: None if function is None else function(*own, *(args or ()), **(kwargs or {}))

        return cls._of_state(Operation(bound(query_fn), bound(free_fn), bound(cancel_fn)))

    def Complete(self) -> None:
        """Note that the request is done."""
        self.complete()

    def complete(self, obj: Any = None) -> None:
        """Note that the request is done, with the object that `wait` returns."""
        self._checked("Complete").complete(obj)


Grequest._own = (Grequest,)
