"""`ringcast.Pool`: an executor of concurrent.futures whose workers are ranks, on this host or on many."""

from __future__ import annotations

import atexit
import os
import sys
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, as_completed
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, Self

from ringcast._util.safe_text import safe_text
from ringcast.bootstrap.cluster.cluster import number_of_ranks, parsed_hosts
from ringcast.communicator import Communicator
from ringcast.config.worker import allocated_tasks
from ringcast.errors import UsageError
from ringcast.net.hostlist import Host
from ringcast.pool.client import Client, Crew, failed, packed_function
from ringcast.pool.errors import PoolBroken, TaskError
from ringcast.pool.worker import is_worker, serve
from ringcast.procs.portable import processors

if TYPE_CHECKING:
    from ringcast.pool.job import Job

GRACE = 5.0  # seconds in which workers must have ended after an interrupt; those of Pool(comm) may run on
CHUNKS = 4  # of the items of a map, for each worker
_clients: weakref.WeakSet[Client] = weakref.WeakSet()


class Pool(Executor):
    """Workers that run tasks, one after the other: processes on this machine, on other hosts, or ranks of a job.

    An executor as of concurrent.futures. A function travels to the workers once, with all that it refers to, in one
    broadcast, as long as it stays the same; so do arrays of 256 kB and more among arguments that come again. The
    workers of a host share one copy of such arrays, which are read-only there.

    A task whose worker has died runs again on another worker, `retries` times; then its future has `WorkerDied`. The
    pool goes on with the workers that live.

    With a communicator all its ranks make the pool. Rank 0 uses it, and the others run tasks until it is shut down:

        with ringcast.Pool(comm) as pool:
            if comm.rank == 0:
                print(sum(pool.map(abs, range(-5, 5))))

    Cost: Pool(n) starts n+1 interpreters. A single `submit` and its result take about a millisecond on one host.

    Args:
        workers: their number, on this machine; or a communicator of two ranks or more; None: one for each processor
            that this process may use, or in an allocation of Slurm one for each of its tasks, on all of its nodes.
        hosts: where the workers run, instead: "h0:2,h1:2" or a list of such texts, as for `ringcast-launch -H`. Other
            hosts than this one are reached by ssh without a password, or by srun if they are nodes of this allocation,
            and have program and environment at the same paths.
        initializer: is called on each worker before its first task.
        initargs: its arguments.
        retries: how often a task runs again whose worker has died, from 0. A task that has effects beside its result
            may then have them twice.

    Raises:
        RunFailed: the workers did not start; names one of them, and its host.
        ValueError: workers, hosts or retries make no sense.
        TypeError: `workers` is no integer, or `initializer` no function.
        TaskError: the initializer cannot be pickled.
        UsageError: a task of a pool makes a pool; or the communicator has one rank.

    >>> with ringcast.Pool(2) as pool:
    ...     list(pool.map(pow, [2, 3], [5, 2]))
    [32, 9]
    """

    def __init__(
        self,
        workers: int | Communicator | None = None,
        *,
        hosts: str | Sequence[str] | None = None,
        initializer: Callable[..., Any] | None = None,
        initargs: Iterable[Any] = (),
        retries: int = 1,
    ) -> None:
        if initializer is not None and not callable(initializer):
            raise TypeError(f"initializer={safe_text(initializer)}: expected a function")
        if not isinstance(retries, int) or retries < 0:
            raise ValueError(f"retries={safe_text(retries)}: expected a number from 0")
        if is_worker():
            raise UsageError("a task of a pool makes a pool; let it ask for ranks instead: pool.submit_ranks(k, fn, …)")
        self._pid = os.getpid()
        self._worker: Communicator | None = None  # of a rank that is a worker of Pool(comm)
        made = _crew(workers, hosts, retries)
        if isinstance(made, Communicator):
            self._worker = made
            return
        try:
            self._client = Client(made)
            self._client.begin(partial(initializer, *initargs) if initializer is not None else None)
        except BaseException:
            made.end()
            raise
        self._size, self._retries = self._client.workers, retries
        self._resizable = not isinstance(workers, Communicator)
        _clients.add(self._client)
        self._finalizer = weakref.finalize(self, _let_go, self._client, self._pid)
        self._finalizer.atexit = False  # `_at_exit` waits for the tasks

    def __repr__(self) -> str:
        if self._worker is not None:
            return f"<Pool: rank {self._worker.rank} is a worker>"
        client = self._client
        state = "ended" if client.ended.is_set() else "broken" if client.broken else f"{client.workers} alive"
        return f"<Pool: {'1 worker' if self._size == 1 else f'{self._size} workers'}, {state}>"

    @property
    def size(self) -> int:
        """Number of workers that live.

        >>> with ringcast.Pool(2) as pool:
        ...     pool.size
        2
        """
        return self._usable().workers

    @property
    def usable(self) -> bool:
        """Whether this process may submit tasks.

        >>> pool = ringcast.Pool(1)
        >>> pool.shutdown()
        >>> pool.usable
        False
        """
        if self._worker is not None or os.getpid() != self._pid:
            return False
        return not self._client.stopping

    def _usable(self) -> Client:
        if self._worker is not None:
            form = "with ringcast.Pool(comm) as pool: if pool is not None: …"
            raise UsageError(f"rank {self._worker.rank} is a worker of this pool, which rank 0 uses: {form}")
        if os.getpid() != self._pid:
            raise UsageError(f"the pool belongs to process {self._pid}, and this one is a copy; make another one")
        return self._client

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run `fn(*args, **kwargs)` on a worker.

        Args:
            fn: any function that cloudpickle can pickle, also a lambda or one defined in a notebook.
            args: its arguments.
            kwargs: more arguments.

        Returns:
            A Future of the result. It has the function's exception, whose `__cause__` is the traceback on the worker;
            or `WorkerDied`, `TaskError` or `PoolBroken`.

        Raises:
            UsageError: the pool was shut down, or made before a fork.
            PoolBroken: it runs no tasks any more.

        >>> with ringcast.Pool(2) as pool:
        ...     pool.submit(pow, 2, 5).result()
        32
        """
        return self._submit(fn, args, kwargs, 0)

    def submit_ranks(self, ranks: int, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[list[Any]]:
        """Run `fn(comm, *args, **kwargs)` on several workers at the same time, with a communicator of them.

        The task waits until so many workers are idle, and later tasks behind it.

        Args:
            ranks: how many workers, from 1.
            fn: as of `submit`.
            args: its arguments behind the communicator.
            kwargs: more arguments.

        Returns:
            A Future of the list of results, by rank; of errors as `submit`. The exception of one rank ends the waits of
            the others for it.

        Raises:
            UsageError, PoolBroken: see `submit`.
            ValueError: `ranks` is no number from 1.

        >>> with ringcast.Pool(2) as pool:
        ...     pool.submit_ranks(2, lambda comm: comm.allreduce(comm.rank)).result()
        [1, 1]
        """
        if not isinstance(ranks, int) or ranks < 1:
            raise ValueError(f"ranks={safe_text(ranks)}: expected a number of workers, from 1")
        return self._submit(fn, args, kwargs, ranks)

    def _submit(self, fn: Callable[..., Any], args: Any, kwargs: Any, ranks: int) -> Future[Any]:
        if not callable(fn):
            raise TypeError(f"fn={safe_text(fn)}: expected a function")
        client = self._usable()
        try:
            content = packed_function(fn)
        except TaskError as error:
            return failed(error)
        return client.submit(content, (args, kwargs), ranks)

    def map(
        self,
        fn: Callable[..., Any],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int | None = None,
    ) -> Iterator[Any]:
        """Return the results of `fn(*items)`, in order, for the items that the iterables have side by side.

        Args:
            fn: as of `submit`.
            iterables: are read to the end of the shortest one at once.
            timeout: seconds from this call in which each result has to come; None: no limit.
            chunksize: how many items make a task; None: so many that each worker gets a few tasks.

        Returns:
            An iterator. It raises the exception of the first item whose call raised, or TimeoutError.

        Raises:
            ValueError: chunksize is below 1.
            UsageError, PoolBroken: see `submit`.

        >>> with ringcast.Pool(2) as pool:
        ...     list(pool.map(divmod, [7, 8], [2, 3]))
        [(3, 1), (2, 2)]
        """
        return self._ordered(fn, [*zip(*iterables, strict=False)], timeout, chunksize)

    def starmap(
        self,
        fn: Callable[..., Any],
        iterable: Iterable[Iterable[Any]],
        timeout: float | None = None,
        chunksize: int | None = None,
    ) -> Iterator[Any]:
        """Return the results of `fn(*args)`, in order, for each tuple of arguments; see `map`.

        >>> with ringcast.Pool(2) as pool:
        ...     list(pool.starmap(pow, [(2, 5), (3, 2)]))
        [32, 9]
        """
        return self._ordered(fn, [tuple(args) for args in iterable], timeout, chunksize)

    def imap_unordered(
        self,
        fn: Callable[[Any], Any],
        iterable: Iterable[Any],
        timeout: float | None = None,
        chunksize: int | None = None,
    ) -> Iterator[Any]:
        """Return the results of `fn(item)` as they come, all results of a task together; see `map`.

        >>> with ringcast.Pool(2) as pool:
        ...     sorted(pool.imap_unordered(abs, [-2, -1]))
        [1, 2]
        """
        until = _end_of(timeout)
        futures = self._chunks(fn, [(item,) for item in iterable], chunksize)

        def results() -> Iterator[Any]:
            try:
                for future in as_completed(futures, _left(until)):
                    yield from _items(future.result())
            finally:
                for future in futures:
                    future.cancel()

        return results()

    def _ordered(
        self, fn: Callable[..., Any], items: list[tuple[Any, ...]], timeout: float | None, chunksize: int | None
    ) -> Iterator[Any]:
        until = _end_of(timeout)
        futures = self._chunks(fn, items, chunksize)
        futures.reverse()

        def results() -> Iterator[Any]:
            try:
                while futures:
                    yield from _items(futures.pop().result(_left(until)))  # which is not kept
            finally:
                for future in futures:
                    future.cancel()

        return results()

    def _chunks(self, fn: Callable[..., Any], items: list[tuple[Any, ...]], chunksize: int | None) -> list[Future[Any]]:
        """Return the futures of tasks that call fn for chunks of the items."""
        if not callable(fn):
            raise TypeError(f"fn={safe_text(fn)}: expected a function")
        client = self._usable()
        if chunksize is None:
            chunksize = max(1, -(-len(items) // (CHUNKS * max(1, client.workers))))
        elif chunksize < 1:
            raise ValueError(f"chunksize={safe_text(chunksize)}: expected 1 or more")
        try:
            content = packed_function(fn)
        except TaskError as error:
            return [failed(error)]
        starts = range(0, len(items), chunksize)
        return [client.submit(content, items[at : at + chunksize], 0, many=True) for at in starts]

    def resize(self, workers: int | None = None, *, hosts: str | Sequence[str] | None = None) -> None:
        """Run all tasks that have not begun, and all later ones, on other workers: on more, on fewer, or elsewhere.

        The workers of before end when their tasks have ended; their memory is not taken over. New ones call the
        initializer, and get functions and arrays anew when tasks need them. A call waits until they are there.

        Cost: that of `Pool(workers, hosts=hosts)`.

        Args:
            workers: as of `Pool`, but no communicator.
            hosts: as of `Pool`.

        Raises:
            RunFailed: the new workers did not start; the pool is as before.
            UsageError: the pool was shut down, or is one of a communicator, whose ranks are its workers.
            PoolBroken: it runs no tasks any more.

        >>> with ringcast.Pool(1) as pool:
        ...     pool.resize(2)
        ...     pool.size
        2
        """
        client = self._usable()
        if not self._resizable:
            raise UsageError("the workers of Pool(comm) are the ranks of its job, which has no others")
        made = _job(workers, hosts, self._retries)
        try:
            client.replace(made)
        except BaseException:
            made.end()
            raise
        self._size = len(made.hosts)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no tasks any more; the workers end when no task is left. Idempotent.

        Args:
            wait: return when they have ended.
            cancel_futures: cancel the tasks that have not begun.

        >>> pool = ringcast.Pool(1)
        >>> pool.shutdown()
        >>> pool
        <Pool: 1 worker, ended>
        """
        if self._worker is not None:
            return
        client = self._usable()
        client.stop(cancel=cancel_futures)
        if wait:
            client.ended.wait()

    def terminate(self) -> None:
        """End all tasks and workers now; tasks that had not ended get `PoolBroken`. Idempotent.

        Workers of `Pool(comm)` end when the task ends that they run.

        >>> pool = ringcast.Pool(1)
        >>> pool.terminate()
        >>> pool
        <Pool: 1 worker, ended>
        """
        client = self._usable()
        if not client.ended.is_set():
            client.break_off(PoolBroken("it was terminated"))
            client.ended.wait(GRACE)

    def __enter__(self) -> Self:
        if self._worker is not None:
            serve(self._worker)
            return None  # type: ignore[return-value]  # as of mpi4py's MPICommExecutor: the block has an `if`
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._worker is None and error is not None and not isinstance(error, Exception):  # an interrupt
            self.terminate()
            return
        try:
            self.shutdown()
        except BaseException:  # an interrupt as it waits
            self.terminate()
            raise

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Pool cannot be pickled: a function that it runs must not refer to it")


