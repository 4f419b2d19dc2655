"""The ways to make a call: it blocks, returns a request, or is prepared to be started later."""

from __future__ import annotations

import os
import sys
import threading
from types import SimpleNamespace
from typing import Any, Final

import numpy as np

from ringcast.collectives.again import Again
from ringcast.collectives.stage import Group
from ringcast.engine.drive import drive
from ringcast.engine.execute import Result, Steps
from ringcast.engine.open_call import OpenCall
from ringcast.errors import FAILURES
from ringcast.ops import Array
from ringcast.requests.buffers import check_buffers
from ringcast.requests.caller import Caller
from ringcast.requests.persistent import Persistent
from ringcast.requests.request import Request
from ringcast.wire.call import NOWHERE, Site

UNMADE: Final = object()  # in place of the result of a call that was not made


class Calls(Caller):
    """The base of classes with calls as methods: a call has the name of its method, and the place of its caller."""

    def __init__(self, group: Group, timeout: float | None) -> None:
        super().__init__(group, timeout)
        self._unmade = Unmade(_group=group)

    def _call(self, steps: Steps[Result], timeout: float | None) -> Result:
        """Make the call that has the name of the calling method, and return its result."""
        method = sys._getframe(1)
        user = method.f_back
        site = (user.f_code.co_filename, user.f_lineno) if user else NOWHERE
        return self._make(method.f_code.co_name, steps, timeout, site)

    def _known(self, operation: str, value: Any = None, op: Any = None) -> Again | None:
        """Return the call that was made before with such an array, if any, and this operator of ringcast, if any."""
        if type(value) is np.ndarray:
            return self._group.again.get((operation, value.dtype, value.shape, id(op)))
        return self._group.again.get(operation) if value is None else None

    def _again(self, again: Again, value: Any, out: Array | None) -> Any:
        """Make a call again that was made before, and return its result; UNMADE if it needs the general way."""
        endpoint, (process, thread) = self._group.endpoint, self._owner
        if self._closed or os.getpid() != process or threading.get_ident() != thread:
            return UNMADE
        source, result = again.source, again.result
        if out is not None and (result is None or not _fits(out, result)):
            return UNMADE
        method = sys._getframe(1)
        user = method.f_back
        site = (user.f_code.co_filename, user.f_lineno) if user else NOWHERE
        with endpoint.gate:
            op = again.begin(site)
            if op is None:
                return UNMADE
            if source is not None:
                source[...] = value
            rest = again.run(op)
            if rest is not None:
                self._make(method.f_code.co_name, rest, None, site)
            elif endpoint.transport.unsent:
                endpoint.deliver(None if self.timeout is None else endpoint.transport.clock() + self.timeout)
            if result is None:
                return None
            if out is None:
                return result.copy()
            out[...] = result
            return out

    def _make(self, operation: str, steps: Steps[Result], timeout: float | None, site: Site) -> Result:
        """Make the call of this name, and return its result."""
        timeout = self._enter(operation, timeout)
        endpoint = self._group.endpoint
        if endpoint.requests:
            check_buffers(endpoint, OpenCall(operation, site, steps, self._group.context))
        try:
            return drive(endpoint, steps, timeout, site)
        except FAILURES as error:
            self._raised(error, operation, site)
            raise

    def _begin(self, operation: str, steps: Steps[Result], site: Site) -> Request[Result]:
        """Begin the call of this name, and return a request for its result."""
        self._enter(operation)
        call = OpenCall(operation, site, steps, self._group.context)
        request: Request[Result] = Request(self, call)
        request._begin(call)
        return request

    def _prepare(self, operation: str, steps: Steps[Result], site: Site) -> Persistent[Result]:
        """Check the arguments of the call of this name, and return it to be started."""
        self._enter(operation)
        return Persistent(self, steps, operation, site)


def _fits(out: Any, result: Array) -> bool:
    """Return whether a result can be put into `out`; else the general way says why not."""
    alike = type(out) is np.ndarray and out.shape == result.shape and out.dtype == result.dtype
    return alike and out.flags.c_contiguous and out.flags.writeable


class Unmade(SimpleNamespace):
    """In place of a communicator or topology, has their methods return the steps of a call that is not made."""

    def _call(self, steps: Steps[Result], _: float | None) -> Steps[Result]:
        return steps

    def _known(self, *_: Any) -> None:
        """Return None: these calls are not made."""

    def _predicted(self, *_: Any) -> Any:
        """Return UNMADE."""
        return UNMADE

    _send_now = _receive_now = _exchange_now = _predicted
