"""joblib's backend "ringcast": `import ringcast.joblib` registers it. joblib and scikit-learn then run over hosts."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import joblib
from joblib._parallel_backends import AutoBatchingMixin, FallbackToBackend, ParallelBackendBase, SequentialBackend

from ringcast.pool.pool import Pool
from ringcast.pool.worker import is_worker

__all__ = ["RingcastBackend"]

_kept: dict[int | str, Pool] = {}  # the pool of the last call, by n_jobs or hosts: the next call may take it
_users: Counter[Pool] = Counter()  # how many calls, in several threads, use a pool that is kept, or was
_lock = threading.Lock()


class RingcastBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]  # joblib has no types
    """Runs batches of joblib's calls in a `ringcast.Pool`, which lives on until a call asks for another one.

    Args:
        hosts: where the workers run, as of `ringcast.Pool`; without it n_jobs workers run on this machine.
        pool: a pool of the program, which is used as it is.
        nesting_level: joblib's.
        options: joblib's; `initializer` and `initargs` as of `ringcast.Pool`: a call then has workers of its own.

    >>> from joblib import Parallel, delayed, parallel_config
    >>> import ringcast.joblib
    >>> with parallel_config("ringcast", n_jobs=2):
    ...     Parallel()(delayed(abs)(x) for x in [-2, -1])
    [2, 1]
    """

    supports_retrieve_callback = True

    def __init__(
        self,
        hosts: str | Sequence[str] | None = None,
        pool: Pool | None = None,
        nesting_level: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(nesting_level=nesting_level, **options)
        self._hosts = hosts if hosts is None or isinstance(hosts, str) else ",".join(hosts)
        self._given = pool
        self._pool: Pool | None = None  # of the call that runs
        self._own: Pool | None = None  # with an initializer
        if pool is not None or hosts is not None:
            self.default_n_jobs = -1
        self._futures: set[Future[Any]] = set()

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """Return the number of workers for `n_jobs`; with hosts or a pool the number that these have."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if n_jobs in (None, 1) or is_worker():
            return 1
        if self._given is not None:
            return self._given.size
        if self._hosts is not None:
            from ringcast.bootstrap.cluster.cluster import parsed_hosts

            return sum(host.slots for host in parsed_hosts(self._hosts))
        assert n_jobs is not None
        return n_jobs if n_jobs > 0 else max(1, joblib.cpu_count() + 1 + n_jobs)

    def configure(
        self,
        n_jobs: int = 1,
        parallel: Any = None,
        initializer: Callable[..., Any] | None = None,
        initargs: Sequence[Any] = (),
        **_: Any,
    ) -> int:
        """Take a pool for a call of `Parallel`, or start one; return the number of workers."""
        n_jobs = self.effective_n_jobs(n_jobs)
        if n_jobs == 1:
            raise FallbackToBackend(SequentialBackend(nesting_level=self.nesting_level))
        self._let_go(busy=False)
        self.parallel = parallel
        initializer = initializer or self.backend_kwargs.get("initializer")
        if initializer is not None and self._given is None:
            self._own = _started(n_jobs, self._hosts, initializer, initargs or self.backend_kwargs.get("initargs", ()))
        self._pool = self._given or self._own or _taken(n_jobs, self._hosts)
        return n_jobs

    def submit(self, func: Callable[[], Any], callback: Callable[[Any], Any] | None = None) -> Future[Any]:
        """Run a batch of calls."""
        assert self._pool is not None
        future = self._pool.submit(_call, func)
        self._futures.add(future)
        future.add_done_callback(self._futures.discard)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, out: Future[Any]) -> Any:
        """Return the results of a batch, or raise its exception."""
        return out.result()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Cancel waiting batches, and end the others, but not in a pool that others use, too."""
        for future in [*self._futures]:
            future.cancel()
        if self._given is None and self._pool is not None and self._futures:
            self._let_go(busy=True)
            if ensure_ready:
                self.configure(self.parallel.n_jobs, self.parallel)

    def terminate(self) -> None:
        """End a call of `Parallel`; the pool lives on."""
        self._let_go(busy=False)
        self.reset_batch_stats()

    def _let_go(self, *, busy: bool) -> None:
        """End the use of the pool, in which batches still run if it is busy."""
        pool, own = self._pool, self._own
        self._pool = self._own = None
        if own is not None:
            own.terminate() if busy else own.shutdown()
        elif pool is not None and pool is not self._given:
            _give_back(pool, busy)


def _call(batch: Callable[[], Any]) -> Any:
    return batch()


def _taken(n_jobs: int, hosts: str | None) -> Pool:
    """Return the pool that is kept, if it is of this kind and whole; else start another one, and keep that."""
    key = n_jobs if hosts is None else hosts
    with _lock:
        pool = _kept.get(key)
        if pool is None or not pool.usable or pool.size != n_jobs:
            for other in _kept.values():
                if other.usable and not _users[other]:
                    other.shutdown(wait=False)
            _kept.clear()
            _kept[key] = pool = _started(n_jobs, hosts)
        _users[pool] += 1
        return pool


def _give_back(pool: Pool, busy: bool) -> None:
    """End a call's use of a pool; later calls do not take a busy one, and the last user ends one that is not kept."""
    with _lock:
        if busy:
            for key in [key for key, each in _kept.items() if each is pool]:
                del _kept[key]
        _users[pool] -= 1
        unused = not _users[pool]
        if unused:
            del _users[pool]
        over = unused and pool not in _kept.values()
    if over:
        pool.terminate()


def _started(
    n_jobs: int, hosts: str | None, initializer: Callable[..., Any] | None = None, initargs: Sequence[Any] = ()
) -> Pool:
    workers = None if hosts is not None else n_jobs
    return Pool(workers, hosts=hosts, initializer=initializer, initargs=initargs)


joblib.register_parallel_backend("ringcast", RingcastBackend)
