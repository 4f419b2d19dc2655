"""`ringcast.cluster`: a function after the other on the same ranks, as in the cells of a notebook."""

from __future__ import annotations

import operator
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar, overload

from ringcast._util.safe_text import class_name, safe_text
from ringcast.bootstrap.cluster.interrupts import Interrupts
from ringcast.bootstrap.cluster.outcome import Outcome, verdict
from ringcast.bootstrap.cluster.ranks import BrokenOff, Ranks
from ringcast.bootstrap.time_limit import deadline
from ringcast.communicator import Communicator
from ringcast.errors import RunFailed, RunTimeout, UsageError
from ringcast.monitoring.flight_record import waits, who_waits
from ringcast.net.hostlist import Host, HostError, parse_hosts
from ringcast.wire.error_text import in_a_line, message
from ringcast.wire.flight import Flight

if TYPE_CHECKING:
    from ringcast.bootstrap.profile import Profile

Returned = TypeVar("Returned")


def cluster(n: int | None = None, *, hosts: str | Sequence[str] | None = None, backend: str = "processes") -> Cluster:
    """Start ranks that live until the Cluster is closed, and call functions on them again and again.

    Cost: "processes" starts an interpreter for each rank, once; later a call takes a few milliseconds beside the
    function itself. Arguments travel to each host once.

    Args:
        n: number of ranks, 1 or more, on this machine; left out with `hosts`.
        hosts: where the ranks run, as for `ringcast-launch -H`: "h0:2,h1:2", or a list of such texts. Other hosts than
            this one are reached by ssh without a password, and have program and environment at the same paths.
        backend: "processes" starts `ringcast-launch`; "threads" uses threads of this process, which share its objects
            and its interpreter lock.

    Returns:
        A `Cluster`: ends by `close`, as a context manager, when nothing refers to it any more, or with the program.

    Raises:
        RunFailed: the ranks did not start; names one of them, and its host.
        ValueError: n, hosts or backend make no sense.
        TypeError: n is no integer.

    >>> with ringcast.cluster(3, backend="threads") as cluster:
    ...     cluster.run(lambda comm, x: comm.allreduce(x + comm.rank), 10)
    [33, 33, 33]
    """
    if (n is None) == (hosts is None):
        raise ValueError("expected either n, the number of ranks on this machine, or hosts")
    placed = [Host("", number_of_ranks(n))] if hosts is None else parsed_hosts(hosts)
    size = sum(host.slots for host in placed)
    if backend == "threads":
        from ringcast.bootstrap.cluster.threads import ThreadRanks

        if hosts is not None:
            raise ValueError("hosts: only with backend='processes'")
        return Cluster(ThreadRanks(size), size, backend)
    if backend == "processes":
        from ringcast.bootstrap.cluster.processes import ProcessRanks

        return Cluster(ProcessRanks(placed), size, backend, "" if hosts is None else ",".join(_texts(hosts)))
    raise ValueError(f"backend={safe_text(backend)}: expected 'processes' or 'threads'")


def number_of_ranks(n: Any) -> int:
    """Return n as an int; raise ValueError or TypeError if it is no number of ranks."""
    n = operator.index(n)
    if n < 1:
        raise ValueError(f"n={n}: expected 1 rank or more")
    return int(n)


def _texts(hosts: str | Sequence[str]) -> Sequence[str]:
    return [hosts] if isinstance(hosts, str) else hosts


def parsed_hosts(hosts: str | Sequence[str]) -> Sequence[Host]:
    """Return the hosts of a text as for `ringcast-launch -H`, or of several; raise ValueError if they are none."""
    try:
        return parse_hosts(",".join(_texts(hosts)))
    except HostError as error:
        raise ValueError(f"hosts={safe_text(hosts)}: {error}") from None


