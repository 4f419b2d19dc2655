"""The caller's side of a pool: futures of its tasks, and the content that travels once."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any, NoReturn, Protocol

from ringcast.errors import RingcastError, RunFailed, UsageError
from ringcast.pool.decide import Digest
from ringcast.pool.errors import PoolBroken, TaskError, WorkerDied, WorkerTraceback
from ringcast.pool.messages import (
    Begin,
    Broken,
    Cancel,
    Drop,
    Ended,
    Failed,
    Frames,
    Give,
    Lost,
    Outcome,
    Part,
    Recall,
    Recalled,
    Started,
    Stop,
    Submit,
    TaskFacts,
)
from ringcast.pool.packing import Content, Packer, function_content, load, unmade
from ringcast.pool.shelf import Shelf
from ringcast.wire.error_text import in_a_line, text_of


class Crew(Protocol):
    """Master and workers of a pool, wherever they are."""

    hosts: dict[int, str]  # by worker

    def tell(self, message: Any, frames: Frames = ()) -> None:
        """Send a message to the master."""

    def said(self) -> Iterator[tuple[Any, Frames]]:
        """Return the messages of the master, as they come, until it is gone."""

    def verdict(self) -> RunFailed:
        """Return why the master is gone."""

    def end(self, *, at_once: bool = True) -> None:
        """End all workers, or wait for their end after Stop; idempotent."""


class TaskFuture(Future[Any]):
    """The future of a task, which the pool forgets when it is cancelled."""

    def __init__(self, cancelled: Callable[[], None]) -> None:
        super().__init__()
        self._when_cancelled = cancelled
        self._waits = threading.Lock()  # held for good by the thread that ends the wait: it starts, or is cancelled

    def __reduce__(self) -> NoReturn:
        raise TypeError("a future cannot be pickled: pass its result")

    def cancel(self) -> bool:
        if not super().cancel():
            return False
        if self._waits.acquire(blocking=False):
            self._when_cancelled()
            self.set_running_or_notify_cancel()  # waiters hear of it now
        return True

    def start(self) -> None:
        """Note that the task runs, unless the program has cancelled it; idempotent."""
        if self._waits.acquire(blocking=False):
            self.set_running_or_notify_cancel()


class _Side:
    """A crew, the content that its master has, and the number of tasks that are with it."""

    def __init__(self, crew: Crew) -> None:
        self.crew, self.shelf, self.tasks = crew, Shelf(), 0
        self.told = False  # the master has heard that no task will come
        self.recalled = False  # it has given the tasks back that waited, and gets no others


class _Pending:
    """A task that has not ended."""

    def __init__(self, future: TaskFuture, side: _Side, content: Sequence[Digest], many: bool, ranks: int) -> None:
        self.future, self.side, self.content, self.many, self.ranks = future, side, content, many, ranks
        self.settled = False  # a thread gives the future its end


class Client:
    """Tasks of a pool that have not ended. It ends by itself: after `stop`, when none is left, or when broken."""

    def __init__(self, crew: Crew) -> None:
        self._side = _Side(crew)  # of the tasks that come
        self._sides = {self._side}  # with those before it, whose tasks run to their ends
        self._initializer: Content | None = None
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._pending: dict[int, _Pending] = {}
        self._packer = Packer()
        self.stopping = False  # no task is taken any more
        self.broken: PoolBroken | None = None
        self.workers = len(crew.hosts)  # that live
        self.ended = threading.Event()
        # The garbage collector may cancel a task in any thread, also in one that holds a lock of the pool.
        self._later: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        threading.Thread(target=self._do_later, name="pool-cancels", daemon=True).start()
        self._hear(self._side)

    def _hear(self, side: _Side) -> None:
        threading.Thread(target=self._listen, args=(side,), name="pool-results", daemon=True).start()

    def begin(self, initializer: Callable[[], Any] | None) -> None:
        """Have each worker call the initializer before its first task.

        Raises:
            TaskError: it cannot be pickled.
        """
        if initializer is None:
            return
        self._initializer = packed_function(initializer, "initializer")
        self._initialize(self._side)

    def _initialize(self, side: _Side) -> None:
        if self._initializer is not None:
            side.crew.tell(Begin(self._initializer.digest), [self._initializer.data])

    def replace(self, crew: Crew) -> None:
        """Let tasks that have not begun run on another crew; the one of before ends when its tasks have ended.

        Raises:
            UsageError: the pool is closed.
            PoolBroken: it is broken.
        """
        with self._lock:
            self._check()
            before, self._side = self._side, _Side(crew)
            self._sides.add(self._side)
            self.workers = len(crew.hosts)
            self._initialize(self._side)
            before.crew.tell(Recall())
            self._hear(self._side)

    def submit(self, fn: Content, args: Any, ranks: int, *, many: bool = False) -> Future[Any]:
        """Return the future of a task; `args` are (args, options) of one call, or a list of args of many calls.

        Raises:
            UsageError: the pool is closed.
            PoolBroken: it is broken.
        """
        try:
            packed = self._packer.pack(args)
        except Exception as error:  # of the program's classes
            return failed(TaskError("arguments", in_a_line(error)), error)
        with self._lock:
            self._check()
            number = next(self._numbers)
            future = TaskFuture(lambda: self._later.put(partial(self._cancel, number)))
            needs = {each.digest: each.data for each in (fn, *packed.content)}
            task = self._pending[number] = _Pending(future, self._side, tuple(needs), many, ranks)
            self._hand(TaskFacts(number, fn.digest, packed.digests, ranks, many), task, packed.frames, needs)
        return future

    def _hand(self, facts: TaskFacts, task: _Pending, frames: Frames, needs: Mapping[Digest, memoryview]) -> None:
        """Hand a task to the master that gets the tasks, with content that this one lacks; called with the lock."""
        task.side = self._side
        for digest, data in needs.items():
            if task.side.shelf.use(digest, len(data)):
                # The program may change an argument before it is sent.
                task.side.crew.tell(Give(digest), [data if isinstance(data.obj, bytes) else bytes(data)])
        task.side.tasks += 1
        task.side.crew.tell(Submit(facts), frames)

    def _take_off(self, task: _Pending) -> None:
        """Note that a master has a task no more; called with the lock."""
        for digest in task.side.shelf.release(task.content):
            task.side.crew.tell(Drop(digest))
        task.side.tasks -= 1

    def _check(self) -> None:
        if self.broken is not None:
            raise PoolBroken(self.broken.cause, self.broken.remote_traceback)
        if self.stopping:
            raise UsageError("the pool was shut down, and takes no tasks any more; make another one")

    def _do_later(self) -> None:
        """Do with the lock, one after the other, the things that wait for no lock."""
        while (thing := self._later.get()) is not None:
            with self._lock, suppress(RingcastError):  # of a job that ends: the listener hears of it
                thing()

    def _cancel(self, number: int) -> None:
        """Tell the master that a task was cancelled, and forget it; called with the lock."""
        if (task := self._pending.get(number)) is not None:
            task.side.crew.tell(Cancel(number))
            self._forget(number)

    def let_go(self) -> None:
        """Do as `stop`, soon, and wait for no lock: for finalizers."""
        self._later.put(self._stop)

    def _stop(self) -> None:
        self.stopping = True
        self._stop_if_done()

    def _forget(self, number: int) -> _Pending | None:
        """Note the end of a task, which a cancelled one may have had before; called with the lock."""
        task = self._pending.pop(number, None)
        if task is not None:
            self._take_off(task)
            self._stop_if_done()
        return task

    def stop(self, *, cancel: bool = False) -> None:
        """Take no tasks any more, and end when none is left."""
        with self._lock:
            tasks = [*self._pending.values()] if cancel else []
            self._stop()
        for task in tasks:
            task.future.cancel()

    def _stop_if_done(self) -> None:
        """Let the workers leave to which no task can come any more; called with the lock."""
        done = self.stopping and not self._pending
        for side in self._sides:
            if not (side.told or side.tasks) and (done or (side is not self._side and side.recalled)):
                side.told = True
                side.crew.tell(Stop())

    def break_off(self, why: PoolBroken) -> None:
        """End all tasks and workers now."""
        with self._lock:
            self.broken = self.broken or why
            self.stopping = True
            tasks, self._pending = [*self._pending.values()], {}
            sides = [*self._sides]
            for side in sides:
                side.told = True
            self.workers = 0
        with ExitStack() as ends:  # each of them, even if a callback of the program raises SystemExit
            for side in sides:
                ends.callback(side.crew.end)
            for task in reversed(tasks):
                ends.callback(self._settle, task, None, PoolBroken(why.cause, why.remote_traceback))

    def _break(self, side: _Side, why: PoolBroken) -> None:
        """End what a crew that has broken has begun; the pool with it, unless another crew has taken its place."""
        with self._lock:
            last = side is self._side
            side.told = True
            tasks = [] if last else [(number, one) for number, one in self._pending.items() if one.side is side]
        if last:
            self.break_off(why)
            return
        side.crew.end()
        for number, task in tasks:
            self._settle(task, None, PoolBroken(why.cause, why.remote_traceback))
            with self._lock:
                self._forget(number)

    def _listen(self, side: _Side) -> None:
        """Take the messages of a master, until it is gone; an error of this thread breaks the pool."""
        try:
            try:
                self._hear_all(side)
            except BaseException as error:  # as SystemExit of a callback of the program
                with suppress(BaseException):  # of another callback
                    self.break_off(PoolBroken(in_a_line(error), text_of(error)))
            side.crew.end(at_once=False)
        finally:
            with self._lock:
                self._sides.discard(side)
                last = not self._sides
            if last:
                self.workers = 0
                self._later.put(None)
                self.ended.set()

    def _hear_all(self, side: _Side) -> None:
        for message, frames in side.crew.said():
            match message:
                case Started(numbers):
                    self._start(numbers)
                case Ended(number, outcomes):
                    self._take(number, outcomes, frames)
                case Failed(number, death, attempts, reason):
                    error = WorkerDied(*death, attempts) if death else UsageError(f"a task cannot run: {reason}")
                    self._end(number, None, error)
                case Recalled():
                    self._move(side, message, frames)
                case Lost(_, alive) if side is self._side:
                    self.workers = alive
                case Broken(cause, traceback):
                    self._break(side, PoolBroken(cause, traceback))
            del message, frames
        if not side.told:
            verdict = side.crew.verdict()
            self._break(side, PoolBroken(f"its job has ended: rank {verdict.rank}: {verdict.cause}"))

    def _move(self, side: _Side, message: Recalled, frames: Frames) -> None:
        """Hand tasks that a master has given back to the one that gets the tasks now."""
        kept = len(message.content)
        content = {name: memoryview(each) for name, each in zip(message.content, frames[:kept], strict=True)}
        rest = iter(frames[kept:])
        with self._lock:
            for facts, count in zip(message.tasks, message.frames, strict=True):
                own = [next(rest) for _ in range(count)]
                if (task := self._pending.get(facts.number)) is not None:
                    self._take_off(task)
                    self._hand(facts, task, own, {digest: content[digest] for digest in task.content})
            side.recalled = True
            self._stop_if_done()

    def _start(self, numbers: Sequence[int]) -> None:
        with self._lock:
            for number in numbers:
                task = self._pending.get(number)
                if task is not None:
                    task.future.start()

    def _take(self, number: int, outcomes: Sequence[Outcome], frames: Frames) -> None:
        """Take the outcomes of a task's ranks."""
        task = self._pending.get(number)
        if task is None:
            return
        rest = iter(frames)
        hosts = task.side.crew.hosts
        ends = [self._loaded(each, [next(rest) for _ in range(each.frames)], hosts) for each in outcomes]
        errors = [(each, error) for each, (_, error) in zip(outcomes, ends, strict=True) if error is not None]
        if task.many:
            self._end(number, ends[0], None)
        elif errors:
            self._end(number, None, min(errors, key=lambda one: one[0].follows)[1])
        elif task.ranks:
            self._end(number, [results[0] for results, _ in ends], None)
        else:
            self._end(number, ends[0][0][0], None)

    def _loaded(
        self, outcome: Outcome, frames: Frames, hosts: Mapping[int, str]
    ) -> tuple[list[Any], BaseException | None]:
        """Return the results of a rank, and its exception."""
        place = outcome.rank, hosts.get(outcome.rank, "")
        if outcome.part is not None:
            return [], TaskError(outcome.part.name, outcome.cause, *place, outcome.traceback)
        try:
            results, error = load(frames[0], frames[1:])
        except BaseException as problem:  # of the program's classes
            if outcome.ok:
                return [], TaskError(Part.result.name, in_a_line(problem), *place)
            cause = f"{outcome.cause} ({unmade(problem)})"
            return [], TaskError(Part.exception.name, cause, *place, outcome.traceback)
        if error is not None:
            with suppress(Exception):  # of a class whose exceptions refuse attributes
                error.__cause__ = WorkerTraceback(outcome.traceback)
        return results, error

    def _end(self, number: int, result: Any, error: BaseException | None) -> None:
        with self._lock:
            task = self._pending.get(number)
        if task is None:
            return
        self._settle(task, result, error)  # its callbacks may submit others: the pool does not end before
        with self._lock:
            self._forget(number)

    def _settle(self, task: _Pending, result: Any, error: BaseException | None) -> None:
        """Give a future its end, unless another thread does, or the program has cancelled it."""
        with self._lock:
            if task.settled:
                return
            task.settled = True
            task.future.start()
        if task.future.cancelled():
            return
        if error is None:
            task.future.set_result(result)
        else:
            task.future.set_exception(error)


def packed_function(fn: Any, part: str = "function") -> Content:
    """Return a function as content; errors call it `part`.

    Raises:
        TaskError: it cannot be pickled.
    """
    try:
        return function_content(fn)
    except Exception as error:  # of the program's classes
        raise TaskError(part, in_a_line(error)) from error


def failed(error: BaseException, cause: BaseException | None = None) -> Future[Any]:
    """Return a future of a task that has failed before it began."""
    future: Future[Any] = Future()
    if cause is not None:
        error.__cause__ = cause
    future.set_exception(error)
    return future
