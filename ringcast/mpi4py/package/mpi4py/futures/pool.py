"""Executors whose functions are run by other ranks.

A pool is a communicator: its root has the executors, the other ranks serve. An executor has as many threads as ranks
may work for it at a time. A thread takes a task, waits until a rank is free, sends it the task, and waits for the
result. So several executors can share a pool, and nothing polls.
"""

from __future__ import annotations

import os
import pickle
import runpy
import sys
import threading
import time
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, as_completed
from contextlib import contextmanager, suppress
from itertools import islice
from queue import Empty, SimpleQueue
from typing import Any, Self

from mpi4py import MPI
from ringcast.wire.error_text import in_a_line, text_of

_Task = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]
_Outcome = tuple[Any, BaseException | None]
_Work = tuple[Future[Any], _Task] | None  # None: there is no more
_WORKER = "__worker__"  # the name that the program's main module has on the ranks that serve
_shared: _Pool | None = None
_serves_shared = False  # this rank serves rank 0's pool; its own pool, for executors of tasks, has no other ranks
_local = threading.local()  # its `workers`: the communicator of the ranks that serve, in a thread that runs tasks


class _Pool:
    """The ranks of a communicator that serve its root; the root itself if there are no others."""

    def __init__(self, comm: Any, *, same_program: bool) -> None:
        comm.Split(MPI.UNDEFINED)  # while the serving ranks split off their communicator
        self.comm = comm
        self.same_program = same_program  # the others run the root's program, up to here
        self.others = [rank for rank in range(comm.size) if rank != comm.rank]
        self.free: SimpleQueue[int] = SimpleQueue()
        for worker in self.others:
            self.free.put(worker)
        self.executors: list[MPIPoolExecutor] = []

    @contextmanager
    def worker(self) -> Iterator[int | None]:
        """Wait for a free rank. Without others there is no wait, as a task of one executor may wait for another."""
        if not self.others:
            yield None
            return
        rank = self.free.get()
        try:
            yield rank
        finally:
            self.free.put(rank)

    def call(self, rank: int | None, task: _Task) -> _Outcome:
        """Let a rank run a task; return its result and its error."""
        if rank is None:
            _local.workers = MPI.COMM_SELF
            return _outcome(task)
        self.comm.send(pickle.dumps(task), dest=rank)
        outcome: _Outcome = pickle.loads(self.comm.recv(source=rank))
        return outcome

    def in_job(self, rank: int | None) -> int:
        """Return the number in COMM_WORLD of a rank of the pool, of this rank for None."""
        here = self.comm.rank if rank is None else rank
        in_world: int = self.comm.group.Translate_ranks([here], MPI.COMM_WORLD.group)[0]
        return in_world

    def end(self) -> None:
        """Wait for all executors, and let the other ranks go on."""
        for executor in self.executors:
            executor.shutdown()
        for rank in self.others:
            self.comm.send(None, dest=rank)


