"""Errors of pools, beside the exceptions of the tasks themselves."""

from __future__ import annotations

from concurrent.futures import BrokenExecutor
from typing import Any

from ringcast.errors import RingcastError


class PoolBroken(RingcastError, BrokenExecutor):
    """A pool runs no tasks any more: its initializer raised, or it has lost its workers or its job.

    Attributes:
        cause: why.
        remote_traceback: of the error that a worker raised; empty where there is none.

    >>> print(PoolBroken("no worker is left"))
    the pool runs no tasks any more: no worker is left
    """

    def __init__(self, cause: str, remote_traceback: str = "") -> None:
        text = f"the pool runs no tasks any more: {cause}"
        super().__init__(f"{text}\n{remote_traceback.rstrip()}" if remote_traceback else text)
        self.cause, self.remote_traceback = cause, remote_traceback

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.cause, self.remote_traceback)


class WorkerDied(RingcastError):
    """The workers that ran a task have died, as often as the pool tries.

    Attributes:
        rank: the last of these workers, as a rank of the pool's job.
        host: where it ran.
        cause: how it ended.
        attempts: how often a worker has died with this task.

    >>> print(WorkerDied(2, "h1", "killed by SIGKILL", 2))
    rank 2 (h1) died with this task: killed by SIGKILL; it was attempt 2, and the pool makes no more (retries=)
    """

    def __init__(self, rank: int, host: str, cause: str, attempts: int) -> None:
        place = f" ({host})" if host else ""
        tried = f"it was attempt {attempts}, and the pool makes no more (retries=)"
        super().__init__(f"rank {rank}{place} died with this task: {cause}; {tried}")
        self.rank, self.host, self.cause, self.attempts = rank, host, cause, attempts

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.rank, self.host, self.cause, self.attempts)


class TaskError(RingcastError):
    """A task could not be brought to a worker, or its outcome not back: something of it cannot be pickled.

    Or the initializer of a pool could not.

    Attributes:
        part: the part that failed: "function", "arguments", "result" or "exception"; or "initializer".
        cause: the error; of an exception that cannot travel, that exception itself, and why.
        rank: the worker, as a rank of the pool's job; None where it has not come to one.
        host: where that runs; empty where it has not come to one.
        remote_traceback: of the task's exception, if that is what cannot travel.

    >>> print(TaskError("result", "TypeError: cannot pickle '_thread.lock' object", 1, "h0"))
    rank 1 (h0): the result of a task does not travel: TypeError: cannot pickle '_thread.lock' object
    """

    def __init__(
        self, part: str, cause: str, rank: int | None = None, host: str = "", remote_traceback: str = ""
    ) -> None:
        where = "" if rank is None else f"rank {rank} ({host}): "
        verb = "do" if part == "arguments" else "does"
        owner = "the pool" if part == "initializer" else "a task"
        text = f"{where}the {part} of {owner} {verb} not travel: {cause}"
        super().__init__(f"{text}\n{remote_traceback.rstrip()}" if remote_traceback else text)
        self.part, self.cause, self.rank, self.host, self.remote_traceback = part, cause, rank, host, remote_traceback

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.part, self.cause, self.rank, self.host, self.remote_traceback)


class WorkerTraceback(Exception):
    """The traceback of a task's exception on its worker, as the cause of that exception."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text.rstrip()}\n"""'
