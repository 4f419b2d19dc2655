"""Persistent calls: made once, with their arguments checked, and started any number of times."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from inspect import getgeneratorlocals
from types import FunctionType, GeneratorType
from typing import TYPE_CHECKING, Any

import numpy as np

from ringcast.collectives.stage import Group
from ringcast.engine.endpoint import Endpoint
from ringcast.engine.execute import Steps
from ringcast.engine.open_call import OpenCall
from ringcast.errors import UsageError
from ringcast.protocol.operations import Operation
from ringcast.requests.caller import Caller
from ringcast.requests.request import Request, Returned, Start
from ringcast.wire.call import Site

if TYPE_CHECKING:
    from ringcast.collectives.neighbors import Neighbors


class Persistent(Request[Returned]):
    """A call that is prepared: `Communicator.allreduce_init`, and all whose names end with `_init`, return one.

    `start` begins the call with the present values of the arrays, `wait` returns its result, and it may be started
    again. All ranks start their persistent calls, and make the others, in the same order; a persistent call is matched
    by any form of the same call. It can be given to `wait_all`, `wait_any` and `wait_some` together with requests.
    Between `start` and `wait` the rules for requests hold for it.

    >>> values = np.arange(3)
    >>> total = comm.allreduce_init(values)
    >>> for _ in range(2):
    ...     values += 1
    ...     total.start()
    ...     print(total.wait())
    [1 2 3]
    [2 3 4]
    """

    def __init__(
        self, caller: Caller, make: Callable[[], tuple[Steps[Returned], Start | None]], operation: str, site: Site
    ) -> None:
        steps, _ = make()
        super().__init__(caller, OpenCall(operation, site, steps, caller._group.context))
        self._make = make
        _check(steps)

    def start(self) -> None:
        """Begin the call.

        Raises:
            UsageError: it is under way, as it was not waited for since its last start; or it conflicts with another
                call under way over memory that one of the two writes.
            Revoked: the communicator was given up.

        >>> call = comm.barrier_init()
        >>> call.start()
        >>> call.wait()
        """
        self._caller._enter("start")
        last = self._call
        steps, start = self._make()
        call = OpenCall(last.operation, last.site, steps, last.context)
        call.uses = last.uses
        self._begin(call, start)

    def _unusable(self, operation: str) -> UsageError:
        rank = self._caller._group.rank
        return UsageError(f"rank {rank}: {operation} of {self._words}, which is not under way; call start() before")

    @property
    def _state(self) -> str:
        return "not started" if self._task is None else super()._state


def _check(steps: Steps[Any]) -> None:
    """Check the arguments of a call as the call itself does before it begins; nothing is sent, `out` is not written.

    Steps that have not begun have the arguments of their function.

    Raises:
        ArgumentError: one of them cannot work.
    """
    assert isinstance(steps, GeneratorType)
    assert steps.gi_frame is not None
    function, given = FunctionType(steps.gi_code, steps.gi_frame.f_globals), dict(getgeneratorlocals(steps))
    near: Neighbors | None = given.get("near")
    group: Group = given["group"] if near is None else near.group
    stage = replace(group, endpoint=_Rehearsal(group.endpoint))
    given |= {"group": stage} if near is None else {"near": replace(near, group=stage)}
    if "out" in given:
        given["out"] = _stand_in(given["out"])
    with suppress(_CheckedError, StopIteration):  # StopIteration: of a call that sends nothing, as with no destination
        next(function(**given))


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
