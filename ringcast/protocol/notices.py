"""Notices of the control plane: departures, failures, revocations, decisions and findings."""

from __future__ import annotations

from ringcast.errors import JobAborted, Revoked
from ringcast.protocol.aborting import Aborter
from ringcast.protocol.ballots import Ballots
from ringcast.protocol.communicators import Context, Contexts
from ringcast.protocol.counters import Counters
from ringcast.protocol.error_factory import ErrorFactory
from ringcast.transports.base import Arrival
from ringcast.wire.codec import CodecError, decode
from ringcast.wire.control_messages import NOTICES, Abort, Bye, Failed, Notice, Revoke
from ringcast.wire.failure import Broken, Failure
from ringcast.wire.header import Header, Kind
from ringcast.wire.reports import Deadlock, Finding, Mismatch
from ringcast.wire.votes import Decision


class Notices:
    """Handles the notices that one rank gets from the control plane."""

    def __init__(
        self, errors: ErrorFactory, contexts: Contexts, counters: Counters, aborter: Aborter, ballots: Ballots
    ) -> None:
        self.aborted: str | None = None
        self._errors, self._contexts, self._counters, self._aborter = errors, contexts, counters, aborter
        self._ballots = ballots

    def take(self, h: Header, arrival: Arrival) -> None:
        """Act on a message whose kind is none of those between ranks; what is not understood is dropped."""
        if h.kind == Kind.WAKE:
            self._counters.keepalives += 1  # it is no progress
            return
        try:
            notice: Notice = decode(bytes(arrival.read()) if h.kind == Kind.NOTICE and arrival.more else b"", NOTICES)
        except CodecError:
            self._counters.dropped["malformed"] += 1
            return
        if isinstance(notice, Bye | Failed | Revoke) and notice.rank >= self._errors.size:
            self._counters.dropped["foreign"] += 1
            return
        self._act_on(notice)

    def _act_on(self, notice: Notice) -> None:
        match notice:
            case Bye():
                self._counters.leave(notice.rank, notice.sent, notice.failure)
                self._aborter.check_left(notice.rank)
            case Failed():
                self._errors.declared.add(notice.rank)
                self._aborter.lose(notice.rank, notice.failure)
            case Revoke():
                self._on_revoke(notice)
            case Decision():
                self._ballots.decide(notice)
            case Abort():
                self._on_abort(notice.cause)
            case Deadlock() | Mismatch():
                self._on_finding(notice)

    def _on_revoke(self, notice: Revoke) -> None:
        if notice.context in self._contexts.retired:
            return
        if notice.context not in self._contexts:
            try:
                self._contexts.named_by(notice.rank, notice.context)
            except Broken as how:
                self._aborter.broke(notice.rank, how)
                return
        if notice.failed is not None and notice.failed < self._errors.size:
            self._aborter.remote_failure(notice.context, notice.rank, notice.failed, Failure(notice.cause))
        else:
            self._aborter.invalidate(notice.context, Revoked(self._errors.rank, notice.cause, notice.rank))

    def _on_abort(self, cause: str) -> None:
        self.aborted = cause
        self._ballots.abort(cause)
        for context, state in list(self._contexts.items()):
            op = state.one()
            place = (op.where, op.waiting_for) if op is not None else ()
            self._aborter.invalidate(context, JobAborted(self._errors.rank, cause, *place))

    def _on_finding(self, found: Finding) -> None:
        """Handle a finding from the ranks' reports: this rank's call cannot end."""
        state = self._contexts.get(found.context)
        if isinstance(found, Deadlock) and found.number < 0:
            if not self._ballots.deadlock(found):
                self._counters.dropped["late finding"] += 1
        elif state is None:
            self._counters.dropped["late finding"] += 1
        elif isinstance(found, Mismatch):
            self._aborter.explain(found.context, found.number, found.peer, found.theirs, found.their_site, {found.peer})
        else:
            self._deadlock(state, found)

    def _deadlock(self, state: Context, found: Deadlock) -> None:
        op = next((op for op in state.operations() if op.number == found.number), None)
        if op is None:  # it has ended by itself meanwhile
            self._counters.dropped["late finding"] += 1
            return
        self._aborter.invalidate(op.context, self._errors.deadlock(op, found), set(found.cycle))
