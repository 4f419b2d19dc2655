"""Aborting communicators: on local errors and on notices of others; waiting peers are refused.

These are the rules 5 to 7 in `ringcast.protocol.machine`.
"""

from __future__ import annotations

from collections.abc import Collection

from ringcast.errors import Revoked
from ringcast.protocol.communicators import Context, Contexts
from ringcast.protocol.counters import Counters
from ringcast.protocol.error_factory import ErrorFactory, own_call, own_side
from ringcast.protocol.matching import ANY
from ringcast.protocol.operations import Operation, Receive, Send, Transfer, awaited, on_wire
from ringcast.protocol.outbox import Name, Outbox
from ringcast.protocol.receiving import Receiving
from ringcast.protocol.request_budget import RequestBudget
from ringcast.protocol.sending import Sending
from ringcast.transports.base import Arrival
from ringcast.wire.codec import CodecError, decode
from ringcast.wire.failure import MAX_TEXT, Broken, Failure
from ringcast.wire.header import ANSWER, CTS, EAGER, GIVEN_UP_BY, LOST, MISMATCH, OFFER, P2P, REFUSE, RTS, Header

LONGEST = MAX_TEXT  # bytes that are kept of the reason for which a communicator has ended …
LONGEST_AHEAD = 10_000  # … and if this rank has not come to it yet