class MPIPoolExecutor(Executor):
    """Runs functions on the other ranks of a program that was started with `-m mpi4py.futures`.

    Args:
        max_workers: at most so many ranks at a time; None: all.
        initializer: called with `initargs` on each rank before its first task.
        initargs: see `initializer`.
        options: `main` (False: the other ranks do not load the program's file), `path` (added to their `sys.path`),
            `wdir`, `env` and `globals` (of the program's module). Others that mpi4py has are about starting
            processes, and have no effect.

    Raises:
        NotImplementedError: the program was started in another way; ranks cannot be added.
    """

    def __init__(
        self,
        max_workers: int | None = None,
        initializer: Callable[..., Any] | None = None,
        initargs: Iterable[Any] = (),
        **options: Any,
    ) -> None:
        pool = options.pop("_pool", _shared)
        if pool is None:
            instead = "start the program with -m mpi4py.futures, or use MPICommExecutor"
            raise NotImplementedError(f"MPIPoolExecutor: ranks cannot be added to a job; {instead}")
        if max_workers is not None and max_workers <= 0:
            raise ValueError("max_workers must be greater than 0")
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be callable")
        self._pool: _Pool = pool
        self._tasks: SimpleQueue[_Work] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._number = min(max_workers or MPI.COMM_WORLD.size, len(pool.others) or 1)
        if not pool.same_program:  # else ranks return objects of classes in `__main__`, as they are here
            sys.modules[_WORKER] = sys.modules["__main__"]
        self._first: dict[str, _Task] = {"loading the program": (_prepare, (_described(pool, options),), {})}
        if initializer is not None:  # a task of its own, as it can be read only when the program is loaded
            self._first["the initializer"] = (_initialize, (initializer, *initargs), {})
        self._ready: set[int | None] = set()  # ranks that can run tasks of this executor
        self._closed, self._broken = False, ""
        self._cause: BaseException | None = None  # of `_broken`
        pool.executors.append(self)

    @property
    def num_workers(self) -> int:
        """How many ranks work for this executor."""
        return 0 if self._closed else self._number

    def bootup(self, wait: bool = True) -> Self:
        """Start the work; `wait` until a rank has come to it."""
        future = self.submit(int)
        if wait:
            future.result()
        return self

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Let a rank call `fn`; return the future of its result."""
        future: Future[Any] = Future()
        with self._lock:
            if self._broken:
                raise self._failure()
            if self._closed:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._tasks.put((future, (fn, args, kwargs)))
            if len(self._threads) < self._number:
                self._threads.append(threading.Thread(target=self._employ, daemon=True))
                self._threads[-1].start()
        return future

    def map(
        self,
        fn: Callable[..., Any],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        unordered: bool = False,
        **_: Any,
    ) -> Iterator[Any]:
        """Return an iterator over `fn` of the items; `unordered`: in the order in which they are done."""
        return self.starmap(fn, zip(*iterables, strict=False), timeout, chunksize, unordered)

    def starmap(
        self,
        fn: Callable[..., Any],
        iterable: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        unordered: bool = False,
        **_: Any,
    ) -> Iterator[Any]:
        """Return an iterator over `fn` of the arguments in `iterable`."""
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        end = None if timeout is None else time.monotonic() + timeout
        items = iter(iterable)
        chunks = iter(lambda: list(islice(items, chunksize)), [])
        futures = [self.submit(_call_each, fn, chunk) for chunk in chunks]
        return _results(futures, as_completed(futures, timeout) if unordered else futures, end)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more tasks; `wait` until all submitted tasks are done."""
        with self._lock:
            if cancel_futures:
                self._drop()
            if not self._closed:
                self._closed = True
                for _ in self._threads:
                    self._tasks.put(None)
        if wait:
            for thread in self._threads:
                thread.join()

    def _employ(self) -> None:
        """Give tasks to free ranks, until there are no more tasks."""
        while (work := self._tasks.get()) is not None:
            future, task = work
            with self._pool.worker() as rank:
                if future.set_running_or_notify_cancel():
                    self._run(rank, future, task)

    def _run(self, rank: int | None, future: Future[Any], task: _Task) -> None:
        try:
            result, error = None, self._prepared(rank)
            if error is None:
                result, error = self._pool.call(rank, task)
        except BaseException as refused:  # it cannot be pickled, or the rank has failed
            error = refused
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    def _prepared(self, rank: int | None) -> BaseException | None:
        """Prepare a rank for this executor, once; return the error of an executor that cannot run tasks."""
        if rank not in self._ready and not self._broken:
            for what, task in self._first.items():
                try:
                    _, error = self._pool.call(rank, task)
                except BaseException as refused:  # the task cannot be pickled, or the rank has failed
                    error = refused
                if error is not None:
                    self._break(f"{what} failed on rank {self._pool.in_job(rank)}: {in_a_line(error)}", error)
                    break
            else:
                self._ready.add(rank)
        return self._failure() if self._broken else None

    def _break(self, text: str, cause: BaseException) -> None:
        """Take no more tasks, as ranks cannot run them; the first cause counts."""
        with self._lock:
            if not self._broken:
                self._broken, self._cause = text, cause
            self._drop()

    def _failure(self) -> BrokenExecutor:
        failure = BrokenExecutor(self._broken)
        failure.__cause__ = self._cause
        return failure

    def _drop(self) -> None:
        """Cancel all tasks that have not begun; in a broken executor they fail."""
        left: list[_Work] = []
        with suppress(Empty):  # threads take tasks at the same time
            while True:
                left.append(self._tasks.get_nowait())
        for work in left:
            if work is None:
                self._tasks.put(None)  # for the thread that ends by it
            elif not self._broken:
                work[0].cancel()
            elif work[0].set_running_or_notify_cancel():
                work[0].set_exception(self._failure())


class MPICommExecutor:
    """In a `with` statement of all ranks of a communicator: an executor at its root; the others serve, and get None.

    `comm` is COMM_WORLD unless it is given; see MPIPoolExecutor for the options. In a program that was started with
    `-m mpi4py.futures` it is an MPIPoolExecutor, as only rank 0 runs the program.
    """

    def __init__(self, comm: Any = None, root: int = 0, **options: Any) -> None:
        self._comm = MPI.COMM_WORLD if comm is None else comm
        if self._comm.Is_inter():
            raise NotImplementedError("MPICommExecutor: of an intracommunicator only")
        if not 0 <= root < self._comm.size:
            raise ValueError("expecting a valid root")
        self._root, self._options = root, options
        self._executor: MPIPoolExecutor | None = None

    def __enter__(self) -> MPIPoolExecutor | None:
        if _serves_shared:  # it loads the program, or runs a task
            return None
        if _shared is not None:
            self._executor = MPIPoolExecutor(**self._options)
            return self._executor
        comm = self._comm.Dup()
        if comm.rank == self._root:
            self._executor = MPIPoolExecutor(_pool=_Pool(comm, same_program=True), **self._options)
        else:
            _serve(comm, self._root)
        return self._executor

    def __exit__(self, *_: object) -> None:
        executor, self._executor = self._executor, None
        if executor is not None and executor._pool is _shared:
            executor.shutdown()
        elif executor is not None:
            executor._pool.end()


