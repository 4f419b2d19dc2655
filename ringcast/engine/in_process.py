"""Jobs whose ranks all live in this process: as threads, or on the simulated wire."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterable, Mapping, Sequence

from ringcast.control.agreement import Agreements, Decision, Vote
from ringcast.control.deadlocks import DeadlockDetector, Report
from ringcast.engine.endpoint import Endpoint
from ringcast.transports.base import Transport
from ringcast.transports.simulated import SimulatedWire
from ringcast.transports.threads import ThreadHub
from ringcast.wire import header as wire
from ringcast.wire.failure import Failure
from ringcast.wire.unanswered import Unanswered


class SharedControl:
    """Control-plane state of a job within one process, shared by its ranks; any thread may call it."""

    def __init__(self, nonce: int, transports: Sequence[Transport]) -> None:
        self._nonce, self._transports = nonce, transports
        self.lock = threading.Lock()
        self.deadlocks, self._agreements = DeadlockDetector(), Agreements(len(transports))

    def waiting(self, report: Report) -> None:
        """Take the report of a stalled rank, and send the findings to the ranks that they concern."""
        with self.lock:
            for found in self.deadlocks.report(self._agreements.refined(report), self._transports[report.rank].clock()):
                header = wire.notice(found.kind, self._nonce, source=report.rank, context=found.context)
                self._transports[found.rank].inject([header, found.encode()])

    def moving(self, rank: int) -> None:
        """Record that a rank waits no more."""
        with self.lock:
            self.deadlocks.moved(rank)

    def vote(self, vote: Vote) -> None:
        """Take a rank's vote."""
        with self.lock:
            self.deadlocks.voted(vote.context)
            self._announce(self._agreements.vote(vote))

    def lose(self, rank: int) -> None:
        """Count a rank as gone; the live ones have been notified before."""
        with self.lock:
            self.deadlocks.forget()
            self._announce(self._agreements.lose(rank))

    def _announce(self, decisions: Iterable[Decision]) -> None:
        for decision in decisions:
            self.deadlocks.voted(decision.context)
            header = wire.notice(wire.Kind.AGREED, self._nonce, context=decision.context, length=decision.number)
            for rank in decision.members:
                self._transports[rank].inject([header, decision.encode()])


class LocalControl:
    """The control plane within one process: notices go straight into the inboxes; fulfils `Control`."""

    def __init__(self, rank: int, nonce: int, transports: Sequence[Transport], shared: SharedControl) -> None:
        self._rank, self._nonce, self._shared = rank, nonce, shared
        self._others = [(peer, t) for peer, t in enumerate(transports) if peer != rank]

    def revoke(self, context: int, cause: str, failed: int | None = None) -> None:
        word = 0 if failed is None else failed + 1
        with self._shared.lock:  # all ranks that a finding concerns hear it before anybody draws conclusions
            self._shared.deadlocks.ends(context)
            self._tell(wire.Kind.REVOKE, cause.encode(), context=context, word=word)

    def waiting(self, report: Report) -> None:
        self._shared.waiting(report)

    def moving(self) -> None:
        self._shared.moving(self._rank)

    def vote(self, vote: Vote) -> None:
        self._shared.vote(vote)

    def abort(self, cause: str) -> None:
        """End the whole job: every rank that communicates, or tries to, gets JobAborted."""
        self._tell(wire.Kind.ABORT, cause.encode())

    def finished(
        self,
        sent: Mapping[int, int],
        posted: Mapping[int, int],  # noqa: ARG002 (only a launcher compares what was sent with what was taken)
        matched: Mapping[int, int],  # noqa: ARG002
        blames: tuple[int, ...],  # noqa: ARG002 (a launcher judges)
        error: str = "",
        traceback: str = "",
        unanswered: Unanswered | None = None,  # noqa: ARG002 (who has started the ranks looks at the endpoints)
    ) -> None:
        why = Failure(error, traceback=traceback).encode()
        for peer, transport in self._others:
            header = wire.notice(wire.Kind.BYE, self._nonce, source=self._rank, length=sent.get(peer, 0))
            transport.inject([header, why])
        self._shared.lose(self._rank)

    def failing(self, error: str, traceback: str, blames: tuple[int, ...]) -> None:  # noqa: ARG002 (a launcher judges)
        self._tell(wire.Kind.FAILED, Failure(error, traceback=traceback).encode())
        self._shared.lose(self._rank)

    def close(self) -> None:
        """Nothing to release."""

    def _tell(self, kind: wire.Kind, text: bytes, *, context: int = 0, word: int = 0) -> None:
        header = wire.notice(kind, self._nonce, source=self._rank, context=context, length=len(text), word=word)
        for _, transport in self._others:
            transport.inject([header, text])


def endpoints(transports: Sequence[Transport]) -> list[Endpoint]:
    """Return one endpoint for each rank of a new job on these transports."""
    nonce, size = secrets.randbits(64), len(transports)
    shared = SharedControl(nonce, transports)
    return [Endpoint(r, size, nonce, t, LocalControl(r, nonce, transports, shared)) for r, t in enumerate(transports)]


def thread_endpoints(size: int) -> list[Endpoint]:
    """Return the endpoints of a job whose ranks are threads."""
    hub = ThreadHub(size)
    return endpoints([hub.transport(rank) for rank in range(size)])


def simulated_endpoints(size: int, *, alpha: float = 1e-4, beta: float = 1e-9) -> tuple[SimulatedWire, list[Endpoint]]:
    """Return a simulated wire (see there for alpha and beta), and the endpoints of a job on it."""
    simulated = SimulatedWire(size, alpha=alpha, beta=beta)
    return simulated, endpoints(simulated.ends)
