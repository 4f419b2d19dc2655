"""Jobs whose ranks all live in this process: as threads, or on the simulated wire."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence

from ringcast import wire
from ringcast.endpoint import Endpoint
from ringcast.failure import Failure
from ringcast.transports.base import Transport
from ringcast.transports.simulated import SimulatedWire
from ringcast.transports.threads import ThreadHub


class LocalControl:
    """The control plane within one process: notices go straight into the inboxes; fulfils `Control`."""

    def __init__(self, rank: int, nonce: int, transports: Sequence[Transport]) -> None:
        self._rank, self._nonce = rank, nonce
        self._others = [(peer, t) for peer, t in enumerate(transports) if peer != rank]

    def revoke(self, context: int, cause: str) -> None:
        self._tell(wire.Kind.REVOKE, cause.encode(), context=context)

    def abort(self, cause: str) -> None:
        """End the whole job: every rank that communicates, or tries to, gets JobAborted."""
        self._tell(wire.Kind.ABORT, cause.encode())

    def finished(
        self,
        sent: Mapping[int, int],
        posted: Mapping[int, int],  # noqa: ARG002 (only a launcher compares what was sent with what was taken)
        matched: Mapping[int, int],  # noqa: ARG002
        blames: tuple[int, ...],  # noqa: ARG002 (a launcher judges)
    ) -> None:
        for peer, transport in self._others:
            count = sent.get(peer, 0)
            transport.inject([wire.notice(wire.Kind.BYE, self._nonce, source=self._rank, length=count)])

    def failing(self, error: str, traceback: str, blames: tuple[int, ...]) -> None:  # noqa: ARG002 (a launcher judges)
        self._tell(wire.Kind.FAILED, Failure(error, traceback=traceback).encode())

    def close(self) -> None:
        """Nothing to give back."""

    def _tell(self, kind: wire.Kind, text: bytes, *, context: int = 0) -> None:
        header = wire.notice(kind, self._nonce, source=self._rank, context=context, length=len(text))
        for _, transport in self._others:
            transport.inject([header, text])


def endpoints(transports: Sequence[Transport]) -> list[Endpoint]:
    """Return one endpoint for each rank of a new job on these transports."""
    nonce, size = secrets.randbits(64), len(transports)
    return [Endpoint(r, size, nonce, t, LocalControl(r, nonce, transports)) for r, t in enumerate(transports)]


def thread_endpoints(size: int) -> list[Endpoint]:
    """Return the endpoints of a job whose ranks are threads."""
    hub = ThreadHub(size)
    return endpoints([hub.transport(rank) for rank in range(size)])


def simulated_endpoints(size: int, *, alpha: float = 1e-4, beta: float = 1e-9) -> tuple[SimulatedWire, list[Endpoint]]:
    """Return a simulated wire (see there for alpha and beta), and the endpoints of a job on it."""
    simulated = SimulatedWire(size, alpha=alpha, beta=beta)
    return simulated, endpoints(simulated.ends)
