"""A task: one call of the program, whose generator of exchanges advances on an endpoint without ever waiting.

A task whose operation has become complete, or has failed, is queued in its endpoint, which advances it with the next
progress that anything makes. So any number of calls is under way at the same time, whichever of them the program
waits for (`ringcast.engine.drive`).
"""

from __future__ import annotations

from functools import partial
from math import inf
from typing import Generic

from ringcast._util.safe_text import is_a
from ringcast.engine.endpoint import Endpoint
from ringcast.engine.execute import Result, Steps
from ringcast.errors import CollectiveMismatch, UsageError
from ringcast.protocol.operations import Operation
from ringcast.wire.call import NOWHERE, Site
from ringcast.wire.header import P2P

EXPLANATION = 0.1  # seconds that the other side of a mismatch has to send its call


def begin(endpoint: Endpoint, steps: Steps[Result], site: Site = NOWHERE, *, blocks: bool = False) -> Task[Result]:
    """Begin a call, whose place in the program is `site`, and return it while it is under way, or done.

    If it `blocks`, the caller has nothing to do until it is done, so that its steps may wait for messages.

    Raises:
        BaseException: an error before anything was begun, as of an argument, or of a communicator that was given up.
    """
    task = Task(endpoint, steps, site, blocks=blocks)
    task.advance()
    if task.error is not None and task.operation is None:
        raise task.error
    return task


class Task(Generic[Result]):
    """Runs a generator of exchanges on one endpoint.

    Attributes:
        site: file and line of the program that made the call.
        blocks: see `begin`.
        operation: of the stage under way, or the last one; None before the first.
        done: whether the result is there, or an error.
        error: the error that has ended it.
        patience: until when, on the transport's clock, the other side of a mismatch may still send its call.
    """

    __slots__ = ("_result", "_stages", "_steps", "blocks", "done", "endpoint", "error", "operation", "patience", "site")

    def __init__(self, endpoint: Endpoint, steps: Steps[Result], site: Site, *, blocks: bool = False) -> None:
        self.endpoint, self._steps, self.site, self.blocks = endpoint, steps, site, blocks
        self.operation: Operation | None = None
        self._stages: dict[int, Operation] = {}  # the last ones in each communicator, of a call that uses several
        self.done = False
        self.error: BaseException | None = None
        self.patience = inf
        self._result: Result | None = None

    @property
    def result(self) -> Result:
        """The return value of the call, when it is done.

        Raises:
            BaseException: the error of the operation, or of the generator. The communicator is given up.
        """
        if self.error is not None:
            raise self.error
        return self._result  # type: ignore[return-value]  # set when it is done

    @property
    def counted(self) -> Operation | None:
        """The operation in which a profiler counts that the program waits for the call."""
        return self.operation

    def last_in(self, context: int) -> Operation | None:
        """Return the last stage of the call in a communicator, where the last of all was something else."""
        last = self.operation
        if last is not None and last.number != P2P:
            self._stages[last.context] = last
        return self._stages.get(context)

    def poll(self) -> bool:
        """Return whether it is done; one that waits for the other side of a mismatch may end here."""
        if not self.done and self.patience != inf:
            self.advance()
        return self.done

    def advance(self) -> None:
        """Go on as far as possible without waiting.

        Raises:
            BaseException: what concerns the whole program, as KeyboardInterrupt in an operator, or no memory to send.
        """
        endpoint, op = self.endpoint, self.operation
        outer, endpoint.running = endpoint.running, self
        endpoint.waiting.discard(self)
        try:
            while op is None or not (len(op.pending) > op.slack or op.error is not None):
                exchange = next(self._steps)
                op = exchange.operation
                if op.error is None:
                    endpoint.post(exchange)
            if op.error is None:
                op.on_ready = partial(endpoint.ready.append, self)  # kept no longer: a cycle would keep the result
                endpoint.waiting.add(self)
            elif not self._awaits_explanation(op):
                known = endpoint.protocol.error_of(op)
                self.fail(op.error if known is None else known)
        except StopIteration as stop:
            self.end(stop.value)
            if self.operation is not None:
                self.operation.close()
            for stage in self._stages.values():
                stage.close()
        except BaseException as error:
            self.fail(error)
            if endpoint.torn or not is_a(error, Exception):
                raise
        finally:
            endpoint.running = outer

    def end(self, result: Result) -> None:
        """End with a result."""
        self._result = result
        self.done = True  # after its result: another thread may look, without the lock
        self.endpoint.ended += 1

    def fail(self, error: BaseException) -> None:
        """End with `error`: the peers of the operation are refused, and the communicator is given up.

        So are others, if the call has used several: their ranks wait for this one in the same call.
        """
        self.error = error
        self.done = True  # after its error
        self.endpoint.waiting.discard(self)
        self.endpoint.failures += 1
        self.endpoint.ended += 1
        self._steps.close()
        if self.operation is not None:
            self.operation.on_ready = None
            self.endpoint.fail(self.operation, error)
            for stage in self._stages.values():
                if stage.context != self.operation.context:
                    self.endpoint.fail(stage, error)

    def cancel(self) -> bool:
        """End a receive for which no message has come; return whether it was one."""
        op = self.operation
        if self.done or op is None or op.error is not None or not self.endpoint.protocol.cancel(op):
            return False
        op.on_ready = None
        self.endpoint.waiting.discard(self)
        self._steps.close()
        self.error = UsageError(f"rank {self.endpoint.rank}: wait for a receive that another thread has cancelled")
        self.done = True
        self.endpoint.failures += 1
        self.endpoint.ended += 1
        self.endpoint.recorder.done(op)
        return True

    def _awaits_explanation(self, op: Operation) -> bool:
        """Return whether this ends with a mismatch whose other side has not sent its call yet."""
        error = self.endpoint.protocol.error_of(op)
        if not is_a(error, CollectiveMismatch) or error.complete:
            return False
        now = self.endpoint.transport.clock()
        if self.patience == inf:
            self.patience = now + EXPLANATION
            self.endpoint.failures += 1
            self.endpoint.ended += 1
        return now < self.patience
