"""The one place where calls of MPI raise their errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn, Self

from ringcast.mpi.base.exceptions import Exception


class Outcome(NamedTuple):
    """The result of receiving an object: the object, or the error that unpickling it raised."""

    value: Any
    error: BaseException | None = None

    @classmethod
    def of(cls, get: Callable[[], Any]) -> Self:
        """Return the result or the error of a function: an error raised within steps would concern all ranks."""
        try:
            return cls(get())
        except BaseException as error:  # unpickling runs the program's code; `result` raises it
            return cls(None, error)

    def result(self) -> Any:
        """Return the object, or raise the error."""
        if self.error is not None:
            raise self.error
        return self.value


def fail(comm: Any, error: Exception, cause: BaseException | None = None) -> NoReturn:
    """Raise an error of a call of a communicator, when its error handler has acted on it.

    `cause` is the error that ringcast has raised.
    """
    if comm:
        comm._shared.errhandler.act(comm, error)
    raise error from cause
