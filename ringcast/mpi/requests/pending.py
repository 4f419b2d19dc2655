"""The calls that requests stand for: each is begun, waited for, and ended once."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeAlias

from ringcast._util.safe_text import is_a
from ringcast.engine.drive import begun, wait
from ringcast.engine.execute import Steps
from ringcast.engine.predicted import is_done
from ringcast.engine.task import Task
from ringcast.errors import FAILURES, RingcastError
from ringcast.mpi.base.exceptions import Exception, translated
from ringcast.mpi.base.failing import Outcome, fail
from ringcast.mpi.base.threads import enter, give_way
from ringcast.mpi.handles.status import Status
from ringcast.wire.call import Site

# Begins a call by prediction in place of its steps, and returns it; None, and nothing is begun, if it needs these.
Start: TypeAlias = Callable[[Steps[Any]], "Task[Any] | None"]


class Pending:
    """A call that is under way, or is prepared to be started, perhaps many times.

    The engine keeps it until its end, whether the program still has the request or not.

    Attributes:
        active: whether it was started, and the program has not seen its end.
        persistent: whether it can be started again.
        status: of the message that it receives, when that has come; None for other calls.
    """

    def __init__(
        self,
        comm: Any,
        operation: str,
        site: Site,
        make: Callable[[], Steps[Any]],
        status: Status | None,
        start: Start | None = None,
        *,
        persistent: bool = False,
    ) -> None:
        self.comm, self.operation, self.site, self.status = comm, operation, site, status
        self.active, self.persistent = False, persistent
        self._caller = comm._caller  # the program may free the communicator before
        self._make, self._start = make, start
        self._task: Task[Any] | None = None

    def start(self) -> None:
        """Begin the call.

        Raises:
            Exception: the call cannot begin.
        """
        caller = self._caller
        if self.status is not None:
            self.status._copy(None)
        steps = self._make()
        try:
            enter(caller, self.operation)
            endpoint = caller._group.endpoint
            with endpoint.gate:
                self._task = begun(endpoint, steps, self.site, self._start, steps)
        except RingcastError as error:
            self.fail(self._translated(error), error)
        except Exception as error:  # MPI's own: the error handler of the communicator acts on it
            self.fail(error)
        self.active = True
        if not self.task.done:
            _note(self)

    @property
    def task(self) -> Task[Any]:
        """The task of the call since its last start."""
        assert self._task is not None
        return self._task

    @property
    def done(self) -> bool:
        """Whether the call has ended, or is not under way."""
        return not self.active or self.task.done

    def look(self) -> None:
        """Note the end of the call, if no more messages are needed for it."""
        with self.task.endpoint.gate:
            self.task.poll()

    def poll(self) -> bool:
        """Make progress with the messages that have arrived; return whether the call is done."""
        if self.done:
            return True
        task, endpoint = self.task, self.task.endpoint
        self._enter()
        with endpoint.gate:
            if is_done(task):
                return True
            endpoint.catch_up()
            done = task.poll()
        if not done:
            give_way()
        return done

    def _enter(self) -> float | None:
        try:
            return enter(self._caller, self.operation)
        except RingcastError as error:
            self.fail(translated(error), error)

    def known_status(self) -> Status | None:
        """Return the status of a call that is done."""
        return self.status

    def outcome(self) -> tuple[Any, Exception | None]:
        """Return the result of a call that is done, and its error."""
        if not self.active:
            return None, None
        error = self.task.error
        if is_a(error, RingcastError):
            return None, self._translated(error)
        result = self.task.result
        if isinstance(result, Outcome):
            return result.result(), None
        return (None, result) if isinstance(result, Exception) else (result, None)

    def end(self) -> tuple[Any, Exception | None]:
        """Return the result and the error of the call, once; then it is over, or can be started again."""
        try:
            return self.outcome()
        finally:
            self.active, self._task = False, None
            _under_way.discard(self)

    def wait(self) -> None:
        """Wait until the call is done."""
        await_calls([self], every=True)

    def cancel(self) -> None:
        """Take back a receive for which no message has come; no effect on other calls and on finished ones."""
        sends = self.operation.startswith("Isendrecv")  # and so the other rank has perhaps received it
        if self.active and self.status is not None and not sends:
            task = self.task
            with task.endpoint.gate:
                task.endpoint.catch_up()
                if task.cancel():
                    task.error = None
                    self.status.Set_cancelled(True)

    def free(self) -> None:
        """Note that the program has no request any more."""

    def fail(self, error: Exception, cause: BaseException | None = None) -> NoReturn:
        """Raise an error after the communicator's error handler has acted on it."""
        fail(self.comm, error, cause)

    def _translated(self, error: RingcastError) -> Exception:
        if is_a(error, FAILURES):
            self._caller._raised(error, self.operation, self.site)
        return translated(error)


_SOME = 64
_under_way: set[Pending] = set()  # also calls without a request any more, until they are too many


def _note(call: Pending) -> None:
    _under_way.add(call)
    if len(_under_way) >= _SOME and len(_under_way).bit_count() == 1:  # a power of two
        _under_way.difference_update([one for one in _under_way if one.done])


def finish() -> None:
    """Wait for the end of all calls, except receives, for which the program has not waited.

    The calls of a program that ends by an error need not end.
    """
    calls = [call for call in _under_way if not call.done and call.status is None]
    if not hasattr(sys, "last_value"):
        await_calls(calls, every=True)
        for call in calls:
            call.end()


def await_calls(calls: Sequence[Any], *, every: bool) -> None:
    """Wait until every active one of these calls is done, or any one, and their messages are on the way."""
    while waiting := _not_done(calls, every):
        tasks = [call.task for call in waiting if isinstance(call, Pending)]
        if len(tasks) < len(waiting):
            _look_after(waiting)
        else:
            _wait(waiting[0], tasks, every)
    first = next((call for call in calls if isinstance(call, Pending) and call.active), None)
    if first is not None and first.task.endpoint.undelivered:
        _wait(first, [first.task], every)


def poll_calls(calls: Sequence[Any]) -> None:
    """Make progress of these calls with the messages that have arrived."""
    waiting = [call for call in calls if isinstance(call, Pending) and not call.done]
    if waiting and not waiting[0].poll():
        for call in waiting[1:]:
            call.look()


def _not_done(calls: Sequence[Any], every: bool) -> list[Any]:
    """Return the calls that have to be waited for."""
    active = [call for call in calls if call.active]
    waiting = [call for call in active if not call.done]
    return waiting if every or len(waiting) == len(active) else []


def _wait(first: Pending, tasks: Sequence[Task[Any]], every: bool) -> None:
    try:
        wait(tasks[0].endpoint, tasks, first._enter(), every=every)
    except RingcastError:  # the error of the calls, which have failed, unless nothing was waited for
        if not any(task.done for task in tasks):
            raise


def _look_after(waiting: Sequence[Any]) -> None:
    """Make progress for a moment, while another thread of the program completes some of the calls."""
    poll_calls(waiting)
    next(call for call in waiting if not isinstance(call, Pending)).rest()
