"""Programs whose objects and errors cannot be shown: every run ends in time, and names the error's class."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ringcast
from ringcast.communicator import Communicator
from ringcast.errors import RunFailed, RunTimeout
from support.hostile import ERRORS, Hostile, Sullen
from support.patience import patience

LIMIT = 60.0  # seconds; a run takes some milliseconds


class Unpicklable:
    """A value that raises an error of its program when it is sent."""

    def __init__(self, error: Callable[[], BaseException]) -> None:
        self._error = error

    def __reduce__(self) -> Any:
        raise self._error()


def _fail(error: Callable[[], BaseException]) -> Any:
    raise error()


PLACES: dict[str, Callable[[Communicator, Callable[[], BaseException]], Any]] = {
    "program": lambda comm, error: _fail(error) if comm.rank == 1 else comm.barrier(),
    "operator of objects": lambda comm, error: comm.allreduce([comm.rank], lambda *_: _fail(error)),
    "operator of arrays": lambda comm, error: comm.allreduce(np.ones(5), lambda *_: _fail(error)),
    "pickle": lambda comm, error: comm.allgather(Unpicklable(error) if comm.rank == 1 else 1),
    "request": lambda comm, error: comm.iallreduce([comm.rank], lambda *_: _fail(error)).wait(),
    "finalizer": lambda comm, error: (comm.finalize(), _fail(error)),
}
RUNS: dict[str, Callable[..., Any]] = {
    "run": lambda fn: ringcast.run(fn, 3, backend="threads", timeout=patience(LIMIT)),
    "cluster": lambda fn: _in_cluster(fn),
}


def _in_cluster(fn: Callable[[Communicator], Any]) -> Any:
    with ringcast.cluster(3, backend="threads") as cluster:
        return cluster.run(fn, timeout=patience(LIMIT))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("how", RUNS)
def test_every_error_ends_a_run_and_is_named(how: str, place: str) -> None:
    for name, error in ERRORS.items():
        failure = _failure(RUNS[how], lambda comm, error=error: PLACES[place](comm, error))
        assert failure is not None, name
        assert failure.cause.startswith(name.split()[0]), name
        assert name.split()[0] in failure.remote_traceback, name


def _failure(run: Callable[..., Any], fn: Callable[[Communicator], Any]) -> RunFailed | None:
    """Return how a run failed, without the error that was the cause: pytest could not show that."""
    failure = None
    try:
        run(fn)
    except RunTimeout:
        pytest.fail("it did not end by itself", pytrace=False)
    except RunFailed as error:
        failure = RunFailed(error.rank, error.cause, error.remote_traceback)
    return failure


def _calls() -> list[tuple[str, str]]:
    """Return all calls of a communicator, each with the name of a parameter."""
    methods = [(name, fn) for name, fn in inspect.getmembers(Communicator, inspect.isfunction) if name[0] != "_"]
    return [(name, each) for name, fn in methods for each in inspect.signature(fn).parameters if each != "self"]


@pytest.mark.parametrize("call", sorted({name for name, _ in _calls()}))
def test_an_argument_that_cannot_be_shown_is_refused_or_taken(call: str) -> None:
    for parameter in [each for name, each in _calls() if name == call]:
        failure = _failure(RUNS["run"], lambda comm, p=parameter: _with(Sullen(), comm, call, p))
        assert failure is None or not failure.cause.startswith("Refused"), (parameter, failure.cause)
        _failure(RUNS["run"], lambda comm, p=parameter: _with(Hostile(), comm, call, p))  # its methods may be called


SIMPLE = {
    "op": ringcast.SUM,
    "counts": [1, 1],
    "recvcounts": [1, 1],
    "distance": 1,
    "source": 0,
    "color": 0,
    "key": 0,
    "dims": [2],
    "periods": True,
    "ranks": [0, 1],
    "destinations": [0],
    "sources": [0],
    "collective": "bcast",
    "flag": 1,
    "source_path": "/dev/null",
    "target": "/dev/null",
    "tag": 0,
    "root": 0,
}


def _with(value: Any, comm: Communicator, call: str, at: str) -> Any:
    """Make a call with a value for one parameter, and simple ones for all others that it needs."""
    method = getattr(comm, call)
    simple = {**SIMPLE, "dest": 1 - comm.rank, "source": 1 - comm.rank}
    needed = [name for name, each in inspect.signature(method).parameters.items() if each.default is each.empty]
    return method(**{name: simple.get(name, np.ones(2)) for name in needed} | {at: value})
