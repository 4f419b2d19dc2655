"""Messages between the caller of a pool, its master and its workers.

Each is a named tuple of plain values, and frames of bytes that only the ends understand: the master unpickles nothing
of a program. They travel between authenticated processes of one user: over a job's communicator, or a Unix socket in a
folder of this user alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple, TypeAlias

from ringcast.pool.decide import Digest

Frames: TypeAlias = Sequence[Any]  # of bytes


class Part(IntEnum):
    """Part of a task that could not be brought to a worker, or back."""

    function = 0
    arguments = 1
    result = 2
    exception = 3


class TaskFacts(NamedTuple):
    """A task of a pool; its frames are its arguments, `digests` says which of their buffers are content.

    `many`: the arguments are a list of arguments, and the outcome has a result for each.
    """

    number: int
    function: Digest
    digests: tuple[Digest | None, ...]
    ranks: int
    many: bool


# From caller to master


class Submit(NamedTuple):
    """Run a task."""

    task: TaskFacts


class Give(NamedTuple):
    """Keep content: its one frame."""

    digest: Digest


class Drop(NamedTuple):
    """Forget content, to which no task refers any more."""

    digest: Digest


class Cancel(NamedTuple):
    """Do not run a task, if it does not run yet."""

    number: int


class Recall(NamedTuple):
    """Give all tasks back that wait, now and later: `Recalled` follows."""


class Stop(NamedTuple):
    """Let the workers leave; to them too."""


# From master to caller


class Ready(NamedTuple):
    """The workers are there: their ranks, and the hosts of these."""

    hosts: dict[int, str]


class Started(NamedTuple):
    """Tasks were given to workers."""

    numbers: tuple[int, ...]


class Ended(NamedTuple):
    """A task has ended: the outcomes of its ranks, each with its number of frames."""

    number: int
    outcomes: tuple[Outcome, ...]


class Failed(NamedTuple):
    """A task has failed: by the last of its deaths (worker, host, cause), or for a reason."""

    number: int
    death: tuple[int, str, str] | None
    attempts: int
    reason: str


class Recalled(NamedTuple):
    """Tasks that no worker runs, and the content that they need; the frames: one for each content, then all of the
    tasks.
    """

    content: tuple[Digest, ...]
    tasks: tuple[TaskFacts, ...]
    frames: tuple[int, ...]  # of each task


class Lost(NamedTuple):
    """Workers have died, and this many live."""

    workers: tuple[int, ...]
    alive: int


class Broken(NamedTuple):
    """The pool runs no tasks any more."""

    cause: str
    traceback: str


# From master to worker


class Begin(NamedTuple):
    """Call the initializer, which is content; None: there is none. The host is the name of the worker's."""

    initializer: Digest | None


class Tasks(NamedTuple):
    """Run tasks, after keeping content; the frames: one for each content, then all of the tasks."""

    content: tuple[Digest, ...]
    tasks: tuple[TaskFacts, ...]
    frames: tuple[int, ...]  # of each task


class Group(NamedTuple):
    """Run a task with other workers, on a communicator of `workers` with this number; else as `Tasks`."""

    content: tuple[Digest, ...]
    task: TaskFacts
    workers: tuple[int, ...]
    serial: int


class Receive(NamedTuple):
    """Take part in a broadcast of content, on a communicator of the master and `workers` with this number."""

    digest: Digest
    workers: tuple[int, ...]
    serial: int


# From worker to master


class Outcome(NamedTuple):
    """The outcome of a task on one rank; its frames are a pickle of the list of its results, and of the exception.

    `ok`: there is no exception. `part`: it does not travel, so that there are no frames. `lost`: the rank of the job
    whose death the exception tells of.
    """

    number: int
    rank: int
    seconds: float
    frames: int
    ok: bool
    part: Part | None = None  # that does not travel
    cause: str = ""
    traceback: str = ""
    follows: bool = False  # another rank's error has brought it about
    lost: int | None = None


class Outcomes(NamedTuple):
    """Outcomes of tasks, with all their frames."""

    outcomes: tuple[Outcome, ...]


class Received(NamedTuple):
    """A broadcast of content has ended; not `well` if a member has died, and the content has not come."""

    digest: Digest
    well: bool


class Left(NamedTuple):
    """The worker has done all that came before Stop, and leaves."""


class Refused(NamedTuple):
    """The initializer raised; the worker runs no tasks."""

    cause: str
    traceback: str
