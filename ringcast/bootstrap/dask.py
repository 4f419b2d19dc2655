"""`ringcast.on_dask`: a function on n ranks in the workers of a running Dask cluster."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload
from urllib.parse import urlsplit

from ringcast._util.rank_words import ranks_in_words
from ringcast.bootstrap import hosted
from ringcast.bootstrap.hosted import RankResult, RankSpec, Results
from ringcast.communicator import Communicator
from ringcast.errors import RendezvousError, UsageError
from ringcast.wire.error_text import in_a_line

if TYPE_CHECKING:
    from distributed import Client, Future

Returned = TypeVar("Returned")
LOOK = 1.0  # seconds after which the client looks whether all workers are alive
MEET = 60.0  # seconds in which all ranks must have begun


@overload
def on_dask(
    client: Client,
    fn: Callable[[Communicator], Returned],
    n: int,
    *,
    timeout: float | None = None,
) -> list[Returned]: ...
@overload
def on_dask(
    client: Client,
    fn: Callable[..., Returned],
    n: int,
    *,
    args: Sequence[Any],
    timeout: float | None = None,
) -> list[Returned]: ...
def on_dask(
    client: Client,
    fn: Callable[..., Any],
    n: int,
    *,
    args: Sequence[Any] = (),
    timeout: float | None = None,
) -> list[Any]:
    """Call `fn(comm, *args)` on n ranks inside the workers of a Dask cluster, and return their results by rank.

    Every rank takes a thread of a worker as long as it runs, all at the same time, spread over as many workers as there
    are. Ranks meet at the host of rank 0's worker over tcp, encrypted, with a key made for the job.

    Cost: a few tenths of a second beside the call itself.

    Args:
        client: a Client of `distributed`, not an asynchronous one.
        fn: any function that cloudpickle can pickle.
        n: number of ranks, 1 to the number of threads of the cluster.
        args: further arguments, the same on all ranks; they are sent to each.
        timeout: seconds, above 0, that a call of the communicator may take before CollectiveTimeout; None: no limit.

    Returns:
        A list of the results of `fn`, by rank.

    Raises:
        RunFailed: some rank raised, or its worker died; names the first one, with its traceback.
        UsageError: the cluster has fewer threads than n, or the client is asynchronous.
        ValueError: n makes no sense.

    >>> ringcast.on_dask(client, lambda comm: comm.allreduce(comm.rank), 2)  # client = Client("tcp://scheduler:8786")
    [1, 1]
    """
    if n < 1:
        raise ValueError(f"n={n}: expected 1 rank or more")
    if client.asynchronous:
        raise UsageError("on_dask blocks until all ranks have ended; give it a Client without asynchronous=True")
    workers = _workers(client, n)
    job = hosted.rank_specs(fn, n, args, timeout)
    results = Results(n)
    board = f"ringcast-{job[0].nonce:016x}"  # where rank 0 publishes its address
    futures = {
        client.submit(_rank, spec, board, workers=[worker], key=f"{board}-{spec.rank}", pure=False, retries=0): worker
        for spec, worker in zip(job, workers, strict=True)
    }
    try:
        _wait(client, futures, job, results)
    except BaseException as interruption:
        _abort(client, workers, job[0].nonce, f"the client was interrupted by {in_a_line(interruption)}")
        raise
    finally:
        _forget(client, list(futures), board)
    return results.all()


def _workers(client: Client, n: int) -> list[str]:
    threads: dict[str, int] = client.nthreads()
    if n > sum(threads.values()):
        raise UsageError(
            f"{n} ranks run at the same time, each in a thread of a Dask worker, but the cluster has "
            f"{sum(threads.values())} ({len(threads)} workers); add workers, or wait for them (client.wait_for_workers)"
        )
    return hosted.spread(threads, n)


def _wait(client: Client, futures: dict[Future[RankResult], str], job: Sequence[RankSpec], results: Results) -> None:
    """Collect outcomes until all are there, or until the grace of the remaining ranks after a failure is over."""
    ranks = {future: rank for rank, future in enumerate(futures)}
    aborted = False
    while not results.over(time.monotonic()):
        _collect(client, {future: ranks[future] for future in futures if ranks[future] in results.missing}, results)
        alive = client.nthreads()
        for future, worker in futures.items():
            if worker not in alive and ranks[future] in results.missing and not future.done():
                gone = ranks_in_words(ranks[each] for each in futures if futures[each] == worker)
                results.lost(ranks[future], f"its Dask worker {worker} is gone, with {gone}", time.monotonic())
        if results.failed and not aborted:
            aborted = True
            left = [worker for future, worker in futures.items() if ranks[future] in results.missing]
            _abort(client, left, job[0].nonce, "a rank failed; the error in the client names it")


def _collect(client: Client, running: dict[Future[RankResult], int], results: Results) -> None:
    from distributed import wait

    with client.as_current(), contextlib.suppress(TimeoutError):
        wait(list(running), timeout=LOOK, return_when="FIRST_COMPLETED")
    for future, rank in running.items():
        if future.status == "finished":
            results.ended(future.result(), time.monotonic())
        elif future.done():
            error = future.exception() if future.status == "error" else None
            results.lost(rank, f"Dask says of its task: {error or future.status}", time.monotonic())


def _abort(client: Client, workers: Sequence[str], nonce: int, cause: str) -> None:
    async def tell() -> None:
        hosted.abort(nonce, cause)

    with contextlib.suppress(Exception):  # workers that are gone need no message
        client.run(tell, workers=sorted(set(workers)), wait=False, on_error="ignore")


def _forget(client: Client, futures: list[Future[RankResult]], board: str) -> None:
    from distributed import Variable

    with contextlib.suppress(Exception):  # of a cluster that is gone nothing is left
        client.cancel(futures, force=True)
        Variable(board, client).delete()


def _rank(spec: RankSpec, board: str) -> RankResult:
    """Be a rank; a task of Dask."""
    from distributed import Variable, get_worker

    variable = Variable(board)
    try:
        if spec.rank == 0:
            lifeline, address = hosted.host(spec, urlsplit(get_worker().address).hostname or "127.0.0.1")
            variable.set(address)
            return hosted.work(spec, address, lifeline)
        return hosted.work(spec, variable.get(timeout=MEET))
    except TimeoutError:
        cause = f"rank {spec.rank}: rank 0 did not begin within {MEET:g} s; are threads of the cluster busy?"
        return hosted.failed(spec.rank, RendezvousError(cause))
    except Exception as error:  # of Dask: returned, so that the error of the first rank is shown
        return hosted.failed(spec.rank, error)
