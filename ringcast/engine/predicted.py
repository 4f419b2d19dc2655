"""Requests that begin by prediction: the engine does not know of them while all messages come as predicted.

Such a call sends what it can when it is begun, and goes on when the program waits for it. As soon as anything needs the
engine, all of them are handed over to it, in the order in which they were begun.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from ringcast.engine import direct
from ringcast.engine.endpoint import Endpoint
from ringcast.engine.execute import Result, Steps
from ringcast.engine.task import Task
from ringcast.protocol.operations import Operation
from ringcast.wire.call import Site


class Predicted(Task[Result]):
    """A call that has begun by prediction.

    The engine runs its `steps` when it is handed over. `play` waits for messages, so many seconds each, and returns the
    result, in a tuple; or other steps for the engine, as to raise an error; None if messages did not come as predicted.
    """

    __slots__ = ("_op", "_play")

    def __init__(
        self,
        endpoint: Endpoint,
        steps: Steps[Result],
        site: Site,
        play: Callable[[float], tuple[Result] | Steps[Result] | None],
        op: Operation,
    ) -> None:
        super().__init__(endpoint, steps, site)
        self._play, self._op = play, op
        endpoint.predicted.append(self)

    @property
    def counted(self) -> Operation:
        return self.operation or self._op

    def play(self, patience: float) -> bool:
        """Go on by prediction, as the first of the calls that have begun so; return whether the call is done."""
        endpoint = self.endpoint
        endpoint.predicted.popleft()  # calls that an operator makes hand the others over
        found = None
        try:
            found = self._play(patience)
        finally:
            if found is None:
                endpoint.predicted.appendleft(self)
        if found is None:
            return False
        self._steps.close()
        if isinstance(found, tuple):
            self.end(found[0])
        else:
            self._steps = found
            self.advance()
        return self.done


def are_done(endpoint: Endpoint, tasks: Collection[Task[Any]], timeout: float | None) -> bool:
    """Go on with tasks by prediction, as far as they are the first ones; return whether all tasks are done."""
    wanted = set(tasks)
    patience = direct.PATIENCE if timeout is None else min(direct.PATIENCE, timeout)
    while endpoint.predicted:
        first = endpoint.predicted[0]
        if first not in wanted or not isinstance(first, Predicted) or not first.play(patience):
            return False
    return all(task.done for task in tasks)


def is_done(task: Task[Any]) -> bool:
    """Go on with a task by prediction, if it is the first one, without waiting; return whether it is done."""
    first = task.endpoint.predicted[0] if task.endpoint.predicted else None
    return first is task and isinstance(first, Predicted) and first.play(0.0)


def failed(endpoint: Endpoint, steps: Steps[Result], site: Site) -> Task[Result]:
    """Return a call that has failed when it was begun by prediction; its `steps` raise the error."""
    task = Task(endpoint, steps, site)
    task.advance()
    return task


def ended(endpoint: Endpoint, steps: Steps[Result], site: Site, result: Result) -> Task[Result]:
    """Return a call that was made by prediction, in place of its steps, and has this result."""
    steps.close()
    task = Task(endpoint, steps, site)
    task.end(result)
    return task
