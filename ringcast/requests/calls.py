"""The ways to make a call: it blocks, returns a request, or is prepared to be started later."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, Self

import numpy as np

from ringcast.collectives.again import UNMADE, Again, Rest
from ringcast.collectives.stage import Group
from ringcast.engine.drive import drive
from ringcast.engine.execute import Result, Steps
from ringcast.engine.open_call import OpenCall
from ringcast.engine.task import Task
from ringcast.errors import FAILURES
from ringcast.requests.buffers import check_buffers
from ringcast.requests.caller import Caller
from ringcast.requests.persistent import Persistent
from ringcast.requests.request import Request, Start
from ringcast.wire.call import NOWHERE, Site

UNKNOWN = object()  # is in no key


class Calls(Caller):
    """The base of classes with calls as methods: a call has the name of its method, and the place of its caller."""

    def __init__(self, group: Group, timeout: float | None) -> None:
        super().__init__(group, timeout)
        self._unmade = Unbegun(_group=group)
        self._place: Site | None = None  # of the program's call that makes all others now; None: each is the program's

    def _of(self, group: Group) -> Self:
        """Return a communicator of a group that a call has made of this one's ranks."""
        made = type(self)(group, self.timeout)
        made._place = self._place
        return made

    def _call(self, steps: Steps[Result], timeout: float | None) -> Result:
        """Make the call that has the name of the calling method, and return its result."""
        method = sys._getframe(1)
        user = method.f_back
        site = self._place or ((user.f_code.co_filename, user.f_lineno) if user else NOWHERE)
        return self._make(method.f_code.co_name, steps, timeout, site)

    def _known(self, *key: object) -> Again | None:
        """Return the call that was made before under this key, if any."""
        try:
            return self._group.again.get(key)
        except TypeError:  # of an argument that cannot be hashed
            return None

    def _known_with(self, operation: str, value: Any, *facts: object) -> Again | None:
        """Return the call that was made before with such an array, if any; see `collectives.again.key_of`."""
        if type(value) is not np.ndarray:
            return None
        try:
            return self._group.again.get((operation, value.dtype, value.shape, *facts))
        except TypeError:  # as above
            return None

    def _again(self, again: Again, value: Any, out: Any = None, call: tuple[str, Site] | None = None) -> Any:
        """Make a call again that was made before, and return its result; UNMADE if it needs the general way.

        `call` is its name and place, where that is not the calling method and its caller.
        """
        endpoint, (process, thread) = self._group.endpoint, self._owner
        if self._closed or os.getpid() != process or threading.get_ident() != thread:
            return UNMADE
        if call is None:
            method = sys._getframe(1)
            user = method.f_back
            site = self._place or ((user.f_code.co_filename, user.f_lineno) if user else NOWHERE)
            operation = method.f_code.co_name
        else:
            operation, site = call
        with endpoint.gate:
            if (profiler := endpoint.profiler) is not None:
                profiler.enter()
            try:
                result = again.make(site, value, out)
                if type(result) is Rest:
                    return self._make(operation, result.steps, None, site)
                if result is not UNMADE and endpoint.transport.unsent:
                    endpoint.deliver(None if self.timeout is None else endpoint.transport.clock() + self.timeout)
                return result
            finally:
                if profiler is not None:
                    profiler.leave()

    def _make(self, operation: str, steps: Steps[Result], timeout: float | None, site: Site) -> Result:
        """Make the call of this name, and return its result."""
        timeout = self._enter(operation, timeout)
        endpoint = self._group.endpoint
        if endpoint.requests:
            check_buffers(endpoint, OpenCall(operation, site, steps, self._group.context))
        profiler = endpoint.profiler
        try:
            if profiler is not None:
                with endpoint.gate:  # threads take turns
                    profiler.enter()
            return drive(endpoint, steps, timeout, site)
        except FAILURES as error:
            self._raised(error, operation, site)
            raise
        finally:
            if profiler is not None:
                with endpoint.gate:
                    profiler.leave()

    def _begin(self, operation: str, make: Callable[[], Steps[Result]], site: Site) -> Request[Result]:
        """Begin the call of this name, and return a request for its result; `make` returns its steps."""
        self._enter(operation)
        site = self._place or site
        steps, start = self._open(make)
        call = OpenCall(operation, site, steps, self._group.context)
        request: Request[Result] = Request(self, call)
        request._begin(call, start)
        return request

    def _prepare(self, operation: str, make: Callable[[], Steps[Result]], site: Site) -> Persistent[Result]:
        """Check the arguments of the call of this name, and return it to be started."""
        self._enter(operation)
        return Persistent(self, partial(self._open, make), operation, site)

    def _open(self, make: Callable[[], Steps[Result]]) -> tuple[Steps[Result], Start | None]:
        """Return the steps of a call, and how it begins by prediction, if it may."""
        unbegun = self._unmade
        with self._group.endpoint.gate:  # threads take turns
            unbegun.way = None
            try:
                steps = make()
                return steps, None if unbegun.way is None else partial(getattr(self, unbegun.way), *unbegun.arguments)
            finally:
                unbegun.arguments = ()  # they hold the program's arrays

    def _started(self, again: Again, value: Any, out: Any, call: OpenCall) -> Task[Any] | None:
        return again.started(call.site, value, out, call.steps)


def as_fact(argument: Any) -> object:
    """Return a root, or counts, as they are in the key of a call that was made; other arguments are in none."""
    if argument is None or type(argument) is int:
        return argument
    items = argument.tolist() if type(argument) is np.ndarray and argument.ndim == 1 else argument
    if type(items) not in (list, tuple) or not {*map(type, items)} <= {int}:
        return UNKNOWN  # such as 1.0, which is equal to 1
    return tuple(items)


class Unmade(SimpleNamespace):
    """In place of a communicator or topology, has their methods return the steps of a call that is not made."""

    def _call(self, steps: Steps[Result], _: float | None) -> Steps[Result]:
        return steps


class Unbegun(Unmade):
    """In place of a communicator; it keeps how the call that is not made would begin by prediction.

    Attributes:
        way: name of the method of the communicator that begins it so; None: none does.
        arguments: of this method, before the call.
    """

    way: str | None
    arguments: tuple[Any, ...]

    _known, _known_with = Calls._known, Calls._known_with

    def _again(self, again: Again, value: Any, out: Any = None) -> Any:
        return self._keep("_started", again, value, out)

    def _send_now(self, *arguments: Any) -> Any:
        return self._keep("_start_send", *arguments)

    def _receive_now(self, *arguments: Any) -> Any:
        return self._keep("_start_receive", *arguments)

    def _exchange_now(self, *_: Any) -> Any:
        return UNMADE

    def _keep(self, way: str, *arguments: Any) -> Any:
        self.way, self.arguments = way, arguments
        return UNMADE
