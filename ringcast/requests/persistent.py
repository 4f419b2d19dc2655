"""Persistent calls: made once, with their arguments checked, and started any number of times."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial
from inspect import signature
from typing import Any

import numpy as np

from ringcast.collectives.neighbors import Neighbors
from ringcast.collectives.stage import Group
from ringcast.engine.endpoint import Endpoint
from ringcast.engine.execute import Steps
from ringcast.engine.open_call import OpenCall
from ringcast.engine.task import Task, begin
from ringcast.errors import UsageError
from ringcast.protocol.operations import Operation
from ringcast.requests.buffers import check_buffers
from ringcast.requests.caller import Caller
from ringcast.requests.request import Request, Returned
from ringcast.wire.call import Site, in_words


class Persistent(Request[Returned]):
    """A call that is prepared: `Communicator.allreduce_init`, and all whose names end with `_init`, return one.

    `start` begins the call with what the arrays hold then, `wait` returns its result, and it may be started again. All
    ranks start their persistent calls, and make the others, in the same order; a persistent call is matched by any form
    of the same call. It can be given to `wait_all` and the like together with requests. Between `start` and `wait` it
    is a request, and the same holds for it.

    >>> values = np.arange(3)
    >>> total = comm.allreduce_init(values)
    >>> for _ in range(2):
    ...     values += 1
    ...     total.start()
    ...     print(total.wait())
    [1 2 3]
    [2 3 4]
    """

    _task: Task[Returned]  # of the last start, until its result is taken

    def __init__(self, caller: Caller, make: partial[Steps[Returned]], operation: str, site: Site) -> None:
        self._caller, self._make, self._operation = caller, make, operation
        self._call = OpenCall(operation, site, make(), caller._group.context)
        self._waited = True  # nobody has to wait for it

    def __repr__(self) -> str:
        state = "not started" if self._waited else "done" if self._task.done else "under way"
        return f"<Persistent: {self._words}, {state}>"

    def start(self) -> None:
        """Begin the call.

        Raises:
            UsageError: it is under way, as nobody has waited for it since the last start; or it would use memory that
                another call under way uses.
            Revoked: the communicator was given up.

        >>> call = comm.barrier_init()
        >>> call.start()
        >>> call.wait()
        """
        caller, call = self._caller, self._call
        endpoint = caller._group.endpoint
        if not self._waited:
            raise UsageError(f"rank {endpoint.rank}: start of {self._words}, which is under way; call wait() before")
        caller._enter(call.operation)
        call.steps = steps = self._make()
        if endpoint.requests:
            check_buffers(endpoint, call)
        try:
            with endpoint.gate:
                self._task = begin(endpoint, steps, call.site)
        except BaseException as error:
            caller._raised(error, call.operation, call.site)
            raise
        self._waited = False
        endpoint.requests[id(self)] = call

    def _usable(self, operation: str, timeout: float | None) -> float | None:
        if self._waited:
            rank = self._caller._group.endpoint.rank
            raise UsageError(f"rank {rank}: {operation} of {self._words}, which is not under way; call start() before")
        return self._caller._check(operation, timeout)

    def _take(self) -> Returned:
        try:
            return super()._take()
        finally:
            del self._task  # the result belongs to the program alone

    @property
    def _words(self) -> str:
        return in_words(self._call.operation, self._call.site)

    def __del__(self) -> None:
        if not self._waited:
            super().__del__()


def check(make: partial[Steps[Any]]) -> None:
    """Check the arguments of a call as it does itself before it begins; nothing is sent, and `out` stays as it is.

    Raises:
        ArgumentError: one of them cannot work.
    """
    call = signature(make.func).bind(*make.args)
    given = call.arguments
    near: Neighbors | None = given.get("near")
    group: Group = given["group"] if near is None else near.group
    stage = replace(group, endpoint=_Rehearsal(group.endpoint))
    given |= {"group": stage} if near is None else {"near": replace(near, group=stage)}
    if "out" in given:
        given["out"] = _stand_in(given["out"])
    with suppress(_CheckedError, StopIteration):  # the latter of a call that sends nothing, as to nobody
        next(make.func(*call.args))


class _CheckedError(Exception):
    """The call would begin now."""


class _Rehearsal(Endpoint):
    """An endpoint on which calls come to their end where they would begin."""

    def __init__(self, endpoint: Endpoint) -> None:
        vars(self).update(vars(endpoint))

    def begin(self, *_: object, **__: object) -> Operation:
        raise _CheckedError


def _stand_in(out: Any) -> Any:
    """Return other memory for the same results; `out` itself if no results can be received in it."""
    fits = type(out) in (np.ndarray, np.memmap) and out.flags.c_contiguous and out.flags.writeable
    return np.empty(out.shape, out.dtype) if fits else out
