"""`await request`: a coroutine waits for a call, while the event loop of asyncio serves the others.

A `_Watch` stands between an endpoint and a loop while coroutines of the loop await calls of the endpoint. When it
looks, it takes all messages that have come, and wakes each coroutine whose call is done and whose messages the
transport has passed on; a blocking call waits for both, too. The watch looks

* when the transport's file descriptor reports an arrival, or room for unsent data;
* after any other call of the program: that may have completed an awaited call, or have taken a part of the messages,
  so that the descriptor does not report the rest;
* at the time of the next timeout or report.

Where several threads use the rank, the engine's thread takes the messages, and wakes the watch.

While a coroutine waits, the program does not: other coroutines of the loop may make calls. So the rank is probed and
reported as one that polls. This module is imported by the first `await`, as asyncio takes long to import.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Generator
from contextlib import suppress
from dataclasses import replace
from math import inf
from types import TracebackType
from typing import Any, NamedTuple, TypeVar
from typing import Protocol as Interface

from ringcast.engine import drive
from ringcast.engine.endpoint import Endpoint
from ringcast.engine.shared import SharedEndpoint
from ringcast.engine.signal_gate import Gate, Waiter
from ringcast.engine.task import Task
from ringcast.errors import CollectiveTimeout, UsageError

Result_co = TypeVar("Result_co", covariant=True)


class Awaitable(Interface[Result_co]):
    """A call under way that can be waited for once, as a `Request`."""

    def _usable(self, operation: str, timeout: float | None = None) -> tuple[Task[Any], float | None]:
        """Return the call, and how long it may take; raise UsageError if it cannot be waited for."""

    def _take(self, task: Any, operation: str) -> Result_co:
        """Return the result of the call, or raise its error."""


def awaited(request: Awaitable[Result_co]) -> Generator[Any, None, Result_co]:
    """Wait for a request as `__await__` does, and return its result."""
    return _await(request).__await__()


async def _await(request: Awaitable[Result_co]) -> Result_co:
    task, limit = request._usable("await")
    if not task.done or (task.endpoint.undelivered and task.error is None):
        await _wait(task, limit)
        request._usable("await")  # another coroutine may have had it, or have left the job
    return request._take(task, "await")


async def _wait(task: Task[Any], timeout: float | None) -> None:
    """Wait until a call is done and all its data are delivered; if the coroutine is cancelled, the call goes on."""
    loop, endpoint = asyncio.get_running_loop(), task.endpoint
    watch = _WATCHES.get((id(endpoint), loop)) or _Watch(endpoint, loop)
    deadline = inf if timeout is None else endpoint.transport.clock() + timeout
    wait = _Wait(task, loop.create_future(), deadline, timeout)
    try:
        watch.add(wait)
        await wait.future
    finally:
        watch.remove(wait)


class _Wait(NamedTuple):
    """One coroutine's wait: `future` gets a result when it is over. `deadline` is on the transport's clock."""

    task: Task[Any]
    future: asyncio.Future[None]
    deadline: float
    timeout: float | None


_WATCHES: dict[tuple[int, asyncio.AbstractEventLoop], _Watch] = {}  # watches in use, by identity of the endpoint


class _Watch:
    """Looks after the calls of one endpoint that coroutines of one loop await."""

    def __init__(self, endpoint: Endpoint, loop: asyncio.AbstractEventLoop) -> None:
        self._endpoint, self._loop = endpoint, loop
        self._waits: list[_Wait] = []
        self._scheduled = False  # whether the loop is to look soon
        self._timer: asyncio.TimerHandle | None = None
        self._stalls = _Stalls(endpoint)
        self._signal: _Descriptor | _Ringing = (
            _Ringing(endpoint, self) if isinstance(endpoint, SharedEndpoint) else _Descriptor(endpoint, loop, self)
        )
        _WATCHES[id(endpoint), loop] = self

    def add(self, wait: _Wait) -> None:
        """Begin to look after a call."""
        self._waits.append(wait)
        self.look()

    def remove(self, wait: _Wait) -> None:
        """Stop looking after a call; after the last one, take the watch out of use."""
        self._waits.remove(wait)
        if self._waits:
            return
        del _WATCHES[id(self._endpoint), self._loop]
        if self._timer is not None:
            self._timer.cancel()
        self._signal.close()
        if not self._endpoint.closed:
            self._stalls.end()

    def look_soon(self) -> None:
        """Look when the loop comes to it; called in its thread."""
        if not self._scheduled:
            self._scheduled = True
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon(self.look)

    def put(self, _: None) -> None:
        """Look soon; from any thread, as the bell of a gate."""
        if not self._scheduled:
            self._scheduled = True
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self.look)

    def look(self) -> None:
        """Take the messages that have come, wake the coroutines whose calls are done, and set the timer."""
        self._scheduled = False
        endpoint, over = self._endpoint, False
        if not self._waits:
            return
        try:
            if not (endpoint.closed or endpoint.torn):
                with self._signal.gate:
                    self._make_progress()
        except Exception as error:  # as of the blocking wait: no memory, or an error of a signal's handler
            over = True
            for wait in self._waits:
                if not wait.future.done():
                    wait.future.set_exception(error)
        finally:
            over = over or endpoint.closed or bool(endpoint.torn)
            for wait in self._waits:
                if (over or self._is_over(wait)) and not wait.future.done():
                    wait.future.set_result(None)
            if not over:
                self._set_timer()

    def _is_over(self, wait: _Wait) -> bool:
        endpoint, task = self._endpoint, wait.task
        late = endpoint.transport.clock() >= wait.deadline
        return task.done and (task.error is not None or late or not endpoint.undelivered)

    def _make_progress(self) -> None:
        endpoint, clock = self._endpoint, self._endpoint.transport.clock
        endpoint.catch_up()
        for task, _, deadline, timeout in self._waits:
            if not task.poll() and clock() >= deadline and timeout is not None and (op := task.operation) is not None:
                task.fail(CollectiveTimeout(endpoint.rank, op.waiting_for, timeout, op.where, progress=op.progress))
        self._stalls.look([wait.task for wait in self._waits if not wait.task.done], clock())

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        due = min(self._stalls.due, *(min(wait.deadline, wait.task.patience) for wait in self._waits))
        due = self._endpoint.wakes(due) or due
        self._timer = self._loop.call_later(max(0.0, due - self._endpoint.transport.clock()), self.look)


class _Stalls:
    """Reports the awaited calls of an endpoint for which no message has come for a while, as the blocking wait does."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint, self._start = endpoint, endpoint.transport.clock()
        self._heard, self._times = self._messages(), 0
        self.due = self._start + drive.QUIET

    def look(self, tasks: list[Task[Any]], now: float) -> None:
        """Report the stalled calls among `tasks`, which are all under way, if the next report is due."""
        if now < self.due:
            return
        endpoint, protocol = self._endpoint, self._endpoint.protocol
        self.due = now + drive.QUIET
        before, self._heard = self._heard, self._messages()
        if self._heard != before or not tasks:
            self.end()
            return
        self._times += 1
        stalled = [task.operation for task in tasks if task.operation is not None]
        endpoint.probe(stalled)
        report = protocol.report(stalled, every=True, seconds=now - self._start, times=self._times)
        endpoint.tell_stall(replace(report, awaited=0))  # the program may do something else

    def _messages(self) -> int:
        return sum(self._endpoint.protocol.seen) - self._endpoint.protocol.keepalives

    def end(self) -> None:
        """Withdraw the report, if there was one."""
        if self._times:
            self._times = 0
            self._endpoint.moves()


