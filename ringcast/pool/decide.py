"""Decisions of the master of a pool, without I/O and clock: the worker of each task, and the consequences of a death.

Tasks are given in the order in which they came. The rules:

1. A worker that has nothing to do gets the first waiting task. While tasks of a function are quick, a worker gets some
   ahead, expected to take AHEAD seconds together: so it need not wait for each. It gets the next ones when half of that
   is left, so that many travel in one message.
2. The content of a task (its function, large arguments) reaches a worker before the task, and once. Small content
   travels with the task; large content by one broadcast to all idle workers that lack it.
3. A task that asks for k ranks waits until k workers are idle. Tasks behind it wait too, so that it gets its turn.
4. Of a worker that has died, all tasks that it had are given to others, at the front of the queue. Each has lost an
   attempt, as any may have been the cause; they then run one at a time, so that only the cause loses another one. After
   `retries` further attempts a task has failed. Without retries no task is given ahead: a death loses one task only.
5. A task of k ranks has failed in an attempt as soon as one of them has died. It runs again when the others are idle.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

AHEAD = 0.004  # seconds of work that a worker has beside the task that it runs
MOST_AHEAD = 100  # tasks
BYTES_AHEAD = 16 << 10  # of arguments: a busy worker takes no more without a wait of the sender
SMALL = 32 << 10  # bytes of content that travels with a task

Digest: TypeAlias = bytes


class Task(NamedTuple):
    """A task: the content that it needs, its function first; the bytes that travel with it; how many ranks it asks for.

    `ranks` of 0: it runs on one worker, and gets no communicator.
    """

    number: int
    needs: tuple[Digest, ...]
    size: int = 0
    ranks: int = 0


class Death(NamedTuple):
    """How a worker has ended."""

    worker: int
    host: str
    cause: str


class Run(NamedTuple):
    """Send these tasks to a worker, and before them small content that it lacks."""

    worker: int
    numbers: tuple[int, ...]
    content: tuple[Digest, ...]


class Together(NamedTuple):
    """Let these workers run a task on a communicator of their own; some of them lack `content`."""

    number: int
    workers: tuple[int, ...]
    serial: int
    content: tuple[Digest, ...]


class Spread(NamedTuple):
    """Broadcast large content to these workers, on a communicator of their own with the master."""

    digest: Digest
    workers: tuple[int, ...]
    serial: int


class Forget(NamedTuple):
    """Let a worker forget content."""

    worker: int
    digest: Digest


class Fail(NamedTuple):
    """A task has failed: with the deaths of the workers that ran it, or with a reason."""

    number: int
    deaths: tuple[Death, ...]
    reason: str = ""


Action: TypeAlias = Run | Together | Spread | Forget | Fail


class _Worker:
    """A worker as the master knows it."""

    def __init__(self) -> None:
        self.tasks: dict[int, Task] = {}  # that it was given, in order
        self.has: set[Digest] = set()
        self.receives: Digest | None = None  # by a broadcast
        self.expected = 0.0  # seconds that its tasks take, and …
        self.ahead = 0  # … bytes of their arguments
        self.alone = False  # it runs a task beside which it has no other: one of several ranks, or after a death
        self.fills = True  # whether it gets tasks ahead: from when half are left until there is no room

    @property
    def idle(self) -> bool:
        return not self.tasks and self.receives is None


class Decisions:
    """The state of a pool. Each event is a method; `next` returns what is to be done after it."""

    def __init__(self, workers: Iterable[int], retries: int) -> None:
        self._workers = {worker: _Worker() for worker in workers}
        self._retries = retries
        self._waiting: deque[Task] = deque()  # with those that were cancelled
        self._open: set[int] = set()  # numbers of the tasks that wait
        self._sizes: dict[Digest, int] = {}  # of content
        self._seconds: dict[Digest, float] = {}  # that a task of this function takes, estimated upwards
        self._deaths: dict[int, list[Death]] = {}  # by task: lost attempts
        self._together: dict[int, set[int]] = {}  # by task of several ranks: workers that still run it
        self._broken: set[int] = set()  # tasks of several ranks of which one has died
        self._actions: list[Action] = []
        self._serial = 0

    @property
    def alive(self) -> tuple[int, ...]:
        """The workers that live."""
        return tuple(self._workers)

    @property
    def unfinished(self) -> int:
        """Number of tasks that wait or run."""
        return len(self._open) + len({number for each in self._workers.values() for number in each.tasks})

    def content(self, digest: Digest, size: int) -> None:
        """Tasks may refer to this content from now on."""
        self._sizes[digest] = size

    def drop(self, digest: Digest) -> None:
        """No task will refer to this content any more, unless it is given anew."""
        del self._sizes[digest]
        self._seconds.pop(digest, None)
        for number, worker in self._workers.items():
            if digest in worker.has:
                worker.has.remove(digest)
                self._actions.append(Forget(number, digest))

    def add(self, task: Task) -> None:
        """A task has come."""
        self._waiting.append(task)
        self._open.add(task.number)

    def cancel(self, number: int) -> bool:
        """Take a waiting task back; return whether it was waiting."""
        if number not in self._open:
            return False
        self._open.remove(number)
        self._deaths.pop(number, None)
        return True

    def recall(self) -> list[int]:
        """Take all waiting tasks back; return their numbers, in order."""
        numbers = [each.number for each in self._waiting if self.cancel(each.number)]
        self._waiting.clear()
        return numbers

    def received(self, worker: int, digest: Digest, *, well: bool = True) -> None:
        """A worker has taken part in a broadcast, and has the content; or not, as a member has died."""
        state = self._workers[worker]
        state.receives = None
        if not well:
            return
        if digest in self._sizes:
            state.has.add(digest)
        else:
            self._actions.append(Forget(worker, digest))

    def done(self, worker: int, number: int, seconds: float) -> bool:
        """A worker has ended its part of a task; return whether the task has ended: all its ranks have, and live."""
        state = self._workers[worker]
        task = state.tasks.pop(number)
        function = task.needs[0]
        state.expected = max(0.0, state.expected - self._estimate(task)) if state.tasks else 0.0
        state.ahead = state.ahead - task.size if state.tasks else 0
        if state.expected <= AHEAD / 2 and len(state.tasks) <= MOST_AHEAD / 2 and state.ahead <= BYTES_AHEAD / 2:
            state.fills = True
        if function in self._sizes:
            before = self._seconds.get(function, 0.0)
            self._seconds[function] = max(seconds, 0.8 * before + 0.2 * seconds)
        if not task.ranks:
            self._deaths.pop(number, None)
            return True
        return self._left(task, worker)

    def _left(self, task: Task, worker: int) -> bool:
        """A worker runs a task of several ranks no more; return whether it has ended well."""
        rest = self._together[task.number]
        rest.discard(worker)
        if rest:
            return False
        del self._together[task.number]
        if task.number in self._broken:
            self._broken.remove(task.number)
            self._again([task])
            return False
        return True  # `ended` or `lost` follows

    def ended(self, number: int) -> None:
        """A task of several ranks has ended on all, and its outcome counts."""
        self._deaths.pop(number, None)

    def lost(self, task: Task, death: Death) -> None:
        """A task of several ranks has ended on all, on some by the death of one that had ended its part before."""
        self._deaths.setdefault(task.number, []).append(death)
        self._again([task])

    def died(self, worker: int, host: str, cause: str) -> None:
        """A worker is gone."""
        state, death = self._workers.pop(worker), Death(worker, host, cause)
        again: list[Task] = []
        for task in state.tasks.values():
            if task.number not in self._broken:  # else it has lost this attempt already
                self._deaths.setdefault(task.number, []).append(death)
            if not task.ranks:
                again.append(task)
                continue
            self._broken.add(task.number)
            self._left(task, worker)
        self._again(again)

    def _again(self, tasks: Iterable[Task]) -> None:
        """Put tasks that a death has ended to the front of the queue, in their order, or let them fail."""
        again: list[Task] = []
        for task in tasks:
            if len(self._deaths[task.number]) > self._retries:
                self._actions.append(Fail(task.number, tuple(self._deaths.pop(task.number))))
            else:
                again.append(task)
        self._waiting.extendleft(reversed(again))
        self._open.update(task.number for task in again)

    def next(self) -> list[Action]:
        """Return what is to be done now, in this order."""
        given: dict[int, list[int]] = {}
        small: dict[int, list[Digest]] = {}
        while self._workers and self._waiting:
            task = self._waiting[0]
            if task.number in self._open:
                if not self._give(task, given, small):
                    break
                self._open.remove(task.number)
            self._waiting.popleft()
        for worker, numbers in given.items():
            self._actions.append(Run(worker, tuple(numbers), tuple(small.get(worker, ()))))
        actions, self._actions = self._actions, []
        return actions

    def _give(self, task: Task, given: dict[int, list[int]], small: dict[int, list[Digest]]) -> bool:
        """Give a task to workers, or let it fail; return False if it has to wait."""
        if task.ranks > len(self._workers):
            self._deaths.pop(task.number, None)
            words = f"it asks for {task.ranks} ranks, and the pool has {len(self._workers)} workers"
            self._actions.append(Fail(task.number, (), words))
            return True
        idle = [number for number, worker in self._workers.items() if worker.idle]
        if task.ranks and len(idle) < task.ranks:
            return False
        ready = [number for number in idle if not self._large(task, number)]
        if len(ready) < max(1, task.ranks) and idle:
            self._spread(task, [number for number in idle if number not in ready])
            ready = []
        if task.ranks:
            if len(ready) >= task.ranks:
                self._gather(task, tuple(ready[: task.ranks]))
            return bool(ready)
        worker = ready[0] if ready else self._with_room(task)
        if worker is None:
            return False
        lacking = self._put(task, worker)
        given.setdefault(worker, []).append(task.number)
        small.setdefault(worker, []).extend(lacking)
        return True

    def _put(self, task: Task, worker: int) -> list[Digest]:
        """Note that a worker gets a task; return the small content that it lacks."""
        state = self._workers[worker]
        lacking = [each for each in dict.fromkeys(task.needs) if each not in state.has]
        state.has.update(lacking)
        state.tasks[task.number] = task
        state.expected += self._estimate(task)
        state.ahead += task.size
        state.alone = bool(task.ranks) or task.number in self._deaths
        return lacking

    def _estimate(self, task: Task) -> float:
        return self._seconds.get(task.needs[0], AHEAD)

    def _large(self, task: Task, worker: int) -> list[Digest]:
        """Return the large content that a worker lacks for a task."""
        has = self._workers[worker].has
        return [each for each in task.needs if each not in has and self._sizes[each] > SMALL]

    def _gather(self, task: Task, workers: tuple[int, ...]) -> None:
        """Let workers run a task of several ranks."""
        content: dict[Digest, None] = {}
        for worker in workers:
            content |= dict.fromkeys(self._put(task, worker))
        self._together[task.number] = {*workers}
        self._serial += 1
        self._actions.append(Together(task.number, workers, self._serial, tuple(content)))

    def _spread(self, task: Task, lacking: list[int]) -> None:
        """Broadcast content of a task to all idle workers that lack it: that takes no longer than to one of them."""
        digest = self._large(task, lacking[0])[0]
        workers = tuple(each for each in lacking if digest in self._large(task, each))
        for worker in workers:
            self._workers[worker].receives = digest
        self._serial += 1
        self._actions.append(Spread(digest, workers, self._serial))

    def _with_room(self, task: Task) -> int | None:
        """Return the worker that may have a task ahead, and is expected to come to it first; None if there is none."""
        if not self._retries or task.number in self._deaths:
            return None
        seconds = self._estimate(task)
        for _, number in sorted((each.expected, number) for number, each in self._workers.items() if each.fills):
            worker = self._workers[number]
            if worker.alone or worker.receives is not None or self._large(task, number):
                continue
            most = len(worker.tasks) < MOST_AHEAD and worker.expected + seconds <= AHEAD
            if most and worker.ahead + task.size <= BYTES_AHEAD:
                return number
            worker.fills = False
        return None
