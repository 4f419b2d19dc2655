"""The one loop: every collective on every backend, live or simulated, runs through `execute`.

`execute` is a generator: it yields an `Exchange`, and is resumed when that is complete. A `Task` advances such a
generator on an endpoint; a blocking call drives one task, the simulated wire drives those of all ranks in one thread.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from itertools import chain, pairwise
from typing import Any, Generic, TypeAlias, TypeVar

from ringcast.engine.endpoint import Endpoint, Exchange
from ringcast.engine.slots import Memory, ReceiveBuffer
from ringcast.errors import CollectiveMismatch, CollectiveTimeout, RingcastError
from ringcast.protocol.operations import Operation
from ringcast.schedules.schedule import IDLE, Step, independent
from ringcast.transports.simulated import SimulatedWire

EXPLANATION = 0.1  # seconds that the other side of a mismatch has to send its call
QUIET = 1.0  # seconds without a message after which a waiting rank probes its peers and reports a stall

Result = TypeVar("Result")


Steps: TypeAlias = Generator[Exchange, None, Result]


def execute(steps: Sequence[Step], memory: Memory, op: Operation) -> Steps[None]:
    """Run the steps of one rank's schedule on its slots.

    No step receives into a slot that it sends (`verify` sees to that), so nothing has to be copied. Where rounds are
    granted, the next receive is posted with this round, so that its grant goes out when this round's receive is
    complete, however long this round's send takes.
    """
    ahead: ReceiveBuffer | None = None
    op.rounds = len(steps)
    for op.round, (step, following) in enumerate(pairwise(chain(steps, (IDLE,)))):
        for local in step.local:
            memory.apply(local)
        if step.send_to is None and step.recv_from is None:
            continue
        frames, packed = memory.pack(step.send) if step.send_to is not None else ([], False)
        posted, receive_buffer = ahead is not None, ahead
        if receive_buffer is None and step.recv_from is not None:
            receive_buffer = memory.receive_buffer(step)
        early = op.granted and following.recv_from is not None and independent(step, following)
        ahead = memory.receive_buffer(following) if early else None
        after = None if ahead is None or following.recv_from is None else (following.recv_from, ahead)
        yield Exchange(op, step.send_to, frames, packed, step.recv_from, receive_buffer, None, posted, after)
        if receive_buffer is not None:
            receive_buffer.finish()


class Task(Generic[Result]):
    """Runs a generator of exchanges on one endpoint."""

    def __init__(self, endpoint: Endpoint, steps: Steps[Result]) -> None:
        self.endpoint, self._steps = endpoint, steps
        self._outer, endpoint.operation = endpoint.operation, None  # of a call in which a signal's handler makes this
        self.result: Result | None = None
        self.await_peer_report = True  # after a mismatch, wait for the other side's call

    @property
    def operation(self) -> Operation | None:
        """The operation under way, or the last one."""
        return self.endpoint.operation

    @property
    def awaits_peer_report(self) -> bool:
        """Whether this ends with a mismatch whose other side has not sent its call yet."""
        if self.operation is None or self.operation.error is None:
            return False
        error = self.endpoint.protocol.error_of(self.operation)
        return self.await_peer_report and isinstance(error, CollectiveMismatch) and not error.complete

    def advance(self) -> bool:
        """Go on as far as possible without waiting; return True when finished, with `result` set.

        Raises:
            RingcastError: the error that ended the operation; or any error of the generator. The communicator is
                invalidated.
        """
        endpoint, op = self.endpoint, self.endpoint.operation
        try:
            while op is None or not (op.pending or op.error):
                exchange = next(self._steps)
                op = exchange.operation
                if not op.error:
                    endpoint.post(exchange)
            if op.error is None or self.awaits_peer_report:
                return False
            error = endpoint.protocol.error_of(op)
            assert error is not None
            raise error
        except StopIteration as stop:
            self.result, endpoint.operation = stop.value, self._outer
            return True
        except BaseException as error:
            self.fail(error)
            raise

    def fail(self, error: BaseException) -> None:
        """Abort: the peers of this operation are refused, and the communicator ends with `error`."""
        self._steps.close()
        try:
            self.endpoint.fail(error)
        finally:
            self.endpoint.operation = self._outer


class _StallReporter:
    """Measures for how long a call is stalled, and reports it to the peers and the control plane."""

    __slots__ = ("_endpoint", "_start", "_times", "due")

    def __init__(self, endpoint: Endpoint, now: float) -> None:
        self._endpoint, self._start, self._times = endpoint, now, 0
        self.due = now + QUIET

    def heard(self, now: float) -> None:
        """Record a message; keepalives do not count."""
        self.due = now + QUIET
        self.end()

    def quiet(self, op: Operation, now: float) -> None:
        """Report a stall: no message until `due`."""
        self.due = now + QUIET
        self._times += 1
        self._endpoint.report_stall(op, now - self._start, self._times)

    def end(self) -> None:
        """Withdraw the report, if there was one."""
        if self._times:
            self._times = 0
            self._endpoint.moves()


def drive(endpoint: Endpoint, steps: Steps[Result], timeout: float | None = None) -> Result:
    """Run `steps` to the end, waiting as needed, and return its result.

    Raises:
        CollectiveTimeout: `timeout` seconds have passed; or the control plane has found a deadlock.
        RingcastError: see `Task.advance`.
    """
    waits = driven(endpoint, steps, timeout)
    with endpoint.gate:
        try:
            until = next(waits)
            while True:
                try:
                    came = endpoint.progress(until)
                except BaseException as error:
                    until = waits.throw(error)
                else:
                    until = waits.send(came)
        except StopIteration as stop:
            result: Result = stop.value
            return result


def driven(endpoint: Endpoint, steps: Steps[Result], timeout: float | None = None) -> Generator[float, bool, Result]:
    """Run `steps` without blocking, for `drive`: yield the deadline of each wait; get whether a message came."""
    task, protocol, clock = Task(endpoint, steps), endpoint.protocol, endpoint.transport.clock
    start = clock()
    watch = _StallReporter(endpoint, start)
    try:
        deadline = None if timeout is None else start + timeout
        heard = False
        while not task.advance():
            op = task.operation
            assert op is not None, "who waits has begun an operation"
            try:
                now = clock()
                if deadline is not None and timeout is not None and now >= deadline:
                    raise CollectiveTimeout(endpoint.rank, op.waiting_for, timeout, op.where, progress=op.progress)
                if heard:
                    watch.heard(now)
                until, talk = now + EXPLANATION if task.awaits_peer_report else watch.due, protocol.keepalives
                came = yield until if deadline is None else min(until, deadline)
                heard = came and protocol.keepalives == talk
                if not came and task.awaits_peer_report:
                    task.await_peer_report = False
                elif not came and clock() >= watch.due:
                    watch.quiet(op, clock())
            except BaseException as error:
                task.fail(error)
                raise
    finally:
        watch.end()
    return task.result  # type: ignore[return-value]  # set when advance returns True


def drive_together(wire: SimulatedWire, endpoints: Sequence[Endpoint], steps: Sequence[Steps[Any]]) -> list[Any]:
    """Run one generator per rank on the simulated wire, in one thread; return their results by rank.

    Raises:
        RingcastError: the first error of any rank; or a deadlock, with the ranks that wait for each other.
    """
    tasks = [Task(endpoint, generator) for endpoint, generator in zip(endpoints, steps, strict=True)]
    running = {rank for rank, task in enumerate(tasks) if not task.advance()}
    stuck = None
    while running:
        rank = wire.deliver()
        if rank is not None:
            while endpoints[rank].progress(wire.now):  # a notice may have come as well
                pass
            if rank in running and tasks[rank].advance():
                running.discard(rank)
            continue
        waiting = {r: op for r in sorted(running) if (op := tasks[r].operation) is not None}
        state = [(op.number, op.round, op.waiting_for) for op in waiting.values()]
        for r in waiting:
            tasks[r].await_peer_report = False
            tasks[r].advance()
        if state == stuck:  # also after all have probed their peers
            waits = {r: op.waiting_for for r, op in waiting.items()}
            raise RingcastError(f"deadlock at {wire.now:g} s: no message is under way and ranks wait for {waits}")
        stuck = state
        for r, op in waiting.items():
            endpoints[r].probe(op)
    return [task.result for task in tasks]
