"""The caller's side of a pool: futures of its tasks, and the content that travels once."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any, Protocol

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
    Started,
    Stop,
    Submit,
    TaskFacts,
)
from ringcast.pool.packing import Content, Packer, function_content, load
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


class _Pending:
    """A task that has not ended."""

    def __init__(self, future: TaskFuture, content: Sequence[Digest], many: bool, ranks: int) -> None:
        self.future, self.content, self.many, self.ranks = future, content, many, ranks
        self.settled = False  # a thread gives the future its end


class Client:
    """Tasks of a pool that have not ended. It ends by itself: after `stop`, when none is left, or when broken."""

    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._pending: dict[int, _Pending] = {}
        self._packer, self._shelf = Packer(), Shelf()
        self.stopping = self._told = False  # no task is taken any more; the master has heard of it
        self.broken: PoolBroken | None = None
        self.workers = len(crew.hosts)  # that live
        self.ended = threading.Event()
        # The garbage collector may cancel a task in any thread, also in one that holds a lock of the pool.
        self._later: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        for target, name in (self._listen, "pool-results"), (self._do_later, "pool-cancels"):
            threading.Thread(target=target, name=name, daemon=True).start()

    def begin(self, initializer: Callable[[], Any] | None) -> None:
        """Have each worker call the initializer before its first task.

        Raises:
            TaskError: it cannot be pickled.
        """
        if initializer is None:
            return
        content = packed_function(initializer)
        self._crew.tell(Begin(content.digest), [content.data])

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
            for digest, data in needs.items():
                if self._shelf.use(digest, len(data)):
                    # The program may change an argument before it is sent.
                    self._crew.tell(Give(digest), [data if isinstance(data.obj, bytes) else bytes(data)])
            self._pending[number] = _Pending(future, tuple(needs), many, ranks)
            self._crew.tell(Submit(TaskFacts(number, fn.digest, packed.digests, ranks, many)), packed.frames)
        return future

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
        self._crew.tell(Cancel(number))
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
            for digest in self._shelf.release(task.content):
                self._crew.tell(Drop(digest))
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
        if self.stopping and not self._pending and not self._told:
            self._told = True
            self._crew.tell(Stop())

    def break_off(self, why: PoolBroken) -> None:
        """End all tasks and workers now."""
        with self._lock:
            self.broken = self.broken or why
            self.stopping = self._told = True
            tasks, self._pending = [*self._pending.values()], {}
            self.workers = 0
        with ExitStack() as ends:  # each of them, even if a callback of the program raises SystemExit
            ends.callback(self._crew.end)
            for task in reversed(tasks):
                ends.callback(self._settle, task, None, PoolBroken(why.cause, why.remote_traceback))

    def _listen(self) -> None:
        """Take the messages of the master, until it is gone; an error of this thread breaks the pool."""
        try:
            try:
                self._hear_all()
            except BaseException as error:  # as SystemExit of a callback of the program
                with suppress(BaseException):  # of another callback
                    self.break_off(PoolBroken(in_a_line(error), text_of(error)))
            self._crew.end(at_once=False)
        finally:
            self.workers = 0
            self._later.put(None)
            self.ended.set()

    def _hear_all(self) -> None:
        for message, frames in self._crew.said():
            match message:
                case Started(numbers):
                    self._start(numbers)
                case Ended(number, outcomes):
                    self._take(number, outcomes, frames)
                case Failed(number, death, attempts, reason):
                    error = WorkerDied(*death, attempts) if death else UsageError(f"a task cannot run: {reason}")
                    self._end(number, None, error)
                case Lost(_, alive):
                    self.workers = alive
                case Broken(cause, traceback):
                    self.break_off(PoolBroken(cause, traceback))
            del message, frames
        if not self._told:
            verdict = self._crew.verdict()
            self.break_off(PoolBroken(f"its job has ended: rank {verdict.rank}: {verdict.cause}"))

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
        ends = [self._loaded(each, [next(rest) for _ in range(each.frames)]) for each in outcomes]
        errors = [(each, error) for each, (_, error) in zip(outcomes, ends, strict=True) if error is not None]
        if task.many:
            self._end(number, ends[0], None)
        elif errors:
            self._end(number, None, min(errors, key=lambda one: one[0].follows)[1])
        elif task.ranks:
            self._end(number, [results[0] for results, _ in ends], None)
        else:
            self._end(number, ends[0][0][0], None)

    def _loaded(self, outcome: Outcome, frames: Frames) -> tuple[list[Any], BaseException | None]:
        """Return the results of a rank, and its exception."""
        place = outcome.rank, self._crew.hosts.get(outcome.rank, "")
        if outcome.part is not None:
            return [], TaskError(outcome.part.name, outcome.cause, *place, outcome.traceback)
        try:
            results, error = load(frames[0], frames[1:])
        except BaseException as problem:  # of the program's classes
            part = Part.result if outcome.ok else Part.exception
            return [], TaskError(part.name, in_a_line(problem), *place, outcome.traceback)
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


def packed_function(fn: Any) -> Content:
    """Return a function as content.

    Raises:
        TaskError: it cannot be pickled.
    """
    try:
        return function_content(fn)
    except Exception as error:  # of the program's classes
        raise TaskError("function", in_a_line(error)) from error


def failed(error: BaseException, cause: BaseException | None = None) -> Future[Any]:
    """Return a future of a task that has failed before it began."""
    future: Future[Any] = Future()
    if cause is not None:
        error.__cause__ = cause
    future.set_exception(error)
    return future
