"""Notices of the control plane: departures, failures, revocations, decisions and findings."""

from __future__ import annotations

from collections.abc import Callable

from ringcast.control.deadlocks import Deadlock, Mismatch, decode
from ringcast.errors import JobAborted, Revoked
from ringcast.protocol.aborting import Aborter
from ringcast.protocol.communicators import Context, Contexts
from ringcast.protocol.counters import Counters
from ringcast.protocol.error_factory import ErrorFactory
from ringcast.transports.base import Arrival
from ringcast.wire.failure import Failure
from ringcast.wire.header import Header, Kind


class Notices:
    """Handles the notices that one rank gets from the control plane."""

    def __init__(self, errors: ErrorFactory, contexts: Contexts, counters: Counters, aborter: Aborter) -> None:
        self.aborted: str | None = None
        self.decisions: dict[tuple[int, int], bytes] = {}  # agreements that were decided, by context and number
        self.stuck: dict[tuple[int, int], Deadlock] = {}  # agreements that cannot come about, by the same
        self._errors, self._contexts, self._counters, self._aborter = errors, contexts, counters, aborter
        self._handlers: dict[int, Callable[[Header, bytes], None]] = {
            Kind.BYE: self._on_bye,
            Kind.FAILED: self._on_failed,
            Kind.REVOKE: self._on_revoke,
            Kind.AGREED: self._on_agreed,
            Kind.ABORT: self._on_abort,
            Kind.MISMATCH: self._on_finding,
            Kind.DEADLOCK: self._on_finding,
            Kind.WAKE: self._on_wake,
        }

    def take(self, h: Header, arrival: Arrival) -> None:
        """Act on a notice; messages of other kinds are dropped.

        Raises:
            Broken: it names too many unknown communicators.
        """
        data = bytes(arrival.read()) if arrival.more else b""
        handler = self._handlers.get(h.kind)
        if handler is None:
            self._counters.dropped["malformed"] += 1
        else:
            handler(h, data)

    def _on_bye(self, h: Header, data: bytes) -> None:
        self._counters.leave(h.source, h.length, Failure.decode(data))
        self._aborter.check_left(h.source)

    def _on_failed(self, h: Header, data: bytes) -> None:
        self._aborter.lose(h.source, Failure.decode(data))

    def _on_revoke(self, h: Header, data: bytes) -> None:
        if h.context not in self._contexts:
            self._contexts.name(h)
            if h.context in self._contexts.retired:
                return
        text = data.decode(errors="replace")
        if 0 < h.word <= self._errors.size:
            self._aborter.remote_failure(h.context, h.source, h.word - 1, Failure(text))
        else:
            self._aborter.invalidate(h.context, Revoked(self._errors.rank, text, h.source))

    def _on_agreed(self, h: Header, data: bytes) -> None:
        self.decisions[h.context, h.length] = data

    def _on_wake(self, _: Header, __: bytes) -> None:
        self._counters.keepalives += 1  # it is no progress

    def _on_abort(self, _: Header, data: bytes) -> None:
        self.aborted = data.decode(errors="replace")
        for context, state in list(self._contexts.items()):
            op = state.one()
            place = (op.where, op.waiting_for) if op is not None else ()
            self._aborter.invalidate(context, JobAborted(self._errors.rank, self.aborted, *place))

    def _on_finding(self, h: Header, data: bytes) -> None:
        """Handle a finding from the ranks' reports: this rank's call cannot end."""
        found = decode(data)
        state = self._contexts.get(h.context)
        if isinstance(found, Deadlock) and found.number < 0:
            self.stuck[h.context, -found.number] = found
        elif found is None or state is None:
            self._counters.dropped["malformed" if found is None else "late finding"] += 1
        elif isinstance(found, Mismatch):
            self._aborter.explain(h.context, found.number, found.peer, found.theirs, found.their_site, {found.peer})
        else:
            self._deadlock(state, found)

    def _deadlock(self, state: Context, found: Deadlock) -> None:
        op = next((op for op in state.operations() if op.number == found.number), None)
        if op is None:  # it has ended by itself meanwhile
            self._counters.dropped["late finding"] += 1
            return
        self._aborter.invalidate(op.context, self._errors.deadlock(op, found), set(found.circle))
