"""Jobs of p ranks inside the test process: on threads, or on real ipc and tcp sockets, one thread a rank."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from ringcast.algorithms.network import NETWORKS
from ringcast.bootstrap.in_process import LocalControl, endpoints
from ringcast.collectives.stage import Group
from ringcast.communicator import Communicator
from ringcast.engine.endpoint import Endpoint
from ringcast.errors import Revoked
from ringcast.transports.base import Transport
from ringcast.transports.memory.transport import ShmTransport
from ringcast.transports.routed import RoutedTransport
from ringcast.transports.threads import ThreadHub
from ringcast.transports.zeromq import ZeroMQTransport
from support import socket_jobs
from support.patience import patience
from support.under_way import holding

KINDS = ("threads", "shm", "sockets", "tcp")


def transports(kind: str, size: int, folder: Path | None = None) -> list[Transport]:
    """Return connected transports of one job; `folder` is where ipc sockets lie.

    Of "mixed" and "routed" ones 0 and 1 share a host, as 2 and 3 do: there by ipc, here by shared memory.
    """
    if kind == "sockets":
        opened = socket_jobs.opened(size)
        socket_jobs.join(opened)
        return list(opened)
    if kind == "threads":
        hub = ThreadHub(size)
        return [hub.transport(rank) for rank in range(size)]
    if kind == "shm":
        return shared(size)
    if kind == "routed":
        return routed(size)
    if kind == "ipc":
        assert folder is not None
        made = [ZeroMQTransport(f"ipc://{folder}/{rank}") for rank in range(size)]
    elif kind == "mixed":
        made = [ZeroMQTransport("tcp://127.0.0.1:*", near=f"ipc://{folder}/{rank}") for rank in range(size)]
    else:
        made = [ZeroMQTransport("tcp://127.0.0.1:*") for _ in range(size)]
    meet(made)
    return list(made)


def shared(size: int) -> list[Transport]:
    """Return transports that share memory, each of which has met all others."""
    made = [ShmTransport(rank, size) for rank in range(size)]
    cards = {rank: transport.card for rank, transport in enumerate(made)}
    for rank, transport in enumerate(made):
        assert not transport.meet({peer: card for peer, card in cards.items() if peer != rank})
    return list(made)


def routed(size: int) -> list[Transport]:
    """Return transports that share memory with one other rank, and reach the others by sockets."""
    far = socket_jobs.opened(size)
    socket_jobs.join(far)
    near = [ShmTransport(rank, size) for rank in range(size)]
    for rank, transport in enumerate(near):
        other = rank ^ 1
        if other < size:
            assert not transport.meet({other: near[other].card})
    return [RoutedTransport(*both) for both in zip(near, far, strict=True)]


def meet(made: Sequence[ZeroMQTransport]) -> None:
    """Tell every rank where the others are, and which keys they have."""
    cards = [transport.card for transport in made]
    for rank, transport in enumerate(made):
        other = rank ^ 1
        near = {other: made[other].near} if transport.near and other < len(made) else {}
        transport.meet(cards, near)


class Job:
    """p ranks that live until `close`; `run` calls a function on all of them and returns the results by rank."""

    def __init__(self, kind: str, size: int) -> None:
        self.kind, self.size = kind, size
        self._folder = tempfile.TemporaryDirectory(prefix="rc-")
        self.endpoints: list[Endpoint] = endpoints(transports(kind, size, Path(self._folder.name)))
        self._context = secrets.randbits(32)
        self._used: list[int] = []  # contexts that are not retired
        # Threads that live on: to start one takes longer than many a call.
        self._pool = ThreadPoolExecutor(size, initializer=stay_on_one_processor)

    def run(self, fn: Callable[[Communicator], Any], timeout: float | None = None) -> list[Any]:
        """Return fn's results, with an exception in the place of the result of a rank that raised one.

        Every run is on a communicator of its own, so that an error in one does not spoil the next.
        """
        self._context += 1
        self._used.append(self._context)
        results: list[Any] = [None] * self.size
        limit = patience(60) if timeout is None else timeout

        def work(endpoint: Endpoint) -> None:
            group = Group(endpoint, self._context, NETWORKS["threads" if self.kind == "threads" else self.kind])
            try:
                results[endpoint.rank] = fn(Communicator(group, limit))
            except BaseException as error:
                results[endpoint.rank] = error

        wait([self._pool.submit(work, endpoint) for endpoint in self.endpoints])
        return results

    def ask(self, fn: Callable[[Communicator], Any], timeout: float | None = None) -> list[Any]:
        """Return fn's results; raise the error of a rank if there is one, if possible not a mere consequence."""
        results = self.run(fn, timeout)
        errors = [result for result in results if isinstance(result, BaseException)]
        for error in sorted(errors, key=lambda error: isinstance(error, Revoked)):
            raise error
        return results

    def left_over(self) -> dict[int, list[str]]:
        """Return, by rank, the tables of the protocol that still hold transfers; there must be none between calls."""
        found = {e.rank: holding(e.protocol, "failed") for e in self.endpoints}
        return {rank: names for rank, names in found.items() if names}

    def retire(self) -> None:
        """Free the communicators of the runs so far: each costs time when ranks leave."""
        for context in self._used:
            for endpoint in self.endpoints:
                endpoint.protocol.retire(context)
                endpoint.flush()
        self._used.clear()

    def abort(self, cause: str) -> None:
        control = self.endpoints[0].control
        assert isinstance(control, LocalControl)
        control.abort(cause)

    def close(self) -> None:
        for endpoint in self.endpoints:
            if not endpoint.closed:
                endpoint.leave()
        self.discard()

    def discard(self) -> None:
        """Release what the job has beside its endpoints."""
        self._pool.shutdown()
        self._folder.cleanup()


def stay_on_one_processor() -> None:
    """Keep this thread on the processor of all ranks of this process.

    The interpreter's lock lets only one of them run, and to pass it to another processor takes a third of their time.
    """
    if hasattr(os, "sched_setaffinity"):
        processors = sorted(os.sched_getaffinity(os.getpid()))
        worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
        os.sched_setaffinity(0, {processors[worker % len(processors)]})


class Jobs:
    """Jobs that are kept for many tests, one of each kind and size: `jobs(kind, size)`."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, int], Job] = {}

    def __call__(self, kind: str, size: int) -> Job:
        if (kind, size) not in self._made:
            self._made[kind, size] = Job(kind, size)
        job = self._made[kind, size]
        assert not (left := job.left_over()), f"an earlier test has left something behind: {left}"
        job.retire()
        return job

    def close(self) -> None:
        for job in self._made.values():
            job.close()
