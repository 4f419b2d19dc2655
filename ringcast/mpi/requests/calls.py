"""The ways to make a call: it blocks, returns a request, or is prepared to be started later.

Each call of MPI is one method, which checks its arguments, packs the program's data, and returns the steps that run
ringcast's calls and unpack the data. Its three forms are derived from it; an intercommunicator has another method of
the same name. An error that only shows when data have come is returned by the steps, and raised here: raised within the
steps it would give up the communicator on all ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from ringcast.collectives.again import UNMADE
from ringcast.engine.execute import Steps
from ringcast.engine.task import Task
from ringcast.errors import RingcastError
from ringcast.mpi.base.exceptions import Exception, translated
from ringcast.mpi.base.failing import Outcome, fail
from ringcast.mpi.base.threads import let_threads_call
from ringcast.mpi.handles.handle import Handle
from ringcast.mpi.handles.status import Status
from ringcast.mpi.requests.request import Prequest, Request
from ringcast.requests.forms import renamed
from ringcast.wire.call import Site


class Predicted(Protocol):
    """The arguments of a call, which may be made without steps."""

    def make(self, comm: Any, operation: str, site: Site, steps: Steps[Any] | None = None) -> Any:
        """Make the call and return its result; or, with its steps, begin it in their place and return its task.

        Returns UNMADE if the call needs its steps.
        """


def blocking(
    steps: Callable[..., Steps[Any]], operation: str, arguments: Callable[..., Predicted] | None = None
) -> Any:
    """Return the method of a communicator that makes the call of these steps and waits for its end.

    With `arguments` it is tried by prediction first.
    """
    name = steps.__name__
    steps.__qualname__ = operation  # the name that Python uses when arguments are wrong

    def way(comm: Any, args: tuple[Any, ...], kwargs: dict[str, Any], site: Site) -> Any:
        if (
            arguments is not None
            and (result := _predicted(arguments, comm, operation, args, kwargs, site)) is not UNMADE
        ):
            return result
        return run(comm, operation, _made(comm, name, args, kwargs), site)

    return renamed(operation, steps, way)


def nonblocking(
    steps: Callable[..., Steps[Any]],
    operation: str,
    arguments: Callable[..., Predicted] | None = None,
    *,
    receives: bool = False,
) -> Any:
    """Return the method that begins the call, and returns a request; the steps of a receive fill a status.

    With `arguments` it is begun by prediction, if it can be.
    """
    name = steps.__name__

    def way(comm: Any, args: tuple[Any, ...], kwargs: dict[str, Any], site: Site) -> Request:
        status = Status() if receives else None
        if receives:
            kwargs["status"] = status
        start = None if arguments is None else partial(_started, arguments, comm, operation, args, kwargs, site)
        return Request.begun(comm, operation, _made(comm, name, args, kwargs), site, status, start)

    return renamed(operation, steps, way)


def persistent(
    steps: Callable[..., Steps[Any]],
    operation: str,
    arguments: Callable[..., Predicted] | None = None,
    *,
    receives: bool = False,
) -> Any:
    """Return the method that prepares the call, and returns a request to be started; see `nonblocking`."""
    name = steps.__name__

    def way(comm: Any, args: tuple[Any, ...], kwargs: dict[str, Any], site: Site) -> Prequest:
        status = Status() if receives else None
        if receives:
            kwargs["status"] = status
        given = _kept(args), {key: _kept(value) for key, value in kwargs.items()}
        make = partial(_made, comm, name, *given)
        make().close()
        start = None if arguments is None else partial(_started, arguments, comm, operation, *given, site)
        return Prequest.prepared(comm, operation, make, site, status, start)

    return renamed(operation, steps, way)


def _predicted(
    arguments: Callable[..., Predicted],
    comm: Any,
    operation: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    site: Site,
    *steps: Steps[Any],
) -> Any:
    """Make a call by prediction, or begin it in place of its steps; see `Predicted.make`."""
    try:
        call = arguments(*args, **kwargs)
    except TypeError:  # the method of the steps says so better
        return UNMADE
    return call.make(comm, operation, site, *steps)


def _started(
    arguments: Callable[..., Predicted],
    comm: Any,
    operation: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    site: Site,
    steps: Steps[Any],
) -> Task[Any] | None:
    """Begin a call by prediction in place of its steps; None if it needs these."""
    begun = _predicted(arguments, comm, operation, args, kwargs, site, steps)
    return None if begun is UNMADE else begun


def _made(comm: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Steps[Any]:
    """Return the steps of a call; a method that is no generator, but returns one, checks the arguments here."""
    steps: Steps[Any] = checked(comm, getattr(comm, name), *args, **kwargs)
    return steps


def checked(comm: Any, make: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return the result of a function that is called before a call begins.

    Raises:
        Exception: of MPI, also for an error of ringcast; whatever else the function raises passes through.
    """
    try:
        return make(*args, **kwargs)
    except RingcastError as error:
        fail(comm, translated(error), error)
    except Exception as error:  # MPI's own: the error handler of the communicator acts on it
        fail(comm, error)


def _kept(argument: Any) -> Any:
    """Return an argument whose handles and lists the program may free and change before the call is started."""
    if isinstance(argument, (list, tuple)):
        kept = map(_kept, argument)
        return [*kept] if isinstance(argument, list) else tuple(kept)
    return argument._of_state(argument._state) if isinstance(argument, Handle) else argument


def run(comm: Any, operation: str, steps: Steps[Any], site: Site) -> Any:
    """Make a call of these steps, and return its result.

    Raises:
        Exception: of MPI; its cause is the error of ringcast.
    """
    caller = comm._caller
    try:
        let_threads_call(caller)
        result = caller._make(operation, steps, None, site)
    except RingcastError as error:
        fail(comm, translated(error), error)
    except Exception as error:  # MPI's own: the error handler of the communicator acts on it
        fail(comm, error)
    return finished(comm, result)


def finished(comm: Any, result: Any) -> Any:
    """Return the result of a call, or raise the error that shows only now."""
    if isinstance(result, Exception):
        fail(comm, result)
    return result.result() if isinstance(result, Outcome) else result