def get_comm_workers() -> Any:
    """Return, in a task, the communicator of all ranks that run tasks."""
    workers = getattr(_local, "workers", None)
    if workers is None:
        raise RuntimeError("communicator is not accessible")
    return workers


def share_pool(comm: Any, run: Callable[[], object]) -> None:
    """Let all ranks but the first serve the executors of the function that the first one runs."""
    global _shared, _serves_shared
    if comm.rank != 0:
        _serves_shared, _shared = True, _Pool(MPI.COMM_SELF, same_program=True)
        _serve(comm, 0)
        _shared.end()
        return
    _shared = _Pool(comm, same_program=False)
    try:
        run()
    except SystemExit as error:
        if error.code:
            raise
        _shared.end()
        raise
    _shared.end()


def _serve(comm: Any, root: int) -> None:
    """Run the tasks that the root sends."""
    _local.workers = comm.Split(0)
    while (packed := comm.recv(source=root)) is not None:
        comm.send(_answer(packed), dest=root)
    _local.workers = None


def _answer(packed: bytes) -> bytes:
    """Run a task; return its pickled outcome, which the root can read."""
    try:
        result, failure = _outcome(pickle.loads(packed))
        if failure is None:
            return pickle.dumps((result, None))
    except BaseException as error:  # methods of the program's objects raise anything
        failure = _noted(error)
    try:
        answer = pickle.dumps((None, failure))
        pickle.loads(answer)  # of errors with an __init__ of their own that may fail
    except BaseException as error:  # pickling runs methods of the error's class
        instead = _noted(TypeError(f"{in_a_line(failure)} (this error cannot be pickled: {in_a_line(error)})"))
        answer = pickle.dumps((None, instead))
    return answer


def _outcome(task: _Task) -> _Outcome:
    """Run a task."""
    function, args, kwargs = task
    try:
        return function(*args, **kwargs), None
    except BaseException as error:  # of the program's function: the task's future has it
        return None, _noted(error)


def _noted(error: BaseException) -> BaseException:
    """Return an error with its traceback as a note, as the traceback itself does not travel."""
    text = text_of(error, whole=True).rstrip()
    with suppress(BaseException):  # the error's class may have attributes of its own
        error.add_note(f"on rank {MPI.COMM_WORLD.rank}:\n{text}")
    return error


def _initialize(initializer: Callable[..., Any], *args: Any) -> None:
    """Call an initializer; its result is dropped, and need not be fit for a pickle."""
    initializer(*args)


def _results(futures: list[Future[Any]], done: Iterable[Future[Any]], end: float | None) -> Iterator[Any]:
    """Yield the results of futures, until some time; futures that the program does not wait for are cancelled."""
    try:
        for future in done:
            yield from future.result(None if end is None else end - time.monotonic())
    finally:
        for future in futures:
            future.cancel()


def _call_each(function: Callable[..., Any], arguments: Sequence[Iterable[Any]]) -> list[Any]:
    return [function(*each) for each in arguments]


def _described(pool: _Pool, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with which other ranks run the functions of this program."""
    main = sys.modules["__main__"]
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    wanted = options.get("main", True) and pool.others and not pool.same_program
    return {
        "module": spec.name if wanted and spec is not None else None,
        "file": os.path.abspath(file) if wanted and spec is None and file is not None else None,
        "path": [*(options.get("path") or ()), *([] if pool.same_program else sys.path)],
        "wdir": options.get("wdir"),
        "env": dict(options.get("env") or {}),
        "globals": dict(options.get("globals") or {}),
    }


def _prepare(described: dict[str, Any]) -> None:
    """Make this rank one that can run the program's functions."""
    if described["wdir"] is not None:
        os.chdir(described["wdir"])
    os.environ.update(described["env"])
    sys.path[:0] = [entry for entry in described["path"] if entry not in sys.path]
    _load_main(described["module"], described["file"])
    vars(sys.modules["__main__"]).update(described["globals"])


def _load_main(module: str | None, file: str | None) -> None:
    """Run the program's file or module as `__worker__`, once, so that its functions are found in `__main__`."""
    main = types.ModuleType(_WORKER)
    if sys.modules["__main__"].__name__ == main.__name__ or not (module or file):
        return
    sys.modules[main.__name__] = sys.modules["__main__"] = main
    if module:
        main.__dict__.update(runpy.run_module(module, run_name=main.__name__))
    elif file:
        main.__dict__.update(runpy.run_path(file, run_name=main.__name__))