class _Descriptor:
    """Has a watch look when something arrives, and after every call that the program makes meanwhile."""

    def __init__(self, endpoint: Endpoint, loop: asyncio.AbstractEventLoop, watch: _Watch) -> None:
        self._endpoint, self._loop = endpoint, loop
        self._file = os.dup(endpoint.transport.fileno())  # a copy: it stays valid if the transport is closed meanwhile
        self._outer = endpoint.gate = _AwaitedGate(endpoint.gate, watch)
        loop.add_reader(self._file, watch.look)

    @property
    def gate(self) -> Gate:
        """The gate of the watch's own calls."""
        return self._outer.inner

    def close(self) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.remove_reader(self._file)
        os.close(self._file)
        if self._endpoint.gate is self._outer:
            self._endpoint.gate = self._outer.inner


class _Ringing:
    """Has a watch look when the engine's thread, or another one, has completed a call."""

    def __init__(self, endpoint: SharedEndpoint, watch: _Watch) -> None:
        self.gate, self._watch = endpoint.gate, watch
        with self.gate:
            self.gate.bells.append(watch)

    def close(self) -> None:
        with suppress(UsageError), self.gate:  # if it refuses, no thread rings any more
            self.gate.bells.remove(self._watch)


class _AwaitedGate(Gate):
    """The gate of an endpoint with awaited calls: `inner`, and the work to do when a call has come to its end."""

    def __init__(self, inner: Gate, watch: _Watch) -> None:
        self.inner, self.pending, self._watch = inner, inner.pending, watch

    @property
    def waiter(self) -> Waiter | None:
        return self.inner.waiter

    @waiter.setter
    def waiter(self, waiter: Waiter | None) -> None:
        self.inner.waiter = waiter

    @property
    def closed(self) -> bool:
        return True

    def __enter__(self) -> Gate:
        self.inner.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watch.look_soon()
        self.inner.__exit__(kind, error, trace)

    def deliver(self) -> None:
        self.inner.deliver()

    def restore(self) -> None:
        self.inner.restore()

    def replaced_by(self, gate: Gate) -> Gate:
        self.inner, self.pending = gate, gate.pending
        return self

    def left(self) -> Gate:
        self._watch.look_soon()
        return self.inner.left()
