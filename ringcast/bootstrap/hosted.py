"""Ranks hosted in the workers of another engine: their specification, execution and results.

A worker's process may hold several ranks, each in a thread of its own, and lives on after them.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import IO, Any

import cloudpickle

from ringcast._util.dataclass import dataclass
from ringcast._util.safe_text import is_a
from ringcast.algorithms.network import NETWORKS
from ringcast.bootstrap.connectivity import connect_neighbours
from ringcast.bootstrap.rendezvous import JoinInfo, serve
from ringcast.bootstrap.world import adopt, join
from ringcast.communicator import Communicator
from ringcast.config.worker import WorkerConfig, deterministic
from ringcast.control import PACE, new_key
from ringcast.engine.endpoint import Endpoint
from ringcast.errors import JobAborted, PeerFailed, Revoked, RunFailed
from ringcast.transports.base import RemoteTransport
from ringcast.wire.control_messages import Abort, Failing, notice_frames
from ringcast.wire.failure import Failure
from ringcast.wire.transport_kinds import TCP

GRACE = PACE.silence + 5.0  # seconds after the first failure in which the other ranks may report their errors


@dataclass(frozen=True, slots=True)
class RankSpec:
    """Settings by which a rank joins its job, and the function that it calls."""

    rank: int
    size: int
    nonce: int
    timeout: float | None
    deterministic: bool
    key: str = field(repr=False)  # engines log the arguments of failed tasks
    call: bytes = field(repr=False)  # the function and its arguments

    def config(self, address: str) -> WorkerConfig:
        return WorkerConfig(
            self.rank,
            self.size,
            address,
            nonce=self.nonce,
            key=self.key,
            transport=TCP.name,
            timeout=self.timeout,
            deterministic=self.deterministic,
        )


@dataclass(frozen=True, slots=True)
class RankResult:
    """Result of a rank: the function's result, or its failure."""

    rank: int
    result: bytes = field(default=b"", repr=False)
    failure: Failure | None = None
    follows: bool = False  # another rank's error has brought it about


def rank_specs(fn: Callable[..., Any], n: int, args: Sequence[Any], timeout: float | None) -> list[RankSpec]:
    """Return the specifications of a new job's ranks."""
    call, key, nonce = cloudpickle.dumps((fn, tuple(args))), new_key(), secrets.randbits(64)
    return [RankSpec(rank, n, nonce, timeout, deterministic(), key, call) for rank in range(n)]


def host(spec: RankSpec, address: str) -> tuple[IO[bytes], str]:
    """Start the control plane at a host's address, on a free port; return its lifeline and its address."""
    return serve(spec.config(""), address)


def work(spec: RankSpec, control: str, lifeline: IO[bytes] | None = None) -> RankResult:
    """Run a rank in this thread: join, call the function, leave. Never raises; errors are in the result."""
    try:
        group = join(JoinInfo(spec.config(control), lifeline), NETWORKS[TCP.name])
    except BaseException as error:  # it is a result, which the caller shows for its rank
        return failed(spec.rank, error)
    endpoint = group.endpoint
    comm = Communicator(group, spec.timeout)
    with _lock:
        _members.setdefault(spec.nonce, []).append(endpoint)
    adopt(comm)
    try:
        connect_neighbours(group)
        if isinstance(endpoint.transport, RemoteTransport):
            endpoint.transport.stop_watching()
        fn, args = cloudpickle.loads(spec.call)
        result = cloudpickle.dumps(fn(comm, *args))
        comm.finalize()  # may notice that a call was not the same on all ranks
        if (caught := endpoint.unanswered.first) is not None:
            return RankResult(spec.rank, failure=Failure(str(caught), blames=caught.blames), follows=caught.follows)
        return RankResult(spec.rank, result)
    except BaseException as error:  # of the program's function, SystemExit too: the result has it
        endpoint.control.send(Failing(spec.rank, Failure.of(error)))
        return failed(spec.rank, error)
    finally:
        comm.finalize()
        adopt(None)
        with _lock:
            _members[spec.nonce].remove(endpoint)
            if not _members[spec.nonce]:
                del _members[spec.nonce]


def failed(rank: int, error: BaseException) -> RankResult:
    """Return the result of a rank that an error ended."""
    return RankResult(rank, b"", Failure.of(error), is_a(error, (PeerFailed, Revoked, JobAborted)))


_members: dict[int, list[Endpoint]] = {}  # of each job, the ranks in this process
_lock = threading.Lock()


def abort(nonce: int, cause: str) -> None:
    """End the job's ranks in this process: their calls under way, and their next ones, raise JobAborted."""
    with _lock:
        for endpoint in _members.get(nonce, []):
            endpoint.transport.inject(notice_frames(Abort(cause), nonce))


class Results:
    """Collects the results of a job's ranks, and decides whether to wait for more. Has no clock and no sockets."""

    def __init__(self, n: int) -> None:
        self._n = n
        self._rank_results: dict[int, RankResult] = {}  # in the order in which they came
        self._lost: dict[int, str] = {}
        self._until: float | None = None  # after a failure

    @property
    def failed(self) -> bool:
        """True if a rank has failed."""
        return self._until is not None

    @property
    def missing(self) -> list[int]:
        """The ranks without a result so far."""
        return [rank for rank in range(self._n) if rank not in self._rank_results and rank not in self._lost]

    def ended(self, result: RankResult, now: float) -> None:
        """Take the result of a rank."""
        self._rank_results[result.rank] = result
        if result.failure is not None:
            self._fail(now)

    def lost(self, rank: int, cause: str, now: float) -> None:
        """Record that a rank is lost, without a result."""
        self._lost.setdefault(rank, cause)
        self._fail(now)

    def _fail(self, now: float) -> None:
        self._until = now + GRACE if self._until is None else self._until

    def over(self, now: float) -> bool:
        """Return whether to wait no longer."""
        return not self.missing or (self._until is not None and now > self._until)

    def all(self) -> list[Any]:
        """Return the results by rank.

        Raises:
            RunFailed: names the rank that failed first by itself.
        """
        if self.failed:
            raise self._verdict()
        return [cloudpickle.loads(self._rank_results[rank].result) for rank in range(self._n)]

    def _verdict(self) -> RunFailed:
        if self._lost:
            return RunFailed(*next(iter(self._lost.items())))
        failures = [(r.rank, r.failure, r.follows) for r in self._rank_results.values() if r.failure is not None]
        rank, failure, _ = next((one for one in failures if not one[2]), failures[0])
        return RunFailed(rank, failure.cause, failure.traceback)


def spread(slots: Mapping[str, int], n: int) -> list[str]:
    """Return the worker of each rank: as few ranks on a worker as possible; ranks of one worker are in a row.

    >>> spread({"a": 1, "b": 4, "c": 2}, 5)
    ['a', 'b', 'b', 'c', 'c']

    Raises:
        ValueError: there are fewer slots than ranks.
    """
    taken = dict.fromkeys(sorted(slots), 0)
    if n > sum(slots.values()):
        raise ValueError(f"{n} ranks, but {sum(slots.values())} slots")
    for _ in range(n):
        taken[min((w for w in taken if taken[w] < slots[w]), key=lambda w: taken[w])] += 1
    return [worker for worker, count in taken.items() for _ in range(count)]
