"""Jobs whose ranks all live in this process: as threads, or on the simulated wire."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any

from ringcast.control.events import Action, Died, End, Event, Joining, Lost, SendTo
from ringcast.control.membership import Membership
from ringcast.engine.endpoint import Endpoint
from ringcast.engine.execute import Steps
from ringcast.engine.task import Task, begin
from ringcast.errors import RingcastError
from ringcast.transports.base import Transport
from ringcast.transports.simulated import SimulatedWire
from ringcast.transports.threads import ThreadHub
from ringcast.wire.control_messages import NOTICES, Abort, FromMember, Hello, notice_frames
from ringcast.wire.failure import Failure


class SharedControl:
    """The control plane of a job within one process, shared by its ranks; any thread may call it.

    It is the `Membership` of every job; its actions become notices in the inboxes of the ranks.
    """

    def __init__(self, nonce: int, transports: Sequence[Transport]) -> None:
        self._nonce, self._transports = nonce, transports
        self._lock = threading.Lock()  # all ranks hear of a finding before any rank draws conclusions
        self._membership = Membership(len(transports), version="", hosted=False)
        for rank in range(len(transports)):
            hello = Hello("", rank, len(transports))
            self._membership.handle(Joining(_connection(rank), hello), 0.0)

    def take(self, message: FromMember) -> None:
        """Act on a message of a rank."""
        with self._lock:
            self._handle(message, self._transports[message.rank].clock())

    def abort(self, rank: int, cause: str) -> None:
        """End the whole job: every other rank that communicates, or tries to, gets JobAborted."""
        with self._lock:
            self._handle(End(cause), self._transports[rank].clock(), but=rank)

    def _handle(self, event: Event, now: float, but: int | None = None) -> None:
        todo: list[Action] = self._membership.handle(event, now)
        for action in todo:
            match action:
                case SendTo() if isinstance(action.message, NOTICES):
                    rank = self._membership.rank_of(action.connection)
                    if rank is not None and rank != but:
                        self._transports[rank].inject(notice_frames(action.message, self._nonce))
                case Lost():
                    todo += self._membership.handle(Died(action.rank, Failure(action.cause)), now)


def _connection(rank: int) -> bytes:
    return rank.to_bytes(4)


class LocalControl:
    """The control plane within one process: notices go straight into the inboxes; fulfils `Control`."""

    def __init__(self, rank: int, shared: SharedControl) -> None:
        self._rank, self._shared = rank, shared

    def send(self, message: FromMember) -> None:
        self._shared.take(message)

    def abort(self, cause: str) -> None:
        """End the whole job: every other rank that communicates, or tries to, gets JobAborted."""
        self._shared.abort(self._rank, cause)

    def close(self) -> None:
        """Nothing to release."""


def endpoints(transports: Sequence[Transport]) -> list[Endpoint]:
    """Return one endpoint for each rank of a new job on these transports."""
    nonce, size = int.from_bytes(os.urandom(8)), len(transports)
    shared = SharedControl(nonce, transports)
    return [Endpoint(r, size, nonce, t, LocalControl(r, shared)) for r, t in enumerate(transports)]


def thread_endpoints(size: int) -> list[Endpoint]:
    """Return the endpoints of a job whose ranks are threads."""
    hub = ThreadHub(size)
    return endpoints([hub.transport(rank) for rank in range(size)])


def abort(endpoints: Sequence[Endpoint], cause: str) -> None:
    """End the communication of all ranks from outside: their calls under way, and later ones, raise JobAborted."""
    for endpoint in endpoints:
        endpoint.transport.inject(notice_frames(Abort(cause), endpoint.protocol.nonce))


def simulated_endpoints(size: int, *, alpha: float = 1e-4, beta: float = 1e-9) -> tuple[SimulatedWire, list[Endpoint]]:
    """Return a simulated wire (see there for alpha and beta), and the endpoints of a job on it."""
    simulated = SimulatedWire(size, alpha=alpha, beta=beta)
    return simulated, endpoints(simulated.ends)


def drive_together(wire: SimulatedWire, endpoints: Sequence[Endpoint], steps: Sequence[Steps[Any]]) -> list[Any]:
    """Run one generator per rank on the simulated wire, in one thread; return their results by rank.

    Raises:
        RingcastError: the first error of any rank; or a deadlock, with the ranks that wait for each other.
    """
    tasks = [begin(endpoint, generator) for endpoint, generator in zip(endpoints, steps, strict=True)]
    running = {rank for rank, task in enumerate(tasks) if not _ended(task)}
    stuck = None
    while running:
        rank = wire.deliver()
        if rank is not None:
            while wire.ends[rank].inbox:  # a notice may have come as well
                endpoints[rank].progress(wire.now)
            if rank in running and _ended(tasks[rank]):
                running.discard(rank)
            continue
        waiting = {r: op for r in sorted(running) if (op := tasks[r].operation) is not None}
        state = [(op.number, op.round, op.waiting_for) for op in waiting.values()]
        for r in waiting:
            tasks[r].patience = wire.now
            _ended(tasks[r])
        if state == stuck:  # also after all have probed their peers
            waits = {r: op.waiting_for for r, op in waiting.items()}
            raise RingcastError(f"deadlock at {wire.now:g} s: no message is under way and ranks wait for {waits}")
        stuck = state
        for r, op in waiting.items():
            endpoints[r].probe([op])
    return [task.result for task in tasks]


def _ended(task: Task[Any]) -> bool:
    """Return whether a task is done.

    Raises:
        BaseException: the error that has ended it.
    """
    if not task.done and not task.poll():
        return False
    if task.error is not None:
        raise task.error
    return True