class Aborter:
    """Invalidates communicators of one rank, with all transfers under way in them."""

    def __init__(
        self,
        errors: ErrorFactory,
        contexts: Contexts,
        counters: Counters,
        budget: RequestBudget,
        outbox: Outbox,
        sending: Sending,
        granting: Receiving,
    ) -> None:
        self.found: list[tuple[int, int]] = []  # (context, failed rank): failures that the others have to hear of
        self._errors, self._contexts, self._counters, self._budget = errors, contexts, counters, budget
        self._outbox, self._sending, self._receiving = outbox, sending, granting

    # A communicator, and all that is under way in it.

    def invalidate(self, context: int, error: BaseException, notified: set[int] | None = None) -> None:
        """Invalidate a communicator: its operations end with `error`, its peers are refused, later calls raise.

        `notified` are peers that know already.
        """
        state = self._contexts[context]
        if state.error is not None:
            return
        state.error = error
        notified = set() if notified is None else notified
        for op in state.operations():
            self._kill(op, error, notified)
        for header, frames in state.waiting():
            self._budget.forget(header, frames)
            if header.kind != EAGER:
                self._pass_on(header.source, context, header.operation, header.ordinal, error, notified)
        self._sending.drop_trailing(lambda send: send.operation.context == context)
        state.clear()
        self._budget.go_on()
        self._receiving.release()

    def _kill(self, op: Operation, error: BaseException, notified: set[int]) -> None:
        op.fail(error)
        ahead = () if op.ahead is None else (op.ahead,)
        for transfer in (*op.pending, *op.lending, *ahead):
            self._drop(transfer)
            if transfer.peer != ANY:
                self._pass_on(transfer.peer, op.context, op.number, on_wire(transfer.ordinal), error, notified)

    def end_late(self, op: Operation, error: BaseException) -> None:
        """End an operation that begins in a communicator which that error has ended."""
        self._kill(op, error, set())
        self._contexts[op.context].clear()

    def _drop(self, transfer: Transfer) -> None:
        if isinstance(transfer, Send):
            self._sending.drop(transfer)
        else:
            self._receiving.drop(transfer)

    def _pass_on(
        self, peer: int, context: int, number: int, ordinal: int, error: BaseException, notified: set[int]
    ) -> None:
        """Refuse a peer's transfer with the error that ended the communicator."""
        payload, flags, word = self._errors.refusal(error)
        self.refuse(peer, context, number, ordinal, payload, notified, flags, word)

    def refuse(
        self,
        peer: int,
        context: int,
        number: int,
        ordinal: int,
        payload: bytes,
        notified: set[int],
        flags: int = 0,
        word: int = 0,
    ) -> None:
        """Refuse a peer's message, unless the peer is one of the `notified`."""
        if peer in notified or peer in self._errors.failed or peer == self._errors.rank:
            return
        notified.add(peer)
        self._outbox.emit(REFUSE, flags, peer, Name(context, number), ordinal, 0, len(payload), word, [payload])

    # A rank that failed or left.

    def enrol(self, context: int, members: Collection[int], *, strict: bool = False) -> None:
        """Register a communicator of these ranks; some of them may have failed by now."""
        self._contexts.enrol(context, members, strict)
        state = self._contexts[context]
        if state.strict or not self._errors.declared.issuperset(state.failed(self._errors.failed)):
            self.give_up(context)

    def give_up(self, context: int) -> bool:
        """Invalidate a communicator if one of its members has failed, and have the others notified; return whether."""
        state = self._contexts[context]
        failed = state.failed(self._errors.failed)
        if state.error is not None or not failed:
            return False
        self.found.append((context, failed[0]))
        self.invalidate(context, self._errors.peer_failed(failed[0], None))
        return True

    def lose(self, peer: int, why: Failure | str) -> None:
        """Count `peer` as failed: of the communicators that it shares with this rank, some are invalidated.

        These are the `strict` ones, and those with a collective under way. In the others the calls end that need this
        peer. A text is a failure that this rank detected itself: it invalidates all, and the other members have to be
        notified of it.
        """
        if peer in self._errors.failed:
            return
        found = isinstance(why, str)
        self._errors.failed[peer] = Failure(why) if isinstance(why, str) else why
        self._counters.absent.add(peer)
        for context, state in list(self._contexts.items()):
            if state.members is None:
                state.forget(peer)
            elif peer in state.members:
                if found and state.error is None:
                    self.found.append((context, peer))
                if found or state.strict or state.active:
                    op = state.one()
                    self.invalidate(context, self._errors.peer_failed(peer, op.where if op is not None else None))
                else:
                    self._go_on_without(state, peer)
        self._sending.drop_trailing(lambda send: send.peer == peer)

    def _go_on_without(self, state: Context, peer: int) -> None:
        """End the exchanges with a rank that failed; its messages that no receive has met are dropped."""
        state.forget(peer)
        for op in state.operations():
            if any(peer in awaited(transfer) for transfer in op.pending):
                self.gone(op, peer)

    def gone(self, op: Operation, peer: int) -> bool:
        """End `op`, which needs `peer`, if that has failed, or has left and nothing more comes; return whether it has.

        An exchange gives up nothing but itself, after its transfers with other ranks have ended.
        """
        if peer in self._errors.failed:
            error = self._errors.peer_failed(peer, op.where)
        elif self._counters.seen_all(peer):
            receives = op.number == P2P and any(isinstance(transfer, Receive) for transfer in op.pending)
            tags = self._contexts[op.context].tags_from(peer) if receives else ()
            error = self._errors.departed(peer, op, self._counters.exit_records[peer], tags)
        else:
            return False
        state = self._contexts[op.context]
        if op.number != P2P or state.strict:
            self.invalidate(op.context, error)
            return True
        op.lost = op.lost or error
        for transfer in [transfer for transfer in op.pending if peer in awaited(transfer)]:
            self._drop(transfer)
            if isinstance(transfer, Receive) and transfer.total is None:
                state.withdraw(transfer)
            op.complete(transfer)
        self._budget.go_on()
        self._receiving.release()
        return True

    def broke(self, peer: int, how: Broken) -> None:
        """Count a peer that violates the protocol as failed."""
        self.lose(peer, f"it broke the protocol: {how}")

    def check_left(self, peer: int) -> None:
        """End the operations that wait for a rank that has left."""
        for state in list(self._contexts.values()):
            for op in state.operations():
                if op.error is None and self.needs(op, peer):
                    self.gone(op, peer)

    def needs(self, op: Operation, peer: int) -> bool:
        """Return whether an operation needs a rank that has left; of several that would do, it needs the last one."""
        gone = self._counters.seen_all(peer)
        for transfer in (*op.pending, *op.lending):
            if transfer.peer == peer:
                return True
            if isinstance(transfer, Receive) and peer in transfer.sources and gone:
                if len(transfer.sources) == 1:
                    return True
                transfer.sources -= {peer}
        return False

    # Messages that do not match.

    def agree(self, op: Operation, h: Header) -> bool:
        """Return whether a message belongs to the same call; otherwise both sides get a mismatch."""
        # Both ends decide from the call whether to grant, so another decision is another call. What is lent is neither.
        lent = h.kind == RTS and h.flags & OFFER
        if h.fingerprint == op.fingerprint and (lent or (h.kind == CTS) == op.granted):
            return True
        self.mismatch(op, h, op.call.difference(h.fingerprint))
        return False

    def mismatch(self, op: Operation, h: Header, theirs: str, notified: set[int] | None = None) -> None:
        """Invalidate an operation's communicator, as the sender of this message made another call: `theirs`."""
        notified = set() if notified is None else notified
        error = self._errors.mismatch(op, h.source, theirs)
        self.refuse(h.source, op.context, op.number, h.ordinal, own_call(op), notified, MISMATCH)
        self.invalidate(op.context, error, notified)

    def unexpected(self, h: Header) -> None:
        """Invalidate a communicator because of a message of an operation that has ended here."""
        error = self._errors.unexpected(self._contexts[h.context], h)
        self.refuse(h.source, h.context, h.operation, h.ordinal, own_side(error), set(), MISMATCH)
        self.invalidate(h.context, error)

    def dead(self, h: Header, answer: bool = True) -> bool:
        """Return whether a message is for an invalidated or retired communicator; if so, its sender is refused."""
        state = self._contexts.get(h.context)
        if state is None:
            error: BaseException = self._errors.freed()
        elif state.error is not None:
            error = state.error
        elif state.members is None or h.source in state.members:
            return False
        else:
            error = Revoked(self._errors.rank, f"rank {h.source} is no member of this communicator")
        self._counters.dropped["dead"] += 1
        if answer and (state is None or (h.source, 0) not in state.notified):  # once: that gives up the whole of it
            if state is not None:
                state.notified.add((h.source, 0))
            self._pass_on(h.source, h.context, h.operation, h.ordinal, error, set())
        return True

    # Notices of other ranks.

    def on_refuse(self, h: Header, arrival: Arrival) -> None:
        """Handle a REFUSE: a peer has invalidated a communicator, for the reason in the payload."""
        if h.context in self._contexts.retired or self._contexts.foreign(h):
            return
        state = self._contexts[h.context]
        longest = LONGEST if state.namer is None else LONGEST_AHEAD
        payload = bytes(arrival.read()) if arrival.more else b""
        if h.flags & LOST and h.word < self._errors.size:
            self.remote_failure(h.context, h.source, h.word, _failure(payload).clipped(longest))
            return
        text = payload[:longest].decode(errors="replace")
        if not h.flags & MISMATCH:
            own, size = self._errors.rank, self._errors.size
            told = h.flags & GIVEN_UP_BY and h.word < size and h.word != own  # a rank knows what it has given up itself
            self.invalidate(h.context, Revoked(own, text, h.word if told else h.source))
            return
        once = h.source, MISMATCH
        notified = {h.source} if h.flags & ANSWER or once in state.notified else set()
        if not h.flags & ANSWER:
            state.notified.add(once)
        mine = own_call(state.known(h.operation))
        self.refuse(h.source, h.context, h.operation, h.ordinal, mine, notified, MISMATCH | ANSWER)
        theirs, _, site = text.partition("\n")
        self.explain(h.context, h.operation, h.source, theirs, site, notified)

    def remote_failure(self, context: int, source: int, peer: int, why: Failure) -> None:
        """Invalidate a communicator in which `source` detected that `peer` failed."""
        self.invalidate(context, self._errors.reported_failure(source, peer, self._contexts[context].one(), why))

    def explain(self, context: int, number: int, peer: int, theirs: str, their_site: str, notified: set[int]) -> None:
        """Invalidate a communicator in which `peer` made another call, which is fully known now."""
        state = self._contexts[context]
        error = self._errors.explained(state, number, peer, theirs, their_site)
        if state.mismatch_with(peer) is not None:  # the same, now with their whole call
            state.error = error
        self.invalidate(context, error, notified)


def _failure(payload: bytes) -> Failure:
    """Return the failure in the payload of a REFUSE.

    Raises:
        Broken: there is none.
    """
    try:
        failure: Failure = decode(payload, (Failure,))
    except CodecError as error:
        raise Broken(f"it reported a failed rank in a way that is not understood: {error}") from None
    return failure
