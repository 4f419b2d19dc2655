"""Waiting for tasks: a blocking call drives one, the simulated wire drives those of all ranks in one thread."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from math import inf
from typing import Any

from ringcast.engine.endpoint import Endpoint
from ringcast.engine.execute import Result, Steps
from ringcast.engine.task import Task, begin
from ringcast.errors import CollectiveTimeout, RingcastError
from ringcast.protocol.operations import Operation
from ringcast.transports.simulated import SimulatedWire
from ringcast.wire.call import NOWHERE, Site

QUIET = 1.0  # seconds without a message after which a waiting rank probes its peers and reports a stall


class _StallReporter:
    """Measures for how long a call is stalled, and reports it to the peers and the control plane."""

    __slots__ = ("_endpoint", "_start", "_times", "due")

    def __init__(self, endpoint: Endpoint, now: float) -> None:
        self._endpoint, self._start, self._times = endpoint, now, 0
        self.due = now + QUIET

    def heard(self, now: float) -> None:
        """Record a message; keepalives do not count."""
        self.due = now + QUIET
        if self._times:
            self.end()

    def quiet(self, awaited: Sequence[Operation], every: bool, now: float) -> None:
        """Report a stall: no message until `due`."""
        self.due = now + QUIET
        self._times += 1
        self._endpoint.report_stall(awaited, every=every, seconds=now - self._start, times=self._times)

    def end(self) -> None:
        """Withdraw the report, if there was one."""
        if self._times:
            self._times = 0
            self._endpoint.moves()


def drive(endpoint: Endpoint, steps: Steps[Result], timeout: float | None = None, site: Site = NOWHERE) -> Result:
    """Run `steps` to the end, waiting as needed, and return its result; `site` is the call's place in the program.

    Raises:
        CollectiveTimeout: `timeout` seconds have passed; or the control plane has found a deadlock.
        RingcastError: see `Task.result`.
    """
    with endpoint.gate:
        task = begin(endpoint, steps, site)
        if not task.done:
            _make_progress(endpoint, _waiting(endpoint, [task], timeout))
    return task.result


def wait(endpoint: Endpoint, tasks: Sequence[Task[Any]], timeout: float | None = None, *, every: bool = True) -> None:
    """Wait until all tasks are done, or one of them has failed; or, if not `every`, until any is done.

    Raises:
        CollectiveTimeout: `timeout` seconds have passed, and the tasks that are not done have failed.
    """
    with endpoint.gate:
        _make_progress(endpoint, _waiting(endpoint, tasks, timeout, every))


def driven(
    endpoint: Endpoint, steps: Steps[Result], timeout: float | None = None, site: Site = NOWHERE
) -> Generator[float, bool, Result]:
    """Run `steps` as `drive` does, but yield the deadline of each wait, to get whether a message came."""
    task = begin(endpoint, steps, site)
    yield from _waiting(endpoint, [task], timeout)
    return task.result


def _make_progress(endpoint: Endpoint, waits: Generator[float, bool, None]) -> None:
    """Make progress until each deadline that `waits` yields, and tell it whether a message came, to its end."""
    try:
        until = next(waits)
        while True:
            try:
                came = endpoint.progress(until)
            except BaseException as error:
                until = waits.throw(error)
            else:
                until = waits.send(came)
    except StopIteration:
        pass


def _waiting(
    endpoint: Endpoint, tasks: Sequence[Task[Any]], timeout: float | None, every: bool = True
) -> Generator[float, bool, None]:
    """Wait as `wait` does, and yield as `driven` does."""
    protocol, clock = endpoint.protocol, endpoint.transport.clock
    now = clock()
    deadline = inf if timeout is None else now + timeout
    watch = _StallReporter(endpoint, now)
    ended, patience = -1, inf
    try:
        while True:
            if endpoint.ended != ended or patience != inf:
                ended, waiting = endpoint.ended, _not_done(tasks, every)
                if not waiting:
                    return
                patience = waiting[0].patience if len(waiting) == 1 else min(task.patience for task in waiting)
            if timeout is not None and now >= deadline:
                op = _operations(waiting)[0]
                raise CollectiveTimeout(endpoint.rank, op.waiting_for, timeout, op.where, progress=op.progress)
            talk = protocol.keepalives
            came = yield min(deadline, watch.due, patience)
            now = clock()
            if came and protocol.keepalives == talk:
                watch.heard(now)
            elif not came and now >= watch.due:
                watch.quiet(_operations(waiting), every, now)
    except BaseException as error:
        for task in tasks:
            if not task.done:
                task.fail(error)
        raise
    finally:
        watch.end()


def _operations(tasks: Sequence[Task[Any]]) -> list[Operation]:
    return [task.operation for task in tasks if task.operation is not None]


def _not_done(tasks: Sequence[Task[Any]], every: bool) -> Sequence[Task[Any]]:
    """Return the tasks that have to be waited for; none if the wait is over."""
    if len(tasks) == 1:
        return () if tasks[0].poll() else tasks
    waiting = [task for task in tasks if not task.poll()]
    if len(waiting) == len(tasks):
        return waiting
    return waiting if every and all(task.error is None for task in tasks) else []


def drive_together(wire: SimulatedWire, endpoints: Sequence[Endpoint], steps: Sequence[Steps[Any]]) -> list[Any]:
    """Run one generator per rank on the simulated wire, in one thread; return their results by rank.

    Raises:
        RingcastError: the first error of any rank; or a deadlock, with the ranks that wait for each other.
    """
    tasks = [begin(endpoint, generator) for endpoint, generator in zip(endpoints, steps, strict=True)]
    running = {rank for rank, task in enumerate(tasks) if not _ended(task)}
    stuck = None
    while running:
        rank = wire.deliver()
        if rank is not None:
            while endpoints[rank].progress(wire.now):  # a notice may have come as well
                pass
            if rank in running and _ended(tasks[rank]):
                running.discard(rank)
            continue
        waiting = {r: op for r in sorted(running) if (op := tasks[r].operation) is not None}
        state = [(op.number, op.round, op.waiting_for) for op in waiting.values()]
        for r in waiting:
            tasks[r].patience = wire.now
            _ended(tasks[r])
        if state == stuck:  # also after all have probed their peers
            waits = {r: op.waiting_for for r, op in waiting.items()}
            raise RingcastError(f"deadlock at {wire.now:g} s: no message is under way and ranks wait for {waits}")
        stuck = state
        for r, op in waiting.items():
            endpoints[r].probe([op])
    return [task.result for task in tasks]


def _ended(task: Task[Any]) -> bool:
    """Return whether a task is done.

    Raises:
        BaseException: the error that has ended it.
    """
    if not task.done and not task.poll():
        return False
    if task.error is not None:
        raise task.error
    return True
