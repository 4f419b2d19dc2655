"""Every error that ringcast raises, with the facts a user needs to act.

Wrong arguments are `ArgumentError` (a `ValueError`); everything else derives from `RingcastError` as well, so that
`except ringcast.RingcastError` catches all of them. An error names the rank that raises it, the peer, the operation
and the round where these are known, and says what to do.
"""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import Any

from ringcast._util.dataclass import dataclass
from ringcast._util.sizes import readable


@dataclass(frozen=True, slots=True)
class Where:
    """The place in the program's communication that an error speaks of.

    Attributes:
        operation: name of the call, as "allreduce".
        number: the call's number on its communicator, from 1; None where that is not known.
        round: of the schedule, from 0; None before the first one.

    >>> print(Where("allreduce", 3, 2))
    allreduce #3, round 2
    """

    operation: str
    number: int | None = None
    round: int | None = None

    def __str__(self) -> str:
        text = self.operation
        if self.number is not None:
            text += f" #{self.number}"
        if self.round is not None:
            text += f", round {self.round}"
        return text


class RingcastError(Exception):
    """Base of all errors of ringcast.

    Each can be pickled, so that pools and engines can hand it on.

    >>> issubclass(ringcast.PeerFailed, RingcastError)
    True
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self.args, vars(self))


def _again(kind: type[RingcastError], args: tuple[object, ...], facts: dict[str, object]) -> RingcastError:
    """Return an error with the text and the facts of another one, which a pickle holds."""
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(facts)
    return error


class ArgumentError(RingcastError, ValueError):
    """A call got an argument that it cannot work with; nothing was sent, unless the method says otherwise.

    Attributes:
        rank: the rank that raises this.
        operation: name of the call.
        argument: name of the argument, or of several.
        expected: the expected argument, and the given one.

    >>> try: comm.bcast(1, timeout=-1)
    ... except ArgumentError as error: print(error)
    rank 0: bcast: argument timeout: expected a number of seconds above 0, got -1
    """

    def __init__(self, rank: int, operation: str, argument: str, expected: str) -> None:
        super().__init__(f"rank {rank}: {operation}: argument {argument}: {expected}")
        self.rank, self.operation, self.argument, self.expected = rank, operation, argument, expected


class UsageError(RingcastError, RuntimeError):
    """The library was used where it cannot work: a thread that is not allowed, a forked child, a call after `finalize`.

    >>> comm.finalize()
    >>> try: comm.barrier()
    ... except UsageError as error: print(error)
    rank 0: the communicator was finalized or freed; call barrier before that
    """


class ObjectsRefused(RingcastError, TypeError):
    """A call was given a Python object in a job that takes only arrays; nothing was pickled or unpickled.

    Attributes:
        rank: the rank that raises this.
        operation: name of the call.

    >>> print(str(ObjectsRefused(0, "bcast"))[:63])
    rank 0: bcast: Python objects are switched off in this job (RIN
    """

    def __init__(self, rank: int, operation: str) -> None:
        super().__init__(
            f"rank {rank}: {operation}: Python objects are switched off in this job (RINGCAST_NO_PICKLE=1); "
            "pass numpy arrays or numpy scalars, without objects in them"
        )
        self.rank, self.operation = rank, operation


class ConfigError(RingcastError, ValueError):
    """An environment variable or the configuration file holds something unusable; the message names it.

    >>> issubclass(ConfigError, ValueError)
    True
    """


class LinkLost(RingcastError, ConnectionError):
    """The connection to a peer is gone; messages may have been lost. Calls raise `PeerFailed` instead.

    Attributes:
        peer: rank at the other end.
        cause: why the connection is gone.

    >>> print(LinkLost(3, "connection reset"))
    the link to rank 3 is lost: connection reset
    """

    def __init__(self, peer: int, cause: str) -> None:
        super().__init__(f"the link to rank {peer} is lost: {cause}")
        self.peer, self.cause = peer, cause


class PeerFailed(RingcastError):
    """A rank that this one depends on has failed, has been lost, or has left the job.

    Attributes:
        rank: the rank that raises this.
        peer: the rank that failed; the first one, where there are several.
        ranks: all ranks that are known to have failed, `peer` among them.
        cause: why `peer` failed.
        host: where `peer` ran; empty where that is not known.
        pid: its process; 0 where that is not known.
        remote_traceback: of the error that ended `peer`; empty where there is none.
        where: the call in which this rank was, a `Where`; None where that is not known.
        flag: raised by `agree`: the bitwise and of the flags of the ranks that live; else None.

    >>> print(PeerFailed(0, 2, "killed by SIGKILL", Where("barrier", 1), host="h1", pid=42))
    rank 0: peer rank 2 (h1, pid 42) failed during barrier #1: killed by SIGKILL
    """

    def __init__(
        self,
        rank: int,
        peer: int,
        cause: str,
        where: Where | None = None,
        *,
        ranks: tuple[int, ...] = (),
        host: str = "",
        pid: int = 0,
        remote_traceback: str = "",
        flag: int | None = None,
    ) -> None:
        during = f" during {where}" if where is not None else ""
        others = sorted(set(ranks) - {peer})
        more = f" (as did rank {', '.join(map(str, others))})" if others else ""
        process = f" ({host}, pid {pid})" if host else ""
        text = f"rank {rank}: peer rank {peer}{process} failed{during}: {cause}{more}"
        super().__init__(f"{text}\n{remote_traceback.rstrip()}" if remote_traceback else text)
        self.rank, self.peer, self.cause, self.where = rank, peer, cause, where
        self.ranks = (peer, *others)
        self.host, self.pid, self.remote_traceback = host, pid, remote_traceback
        self.flag = flag


MISMATCH = "mismatch with rank"  # in the texts of these errors, and of their consequences on other ranks


class CollectiveMismatch(RingcastError):
    """Matching messages of two ranks come from different calls, or from one call with different arguments.

    Attributes:
        rank: the rank that raises this.
        peer: the other rank.
        mine: this rank's call, with its arguments.
        theirs: the other rank's call.
        my_site: where `mine` is in the program, as "file.py:12"; empty where that is not known.
        their_site: where `theirs` is.
        where: the call in which this rank was, a `Where`.
        complete: whether `theirs` is the other rank's whole call, and not only the part that a message shows.
        differs: the difference between the two, as "root differs: mine 0, theirs 1"; empty where that is not known.

    >>> print(str(CollectiveMismatch(0, 1, "bcast", "gather", Where("bcast", 1)))[:74])
    rank 0: mismatch with rank 1 in bcast #1: mine is bcast, theirs is gather;
    """

    def __init__(
        self,
        rank: int,
        peer: int,
        mine: str,
        theirs: str,
        where: Where,
        complete: bool = False,
        *,
        my_site: str = "",
        their_site: str = "",
        differs: str = "",
    ) -> None:
        here, there = (f" at {site}" if site else "" for site in (my_site, their_site))
        calls = f"mine is {mine}{here}, theirs is {theirs}{there}"
        first = f"{differs}; " if differs else ""
        super().__init__(
            f"rank {rank}: {MISMATCH} {peer} in {where}: {first}{calls}; "
            "every rank must make the same collective calls in the same order with matching arguments"
        )
        self.rank, self.peer, self.mine, self.theirs, self.where = rank, peer, mine, theirs, where
        self.my_site, self.their_site = my_site, their_site
        self.complete, self.differs = complete, differs


class CollectiveTimeout(RingcastError, TimeoutError):
    """A call did not finish before its deadline, or cannot finish, because ranks wait for each other in a cycle.

    Attributes:
        rank: the rank that raises this.
        waiting_for: the ranks whose messages, grants or completions are missing: the next ranks of a chain, which may
            wait for others themselves. The launcher follows the chain: its last line names the rank at the end.
        seconds: how long the call has waited.
        where: the call in which this rank was, a `Where`.
        operation: the call and its number, a `Where` without the round.
        round: of the schedule, from 0; None before the first one.
        progress: share of the rounds that are over, from 0 to 1; None where that is not known.
        cycle: the ranks of a deadlock; each waits for the next one; empty for a deadline.
        calls: the calls of the first ranks of the cycle, and their places in the program.
        inside: the program's call that made this one, and its place; empty where this one is the program's.

    >>> print(CollectiveTimeout(0, (1, 2), 5.0, Where("barrier", 7, 1)))
    rank 0: barrier #7, round 1 did not finish within 5 s; waiting for rank 1, 2
    """

    def __init__(
        self,
        rank: int,
        waiting_for: tuple[int, ...],
        seconds: float,
        where: Where,
        *,
        progress: float | None = None,
        cycle: tuple[int, ...] = (),
        calls: tuple[str, ...] = (),
    ) -> None:
        who = ", ".join(map(str, waiting_for)) or "nobody"
        far = f" after {100 * progress:.0f} % of its rounds" if progress is not None else ""
        if cycle:
            # The call of a message is in `calls`, with its place; of a collective these do not have the number.
            here = "" if where.number is None else f" in {where}{far}"
            text = f"rank {rank}: deadlock{here}: {_chain(cycle, calls)}; each waits for the next{_remedy(calls)}"
        else:
            text = f"rank {rank}: {where} did not finish within {seconds:g} s{far}; waiting for rank {who}"
        super().__init__(text)
        self.rank, self.waiting_for, self.seconds, self.where = rank, waiting_for, seconds, where
        self.operation, self.round = Where(where.operation, where.number), where.round
        self.progress, self.cycle, self.calls, self.inside = progress, cycle, calls, ""


def _chain(cycle: tuple[int, ...], calls: tuple[str, ...]) -> str:
    """Return the ranks of a cycle with their calls, as far as these are known; each call once for ranks in a row.

    >>> print(_chain((0, 1, 2), ("send at a.py:3", "send at a.py:3", "recv at a.py:5")))
    rank 0 -> 1 (both in send at a.py:3) -> rank 2 (in recv at a.py:5) -> rank 0
    """
    parts = []
    for call, ranks in groupby(zip(cycle, calls, strict=False), itemgetter(1)):
        names = [str(rank) for rank, _ in ranks]
        how_many = {1: "", 2: "both "}.get(len(names), "all ")
        parts.append(f"rank {' -> '.join(names)} ({how_many}in {call})")
    more = len(cycle) - len(calls)
    return " -> ".join([*parts, *([f"{more} more"] if more > 0 else []), f"rank {cycle[0]}"])


def _remedy(calls: tuple[str, ...]) -> str:
    """Return what ends a cycle of messages in one direction; empty for other cycles."""
    kinds = {call.partition(" ")[0] for call in calls}
    if kinds == {"send"}:
        return "; use sendrecv, or isend before recv"
    return "; use sendrecv, or let a rank send first" if kinds == {"recv"} else ""


class Revoked(RingcastError):
    """The communicator was given up, by `revoke` or after an error on some rank.

    Attributes:
        rank: the rank that raises this.
        cause: why it was given up.
        by: the rank that gave it up; None where that is not known.

    >>> print(Revoked(0, "rank 1 called revoke()", by=1))
    rank 0: the communicator was revoked: rank 1 called revoke()
    """

    def __init__(self, rank: int, cause: str, by: int | None = None) -> None:
        super().__init__(f"rank {rank}: the communicator was revoked: {cause}")
        self.rank, self.cause, self.by = rank, cause, by


FAILURES = (PeerFailed, CollectiveMismatch, CollectiveTimeout, LinkLost, Revoked)  # a program may catch and answer them


def blames(error: Any) -> tuple[int, ...]:
    """Return the ranks that an error, if there is one, names as its cause."""
    kind = type(error)  # isinstance would run the `__class__` of a program's error
    if issubclass(kind, PeerFailed):
        return (error.peer,)
    if issubclass(kind, Revoked) and error.by is not None:
        return (error.by,)
    return ()


class JobAborted(RingcastError):
    """The whole job is being ended.

    Attributes:
        rank: the rank that raises this.
        cause: why the job is ended.
        where: the call in which this rank was, a `Where`; None where that is not known.
        waiting_for: the ranks for which it waited there.

    >>> print(JobAborted(0, "interrupted"))
    rank 0: the job was aborted: interrupted
    """

    def __init__(self, rank: int, cause: str, where: Where | None = None, waiting_for: tuple[int, ...] = ()) -> None:
        during = f" (this rank was in {where}, waiting for rank {', '.join(map(str, waiting_for))})" if where else ""
        super().__init__(f"rank {rank}: the job was aborted: {cause}{during}")
        self.rank, self.cause, self.where, self.waiting_for = rank, cause, where, waiting_for


class RendezvousError(RingcastError):
    """The ranks of a job did not find each other, or have different constants; the message names the missing ones.

    >>> issubclass(RendezvousError, RingcastError)
    True
    """


class RunFailed(RingcastError):
    """A function given to `run`, `on_dask` or `on_ray` raised, or its worker died; names the first rank.

    Attributes:
        rank: the first rank that failed.
        cause: the error, or how its process ended.
        remote_traceback: of that error, or the last lines of output; empty where there is none.

    >>> try: ringcast.run(lambda comm: 1 / 0, 1, backend="threads")
    ... except RunFailed as error: print(error.rank, error.cause)
    0 ZeroDivisionError: division by zero
    """

    def __init__(self, rank: int, cause: str, remote_traceback: str = "") -> None:
        text = f"rank {rank}: {cause}"
        super().__init__(f"{text}\n{remote_traceback.rstrip()}" if remote_traceback else text)
        self.rank, self.cause, self.remote_traceback = rank, cause, remote_traceback


class RunTimeout(RunFailed, TimeoutError):
    """A function given to `run` or to a cluster took longer than the time limit of the run.

    Attributes:
        ranks: all ranks that had not ended. `rank` is the first of them; in a cluster the first that was in no call,
            if there is one, because ranks in calls may only have waited for it.
        seconds: the limit.
        running: the ranks that still run, as nothing ends a thread from outside.
        waits: which ranks wait for which others, in words; empty if that is not known.

    >>> print(RunTimeout((1, 2), 5.0))
    rank 1: the run did not finish within 5 s; rank 1, 2 had not ended
    """

    def __init__(
        self,
        ranks: tuple[int, ...],
        seconds: float,
        remote_traceback: str = "",
        running: tuple[int, ...] = (),
        *,
        first: int | None = None,
        waits: str = "",
    ) -> None:
        late = f"rank {', '.join(map(str, ranks))} had not ended"
        still = f"; rank {', '.join(map(str, running))} still runs" if running else ""
        facts = f"{late}{still}{waits and f'; {waits}'}"
        rank = ranks[0] if first is None else first
        super().__init__(rank, f"the run did not finish within {seconds:g} s; {facts}", remote_traceback)
        self.ranks, self.seconds, self.running, self.waits = ranks, seconds, running, waits


class ScheduleError(RingcastError):
    """A schedule breaks a rule of the one-ported model or misses its collective's postcondition (raised by `verify`).

    >>> issubclass(ScheduleError, RingcastError)
    True
    """


class TransferError(RingcastError):
    """Files could not be copied; the message names the path, and the rank where it is not the one that raises.

    >>> issubclass(TransferError, RingcastError)
    True
    """


class SharedMemoryError(RingcastError, MemoryError):
    """Ranks of a host cannot share memory there, or there is no room for it; all ranks raise it, none has the array.

    Attributes:
        rank: the rank that raises this.
        peer: the first rank on which it failed.
        host: where `peer` runs.
        nbytes: size of the array.
        cause: why it failed there.

    >>> print(SharedMemoryError(0, 4, "h1", 8000, "only 6 kB of memory are free"))
    rank 0: rank 4 cannot share 8 kB of memory on host h1: only 6 kB of memory are free
    """

    def __init__(self, rank: int, peer: int, host: str, nbytes: int, cause: str) -> None:
        who = f"rank {rank}: rank {peer}" if peer != rank else f"rank {rank}"
        super().__init__(f"{who} cannot share {readable(nbytes)} of memory on host {host}: {cause}")
        self.rank, self.peer, self.host, self.nbytes, self.cause = rank, peer, host, nbytes, cause


class SourceError(TransferError):
    """A file that hosts read together (`read_file`) cannot be read; every rank raises the same.

    Attributes:
        source: the name of the file, without user, password and query of a URL.
        host: the host that met the error; empty where it concerns all of them.
        rank: the rank that read there; None where it concerns all of them.
        segment: the bytes that it could not read, as (from, to); None where that is not known.
        reason: why.

    >>> print(SourceError("s3://b/model.bin", "HTTP 403 Forbidden", "h1", 2, (0, 1000)))
    s3://b/model.bin: rank 2 (h1) cannot read bytes 0 to 1000: HTTP 403 Forbidden
    """

    def __init__(
        self, source: str, reason: str, host: str = "", rank: int | None = None, segment: tuple[int, int] | None = None
    ) -> None:
        place = f"rank {rank} ({host}) cannot read " if rank is not None else ""
        part = f"bytes {segment[0]} to {segment[1]}: " if segment else "it: "
        super().__init__(f"{source}: {place}{part if place else ''}{reason}")
        self.source, self.reason, self.host, self.rank, self.segment = source, reason, host, rank, segment


class SourceChanged(SourceError):
    """The file has changed while it was read, or hosts see different files under its name.

    >>> issubclass(SourceChanged, SourceError)
    True
    """
