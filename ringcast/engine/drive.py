"""Waiting for tasks: a blocking call drives one, the simulated wire drives the tasks of all ranks in one thread."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from math import inf
from typing import Any

from ringcast.engine.endpoint import Endpoint
from ringcast.engine.execute import Result, Steps
from ringcast.engine.predicted import are_done
from ringcast.engine.task import Task, begin
from ringcast.errors import CollectiveTimeout
from ringcast.protocol.operations import Operation
from ringcast.wire.call import NOWHERE, Site

QUIET = 1.0  # seconds without a message after which a waiting rank probes its peers and reports a stall


class _Several:
    """Tasks that are waited for together: all of them, as long as none fails, or any.

    Has the parts of a `Task` that a wait needs. While no call fails, a wait for all looks at each task about once,
    however often some call ends.
    """

    __slots__ = ("_done", "_ended", "_endpoint", "_every", "_failures", "_tasks", "patience")

    def __init__(self, endpoint: Endpoint, tasks: Sequence[Task[Any]], every: bool) -> None:
        self._endpoint, self._tasks, self._every = endpoint, tasks, every
        self._ended = self._failures = -1  # the endpoint's counts at the last look
        self._done = 0  # of the first tasks, how many are known to be done
        self.patience = inf  # the least of all

    def poll(self) -> bool:
        """Return whether nothing has to be waited for any more."""
        endpoint = self._endpoint
        if self.patience == inf and endpoint.ended == self._ended:
            return False
        self._ended = endpoint.ended
        if self.patience != inf or endpoint.failures != self._failures or not self._every:
            self._failures = endpoint.failures
            return self._look_at_all()
        while self._done < len(self._tasks) and self._tasks[self._done].done:
            self._done += 1
        return self._done == len(self._tasks)

    def _look_at_all(self) -> bool:
        waiting = [task for task in self._tasks if not task.poll()]
        self.patience = min((task.patience for task in waiting), default=inf)
        if not self._every or any(task.error is not None for task in self._tasks):
            return len(waiting) < len(self._tasks)
        return not waiting


def drive(endpoint: Endpoint, steps: Steps[Result], timeout: float | None = None, site: Site = NOWHERE) -> Result:
    """Run `steps` to the end, waiting as needed, and return its result; `site` is the call's place in the program.

    Raises:
        CollectiveTimeout: `timeout` seconds have passed; or the control plane has found a deadlock.
        RingcastError: see `Task.result`.
    """
    with endpoint.gate:
        until = None if timeout is None else endpoint.transport.clock() + timeout
        task = begin(endpoint, steps, site, blocks=True)
        if not task.done:
            _make_progress(endpoint, deadlines(endpoint, [task], timeout))
        if endpoint.transport.unsent and task.error is None:  # an error is raised at once
            endpoint.deliver(until)
    return task.result


def begun(
    endpoint: Endpoint, steps: Steps[Result], site: Site, start: Callable[[Any], Task[Any] | None] | None, call: Any
) -> Task[Any]:
    """Begin a call that is waited for later, and return it: by `start`, where that can begin it, else by its steps.

    Raises:
        BaseException: see `begin`.
    """
    if (profiler := endpoint.profiler) is None:
        return (start and start(call)) or begin(endpoint, steps, site)
    profiler.enter()
    try:
        return (start and start(call)) or begin(endpoint, steps, site)
    finally:
        profiler.leave()


def wait(endpoint: Endpoint, tasks: Sequence[Task[Any]], timeout: float | None = None, *, every: bool = True) -> None:
    """Wait until all tasks are done, or one of them has failed; or, if not `every`, until any is done.

    Raises:
        CollectiveTimeout: `timeout` seconds have passed, and the tasks that are not done have failed.
    """
    with endpoint.gate:
        until = None if timeout is None else endpoint.transport.clock() + timeout
        profiler = endpoint.profiler
        wait = None if profiler is None else profiler.enter_wait(_counted(tasks))
        try:
            if not (every and endpoint.predicted and are_done(endpoint, tasks, timeout)):
                _make_progress(endpoint, deadlines(endpoint, tasks, timeout, every))
            if endpoint.transport.unsent and all(task.error is None for task in tasks):
                endpoint.deliver(until)
        finally:
            if profiler is not None:
                profiler.leave_wait(wait, _counted(tasks))


def _counted(tasks: Sequence[Task[Any]]) -> list[Operation]:
    """Return the operations of tasks in which a profiler counts that the program waits."""
    return [op for task in tasks if (op := task.counted) is not None]


def _make_progress(endpoint: Endpoint, waits: Generator[float, object, None]) -> None:
    """Make progress until each deadline that `waits` yields, to its end."""
    for until in waits:
        try:
            endpoint.progress(until)
        except BaseException as error:
            waits.throw(error)  # which raises it again


def deadlines(
    endpoint: Endpoint, tasks: Sequence[Task[Any]], timeout: float | None, every: bool = True
) -> Generator[float, object, None]:
    """Wait as `wait` does, but yield the deadline of each wait, until which the caller makes progress.

    A stall is reported when no message but keepalives came for QUIET.
    """
    endpoint.hand_over()
    protocol, clock = endpoint.protocol, endpoint.transport.clock
    awaited = tasks[0] if len(tasks) == 1 else _Several(endpoint, tasks, every)
    start = now = clock()
    deadline, due = inf if timeout is None else now + timeout, now + QUIET
    heard, reports = endpoint.arrivals - protocol.keepalives, 0
    try:
        while not awaited.poll():
            if timeout is not None and now >= deadline:
                op = _operations(tasks)[0]
                raise CollectiveTimeout(endpoint.rank, op.waiting_for, timeout, op.where, progress=op.progress)
            yield min(deadline, due, awaited.patience)
            now, before, heard = clock(), heard, endpoint.arrivals - protocol.keepalives
            if heard != before:
                due = now + QUIET
                if reports:
                    reports = 0
                    endpoint.moves()
            elif now >= due:
                due = now + QUIET
                reports += 1
                endpoint.report_stall(_operations(tasks), every=every, seconds=now - start, times=reports)
    except BaseException as error:
        for task in tasks:
            if not task.done:
                task.fail(error)
        raise
    finally:
        if reports:
            endpoint.moves()


def _operations(tasks: Sequence[Task[Any]]) -> list[Operation]:
    """Return the operations under way of those tasks that are not done."""
    return [task.operation for task in tasks if not task.done and task.operation is not None]