def _crew(workers: Any, hosts: Any, retries: int) -> Crew | Communicator:
    """Return master and workers; on a rank that is a worker of `Pool(comm)` its communicator."""
    if isinstance(workers, Communicator):
        if hosts is not None:
            raise ValueError("expected either a communicator or hosts")
        return _of_communicator(workers, retries)
    return _job(workers, hosts, retries)


def _job(workers: Any, hosts: Any, retries: int) -> Job:
    """Return master and workers of a job of their own."""
    from ringcast.pool.job import Job, with_master

    if workers is not None and hosts is not None:
        raise ValueError("expected either the number of workers on this machine, or hosts")
    if hosts is not None:
        placed = parsed_hosts(hosts)
    elif workers is None and (nodes := allocated_tasks()):
        placed = [Host(name, tasks) for name, tasks in nodes.items()]
    else:
        placed = [Host("", number_of_ranks(processors() if workers is None else workers))]
    return Job(with_master(placed), retries)


def _of_communicator(comm: Communicator, retries: int) -> Crew | Communicator:
    from ringcast.pool.within import Within

    if comm.size < 2:
        raise UsageError("a pool needs a communicator of two ranks or more: rank 0 runs no tasks")
    own = comm.dup()
    own.timeout = None  # no wait for tasks is too long
    names = own.allgather(os.uname().nodename)
    return Within(own, names, retries) if own.rank == 0 else own


