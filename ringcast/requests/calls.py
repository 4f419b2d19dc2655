"""The ways to make a call: it blocks, returns a request, or is prepared to be started later."""

from __future__ import annotations

import sys
from types import SimpleNamespace

from ringcast.collectives.stage import Group
from ringcast.engine.drive import drive
from ringcast.engine.execute import Result, Steps
from ringcast.engine.open_call import OpenCall
from ringcast.errors import FAILURES
from ringcast.requests.buffers import check_buffers
from ringcast.requests.caller import Caller
from ringcast.requests.persistent import Persistent
from ringcast.requests.request import Request
from ringcast.wire.call import NOWHERE, Site


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


class Unmade(SimpleNamespace):
    """In place of a communicator or topology, has their methods return the steps of a call that is not made."""

    def _call(self, steps: Steps[Result], _: float | None) -> Steps[Result]:
        return steps