class Cluster:
    """Ranks that wait for functions to call; made by `ringcast.cluster`.

    In every run the function gets a communicator of its own, and the ranks meet when they return. Messages of a run do
    not reach the next one: after a function that raised, a mismatch or a deadlock the cluster stays in use. It is
    closed when a rank has died, or cannot be brought back after an interrupt.

    >>> cluster = ringcast.cluster(2, backend="threads")
    >>> cluster
    <Cluster: 2 ranks, threads, idle>
    >>> cluster.close()
    >>> cluster
    <Cluster: 2 ranks, threads, closed>
    """

    def __init__(self, ranks: Ranks, size: int, backend: str, hosts: str = "") -> None:
        self._ranks, self._size, self._backend = ranks, size, backend
        self._again = f"ringcast.cluster({(hosts and f'hosts={hosts!r}') or size})"  # makes another one
        self._pid = os.getpid()
        self._busy = threading.Lock()
        self._why = ""  # it is closed
        self._is_profiled = False
        self._end = weakref.finalize(self, _close, ranks, self._pid)

    def __repr__(self) -> str:
        state = "closed" if self.closed else "running" if self._busy.locked() else "idle"
        why = f": {self._why}" if self.closed and self._why else ""
        ranks = "1 rank" if self._size == 1 else f"{self._size} ranks"
        return f"<Cluster: {ranks}, {self._backend}, {state}{why}>"

    @property
    def size(self) -> int:
        """Number of ranks.

        >>> with ringcast.cluster(2, backend="threads") as cluster:
        ...     cluster.size
        2
        """
        return self._size

    @property
    def closed(self) -> bool:
        """Whether the ranks have ended."""
        return not self._end.alive

    @overload
    def run(self, fn: Callable[[Communicator], Returned], *, timeout: float | None = None) -> list[Returned]: ...
    @overload
    def run(
        self, fn: Callable[..., Returned], first: Any, /, *args: Any, timeout: float | None = None
    ) -> list[Returned]: ...
    def run(self, fn: Callable[..., Any], *args: Any, timeout: float | None = None) -> list[Any]:
        """Call `fn(comm, *args)` on all ranks, and return their results by rank.

        Output of the ranks in the call is shown before this returns.

        Args:
            fn: any function that cloudpickle can pickle, also a lambda or one defined in a notebook.
            args: further arguments, the same on all ranks.
            timeout: seconds, above 0, that this may take as a whole; None: no limit.

        Returns:
            A list of the results of `fn`, by rank.

        Raises:
            RunFailed: some rank raised or died; names the first one, with its traceback.
            RunTimeout: it took longer than `timeout`, which is a RunFailed too.
            KeyboardInterrupt: it was interrupted; the functions were ended.
            UsageError: the cluster is closed, or runs a function for another thread, or was made before a fork.
            TypeError: fn is no function.

        >>> with ringcast.cluster(2, backend="threads") as cluster:
        ...     cluster.run(lambda comm: comm.rank)
        [0, 1]
        """
        if not callable(fn):
            raise TypeError(f"fn={safe_text(fn)}: expected a function")
        until = deadline(timeout)
        self._check()
        call = self._ranks.prepare(fn, args)
        with Interrupts(self._ranks.wake) as interrupts, self._held():
            self._check()
            results = self._run(call, until, timeout, interrupts)
        if isinstance(results, BaseException):
            raise results.with_traceback(None)  # how the ranks were ended is of no use to the program
        return results

    @contextmanager
    def profile(self, path: str | os.PathLike[str] = "") -> Iterator[Profile]:
        """Record where the time goes in the runs of a block, and write the profile at its end.

        Also after an error in the block, unless the ranks have ended by it.

        Args:
            path: a file, *.html or *.json; "-": a table on standard error; "": none is written, and a notebook shows
                the page in the cell.

        Yields:
            A `ringcast.Profile`, which has the numbers when the block is over.

        Raises:
            UsageError: the cluster is closed, or busy, or the profile of another block is under way already.
            ValueError: the file cannot be written, or has another name.
            OSError: the file cannot be written.

        >>> with ringcast.cluster(2, backend="threads") as cluster:
        ...     with cluster.profile() as profile:
        ...         sums = cluster.run(lambda comm: comm.allreduce(1))
        >>> [site["name"] for site in profile.report["sites"]]
        ['allreduce']
        """
        from ringcast.bootstrap.profile import Profile, begin, check, end, report_of, show
        from ringcast.profiling.files import publish

        path = os.fspath(path)
        if path:
            check(path)
        if self._is_profiled:
            raise UsageError("the profile of another block is under way already: end that one before")
        made, failure = Profile(), ""
        self.run(begin)
        self._is_profiled = True
        try:
            yield made
        except BaseException as error:
            failure = in_a_line(error).partition("\n")[0]
            if self.closed:
                error.add_note("there is no profile: the ranks have ended with what they had recorded")
            raise
        finally:
            self._is_profiled = False
            if not (failure and self.closed):
                made.report = report_of(self.run(end), self._size, failure)
                if path:
                    publish(path, made.report)
                else:
                    show(made)

    @contextmanager
    def _held(self) -> Iterator[None]:
        """Have the ranks to ourselves; within Interrupts, so that none is left that holds them for ever."""
        if not self._busy.acquire(blocking=False):
            raise UsageError("the cluster runs a function, for another thread or for this one; wait until it has ended")
        try:
            yield
        finally:
            self._busy.release()

    def _check(self) -> None:
        if os.getpid() != self._pid:
            another = f"make another one: {self._again}"
            raise UsageError(f"the cluster belongs to process {self._pid}, and this one is a copy; {another}")
        if self.closed:
            why = f": {self._why}" if self._why else ""
            raise UsageError(f"the cluster is closed{why}; make another one: {self._again}")

    def _run(
        self, call: Any, until: float | None, timeout: float | None, interrupts: Interrupts
    ) -> list[Any] | BaseException:
        """Return the results by rank, or the error of a run that failed or was ended from outside."""
        try:
            outcomes = self._ranks.run(call, until, interrupts)
        except BrokenOff as off:
            return self._broken_off(off, timeout)
        except BaseException as error:  # a rank has died; or the state of the ranks is unknown
            self._give_up(message(error).partition("\n")[0] or class_name(type(error)))
            raise
        broken = next((one.broken for one in outcomes if one.broken), "")
        if broken:
            self._give_up(broken)
        failed = verdict(outcomes)
        if failed is None and broken:
            failed = RunFailed(outcomes[0].rank, broken)
        if failed is not None:
            return self._noted(failed)
        return [one.result for one in sorted(outcomes, key=lambda one: one.rank)]

    def _broken_off(self, off: BrokenOff, timeout: float | None) -> BaseException:
        broken = off.broken or next((one.broken for one in off.outcomes if one.broken), "")
        if broken:
            self._give_up(broken)
        if isinstance(off.error, TimeoutError) and timeout is not None:
            return self._noted(_late(timeout, off, self._size))
        return self._noted(off.error)

    def _noted(self, error: BaseException) -> BaseException:
        """Return an error with a note on the cluster, if that is of no use any more."""
        if self.closed:
            error.add_note(f"the cluster is closed: {self._why}; make another one: {self._again}")
        return error

    def _give_up(self, why: str) -> None:
        self._why = self._why or why
        self._end()

    def close(self) -> None:
        """End the ranks; idempotent. Waits until they have ended.

        Raises:
            UsageError: a function runs, for another thread or for this one.

        >>> ringcast.cluster(1, backend="threads").close()
        """
        with Interrupts(lambda: None), self._held():  # in a bounded time; else something would be left behind
            self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Cluster cannot be pickled: a function that it runs must not refer to it")