def _end_of(timeout: float | None) -> float | None:
    return None if timeout is None else time.monotonic() + timeout


def _left(until: float | None) -> float | None:
    return None if until is None else until - time.monotonic()


def _items(outcome: tuple[list[Any], BaseException | None]) -> Iterator[Any]:
    """Yield the results of a chunk, and raise its exception."""
    results, error = outcome
    results.reverse()
    while results:
        yield results.pop()  # which is not kept
    if error is not None:
        try:
            raise error
        finally:
            del error  # whose traceback refers to this frame


def _let_go(client: Client, pid: int) -> None:
    """End a pool to which nothing refers any more, when its tasks have ended."""
    if os.getpid() == pid:
        client.let_go()


def _at_exit() -> None:
    """Wait for the tasks of all pools, as executors do; after an interrupt end them."""
    for client in [*_clients]:
        interrupted = issubclass(getattr(sys, "last_type", None) or Exception, KeyboardInterrupt)
        try:
            if interrupted:
                client.break_off(PoolBroken("its program was interrupted"))
            client.stop()
            client.ended.wait()
        except BaseException:
            client.break_off(PoolBroken("its program was interrupted"))
            raise


def _in_child() -> None:
    _clients.clear()


os.register_at_fork(after_in_child=_in_child)
atexit.register(_at_exit)
