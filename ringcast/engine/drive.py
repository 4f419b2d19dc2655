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


class _Wait:
    """A wait for tasks, from one message to the next: when it is over, until when to wait, and when to report a stall.

    As a context manager it fails the tasks that are not done if the wait is broken off.

    Attributes:
        until: when to look again, on the transport's clock, if no message comes before.
    """

    __slots__ = (
        "_deadline",
        "_done",
        "_due",
        "_ended",
        "_endpoint",
        "_every",
        "_failures",
        "_now",
        "_patience",
        "_start",
        "_talk",
        "_tasks",
        "_timeout",
        "_times",
        "until",
    )

    def __init__(self, endpoint: Endpoint, tasks: Sequence[Task[Any]], timeout: float | None, every: bool) -> None:
        self._endpoint, self._tasks, self._timeout, self._every = endpoint, tasks, timeout, every
        self._start = self._now = self.until = now = endpoint.transport.clock()
        self._deadline = inf if timeout is None else now + timeout
        self._due = now + QUIET  # of the next report
        self._times = 0  # how often the stall under way was reported
        self._ended = self._failures = -1  # those of the endpoint at the last look at the tasks
        self._done = 0  # of the first tasks, how many are known to be done
        self._patience = inf  # the least of the tasks
        self._talk = 0  # keepalives at the last look

    def __enter__(self) -> _Wait:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            for task in self._tasks:
                if not task.done:
                    task.fail(error)
        self._withdraw()

    def over(self) -> bool:
        """Return whether the wait is over.

        Raises:
            CollectiveTimeout: it has taken too long.
        """
        endpoint = self._endpoint
        if (endpoint.ended != self._ended or self._patience != inf) and self._complete():
            return True
        if self._now >= self._deadline and self._timeout is not None:
            op = self._operations()[0]
            raise CollectiveTimeout(endpoint.rank, op.waiting_for, self._timeout, op.where, progress=op.progress)
        self._talk = endpoint.protocol.keepalives
        self.until = min(self._deadline, self._due, self._patience)
        return False

    def after(self, came: bool) -> None:
        """Take note that a message `came`, or none until `until`; keepalives do not count."""
        endpoint = self._endpoint
        self._now = now = endpoint.transport.clock()
        if came and endpoint.protocol.keepalives == self._talk:
            self._due = now + QUIET
            if self._times:
                self._withdraw()
        elif not came and now >= self._due:
            self._due = now + QUIET
            self._times += 1
            awaited, seconds = self._operations(), now - self._start
            endpoint.report_stall(awaited, every=self._every, seconds=seconds, times=self._times)

    def _complete(self) -> bool:
        """Return whether no task has to be waited for any more.

        While none fails, a wait for all of them looks at each task once, however often some call ends.
        """
        endpoint, tasks = self._endpoint, self._tasks
        self._ended = endpoint.ended
        if len(tasks) == 1:
            task = tasks[0]
            done, self._patience = task.poll(), task.patience
            return done
        if self._every and self._failures == endpoint.failures and self._patience == inf:
            while self._done < len(tasks) and tasks[self._done].done:
                self._done += 1
            return self._done == len(tasks)
        self._failures = endpoint.failures
        waiting = [task for task in tasks if not task.poll()]
        if not waiting or (len(waiting) < len(tasks) and not (self._every and all(t.error is None for t in tasks))):
            return True
        self._patience = min(task.patience for task in waiting)
        return False

    def _operations(self) -> list[Operation]:
        """Return the operations of the tasks that are not done."""
        return [task.operation for task in self._tasks if not task.done and task.operation is not None]

    def _withdraw(self) -> None:
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
            _wait(endpoint, [task], timeout, every=True)
    return task.result


def wait(endpoint: Endpoint, tasks: Sequence[Task[Any]], timeout: float | None = None, *, every: bool = True) -> None:
    """Wait until all tasks are done, or one of them has failed; or, if not `every`, until any is done.

    Raises:
        CollectiveTimeout: `timeout` seconds have passed, and the tasks that are not done have failed.
    """
    with endpoint.gate:
        _wait(endpoint, tasks, timeout, every)


def driven(
    endpoint: Endpoint, steps: Steps[Result], timeout: float | None = None, site: Site = NOWHERE
) -> Generator[float, bool, Result]:
    """Run `steps` as `drive` does, but yield the deadline of each wait, to get whether a message came."""
    task = begin(endpoint, steps, site)
    with _Wait(endpoint, [task], timeout, every=True) as waiting:
        while not waiting.over():
            waiting.after((yield waiting.until))
    return task.result


def _wait(endpoint: Endpoint, tasks: Sequence[Task[Any]], timeout: float | None, every: bool) -> None:
    """Wait as `wait` does, in an engine that is used by this call alone."""
    with _Wait(endpoint, tasks, timeout, every) as waiting:
        while not waiting.over():
            waiting.after(endpoint.progress(waiting.until))


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
            while wire.ends[rank].inbox:  # a notice may have come as well
                endpoints[rank].progress(wire.now)
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