def _close(ranks: Ranks, pid: int) -> None:
    """End the ranks of a cluster, unless this is a copy of the process that has started them."""
    if os.getpid() == pid:
        ranks.close()


def _late(seconds: float, off: BrokenOff, size: int) -> RunTimeout:
    """Return the error of a run that took too long: it names the ranks whose functions had not returned.

    A rank in no call is to blame rather than the ranks that wait for it. Its traceback is shown, but not in place of
    the error of a rank that has failed before.
    """
    late = off.late or off.unended
    ended = {one.rank: one for one in off.outcomes}
    running = [rank for rank in late if rank not in ended]  # they communicate no more, else they would have ended
    idle = [rank for rank in late if rank not in ended or not _waits(ended[rank])]
    flights = [_flight(rank, size, ended) if rank in late else None for rank in range(size)]
    first = (idle or late)[0]
    failed = [one for one in off.outcomes if one.failure is not None and not one.returned]
    shown = min(failed, key=lambda one: (one.rank in off.unended, one.rank != first, one.rank), default=None)
    trace = "" if shown is None or shown.failure is None else shown.failure.traceback
    return RunTimeout(tuple(late), seconds, trace, tuple(running), first=first, waits=who_waits(flights))


def _waits(outcome: Outcome) -> bool:
    """Return whether a rank was waiting for others when its run was broken off."""
    return outcome.flight is not None and any(map(waits, outcome.flight.entries))


def _flight(rank: int, size: int, ended: Mapping[int, Outcome]) -> Flight | None:
    """Return the record of a rank; an empty one if its function still runs."""
    return ended[rank].flight if rank in ended else Flight(rank, size, 0, "", 0.0, 0.0, None, ())
