"""Jobs whose ranks all live in this process: as threads, or on the simulated wire."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Sequence

from ringcast.control.agreement import Agreements
from ringcast.control.deadlocks import DeadlockDetector
from ringcast.engine.endpoint import Endpoint
from ringcast.transports.base import Transport
from ringcast.transports.simulated import SimulatedWire
from ringcast.transports.threads import ThreadHub
from ringcast.wire.control_messages import (
    Abort,
    Bye,
    Failed,
    Failing,
    Finished,
    Freed,
    FromMember,
    Made,
    Moving,
    Notice,
    Revoke,
    Waiting,
    notice_frames,
)
from ringcast.wire.reports import StallReport
from ringcast.wire.votes import Decision, Vote


class SharedControl:
    """Control-plane state of a job within one process, shared by its ranks; any thread may call it."""

    def __init__(self, nonce: int, transports: Sequence[Transport]) -> None:
        self._nonce, self._transports = nonce, transports
        self._lock = threading.Lock()  # all ranks that a finding concerns hear it before anybody draws conclusions
        self._deadlocks, self._agreements = DeadlockDetector(), Agreements(len(transports))

    def take(self, message: FromMember) -> None:
        """Act on a message of a rank."""
        with self._lock:
            match message:
                case Waiting():
                    self._compare(message.report)
                case Moving():
                    self._deadlocks.moved(message.rank)
                case Made():
                    self._agreements.made(message.rank, message.context, message.members)
                case Freed():
                    self._agreements.freed(message.rank, message.context)
                case Vote():
                    self._deadlocks.voted(message.context)
                    self._announce(self._agreements.vote(message))
                case Revoke():
                    self._deadlocks.ends(message.context)
                    for peer in self._agreements.members(message.context):
                        if peer != message.rank:
                            self._tell(peer, message)
                case Failing():
                    self._tell_others(message.rank, Failed(message.rank, message.failure))
                    self._lose(message.rank)
                case Finished():
                    for peer in self._others(message.rank):
                        self._tell(peer, Bye(message.rank, message.sent.get(peer, 0), message.failure))
                    self._lose(message.rank)

    def abort(self, rank: int, cause: str) -> None:
        """End the whole job: every other rank that communicates, or tries to, gets JobAborted."""
        self._tell_others(rank, Abort(cause))

    def _compare(self, report: StallReport) -> None:
        now = self._transports[report.rank].clock()
        for found in self._deadlocks.report(self._agreements.refined(report), now):
            self._tell(found.rank, found)

    def _lose(self, rank: int) -> None:
        """Count a rank as gone; the live ones have been notified before."""
        self._deadlocks.forget()
        self._announce(self._agreements.lose(rank))

    def _announce(self, decisions: Iterable[Decision]) -> None:
        for decision in decisions:
            self._deadlocks.voted(decision.context)
            for rank in decision.members:
                self._tell(rank, decision)

    def _others(self, rank: int) -> list[int]:
        return [peer for peer in range(len(self._transports)) if peer != rank]

    def _tell_others(self, rank: int, notice: Notice) -> None:
        for peer in self._others(rank):
            self._tell(peer, notice)

    def _tell(self, rank: int, notice: Notice) -> None:
        self._transports[rank].inject(notice_frames(notice, self._nonce))


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
