"""The protocol between two ranks, as a pure state machine: arrivals and posted transfers in, messages out.

It does no I/O: messages to be sent go into `outbox`, and the endpoint passes them to a transport. Here messages are
checked, matched and dispatched to the parts: `communicators` (and unmatched messages), `counters`, `eager_credits` and
`request_budget` (messages and bytes, by peer), `outbox` (number and header of outgoing messages), `sending` and
`receiving` (the two halves of larger messages), `aborting` and `error_factory` (invalidation, and its errors),
`notices` (of the control plane). Abort calls go down the parts; protocol violations are raised up as `Broken`. The
rules:

1. Every message carries the number of messages between these two ranks. A gap means a lost link, and the peer counts
   as failed. Messages of another job, of an older number or without a proper header are dropped and counted.
2. Small messages go eagerly, on a credit per peer that is returned when the message is *matched*. Without credit the
   sender asks first (RTS). So a root that runs ahead cannot fill a slow rank's memory. Requests that are not matched
   have a budget per peer too; the others wait at their sender (`request_budget`).
3. Larger messages go in segments, under a window of granted bytes.
4. A CTS without RTS is sent only where both sides know the transfer from the schedule. It is withheld only while
   another transfer is really moving and more than `lookahead` bytes of that are missing, never because of an unused
   grant: else legal programs would deadlock; and never where rounds overlap (`Operation.concurrent`). In the same way
   a sender goes on without waiting for DONE while at most `lookahead` bytes are unconfirmed: transports copy their
   frames.
5. After an error the transfers of the communicator are dead: DATA for them is read and dropped, every peer with an
   announced or granted transfer gets REFUSE, and later calls raise until the communicator is replaced.
6. A communicator concerns its members only: the failure of another rank does not affect it, and messages of other
   ranks for it are refused. In a job that continues, the failure of a member ends only the point-to-point calls that
   need it; a collective gives the communicator up. Its number (context) is never reused. Messages for an unknown one
   are kept (its sender is ahead of this rank), for a retired one refused, except probes where all have freed it: their
   senders still wait for that. Such numbers are forgotten after a while. Messages from a failed rank are dropped.
7. A rank that leaves reports how many messages it sent. "Finished" is an error only for a receiver that has seen them
   all and still waits.
8. Notices of the control plane (that a rank has left or failed, ...) come through the same inbox as all messages.
   The transport hands them over after the messages that have arrived.
9. Between ranks that lend memory (`lenders`) a larger message is not granted, by schedule or after RTS: its sender
   offers it, where it lies, and the receiver copies it when a receive is posted, and confirms that. A receiver that
   cannot read there grants it instead. A sender whose call ends with an error takes the memory back before that raises.
   A collective goes on with its next rounds meanwhile, and waits for the readers before it writes there, or ends.
10. A rank that waits for long probes its peers (PROBE), which answer (ECHO), so the loss of a last message shows as
   well. These keepalives do not count as progress, and are counted apart.
11. Point-to-point, a message meets the first posted receive that fits its source and tag, and a receive meets the
   message that has come first (`matching`). What a rank sends to itself is kept, and never travels.
   A synchronous message always asks, and so is complete when it is matched. A message can be taken before the receive
   is there that it will meet: then no other meets it.
12. Messages of a peer are checked, and the memory they use is bounded: a peer that breaks these rules counts as failed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import chain, islice

from ringcast._util.safe_text import is_a
from ringcast.errors import CollectiveMismatch, JobAborted, LinkLost, Revoked
from ringcast.protocol.aborting import Aborter
from ringcast.protocol.ballots import Ballot, Ballots
from ringcast.protocol.communicators import Context, Contexts, Waiting
from ringcast.protocol.counters import Counters
from ringcast.protocol.eager_credits import EagerCredits
from ringcast.protocol.error_factory import ErrorFactory
from ringcast.protocol.lane import Lane, open_lane
from ringcast.protocol.ledger import Ledger
from ringcast.protocol.matching import ANY, Mailbox
from ringcast.protocol.notices import Notices
from ringcast.protocol.operations import NOBODY, Operation, Receive, Send, Sink, Transfer, awaited, on_wire
from ringcast.protocol.outbox import Name, Outbox
from ringcast.protocol.receiving import Receiving
from ringcast.protocol.request_budget import RequestBudget
from ringcast.protocol.sending import Sending
from ringcast.transports.base import Arrival, Frame, Lanes, Loan
from ringcast.wire.call import NOWHERE, Call, Site
from ringcast.wire.failure import Broken, Failure
from ringcast.wire.header import (
    CREDIT_RETURN,
    CTS,
    DATA,
    DONE,
    EAGER,
    EAGER_LIMIT,
    ECHO,
    HELD,
    LENT,
    MORE_ROOM,
    OFFER,
    P2P,
    PAIR,
    PROBE,
    REFUSE,
    RTS,
    SIZE,
    STAGES,
    VERSION,
    Header,
    label_of,
    unpack,
)
from ringcast.wire.joined import join, prefix, split
from ringcast.wire.reports import ENDED, KNOWN, REPORTED, OperationReport, StallReport

_U64 = struct.Struct("<Q")


class Protocol:
    """The state of one rank. Methods never block and never fail because of what a peer sends."""

    def __init__(
        self,
        rank: int,
        size: int,
        nonce: int,
        *,
        lookahead: int = 0,
        lenders: Collection[int] = (),
        continues: bool = False,
    ) -> None:
        self.rank, self.size, self.nonce, self.continues = rank, size, nonce, continues
        self._lenders = lenders
        self._contexts, self._ledger = Contexts(strict=not continues), Ledger(size)
        self._counters = Counters(self._ledger)
        self._errors = ErrorFactory(rank, size)
        self._outbox = Outbox(rank, nonce, self._counters)
        self._eager_credits = EagerCredits(rank, size, self._ledger, self._outbox)
        self._budget = RequestBudget(size, self._ledger, self._outbox, self._eager_credits)
        self._sending = Sending(self._ledger, self._outbox, self._eager_credits, self._budget, lookahead)
        self._receiving = Receiving(self._outbox, self._budget, lookahead)
        parts = self._counters, self._budget, self._outbox, self._sending, self._receiving
        self._aborter = Aborter(self._errors, self._contexts, *parts)
        self.ballots = Ballots(self._errors)
        self._lane: Lane | None = None
        self._notices = Notices(self._errors, self._contexts, self._counters, self._aborter, self.ballots)
        # The public state of the parts.
        self.outbox = self._outbox.queue
        self.withdrawn = self._sending.withdrawn  # memory that was lent, and is the user's again
        self.sent, self.posted = self._counters.sent, self._counters.posted
        self.seen, self.matched = self._counters.seen, self._counters.matched
        self.dropped, self.finished = self._counters.dropped, self._counters.finished
        self.failed, self.declared, self.found = self._errors.failed, self._errors.declared, self._aborter.found
        self._handlers: dict[int, Callable[[Header, Arrival], None]] = {
            EAGER: self._on_eager,
            RTS: self._on_rts,
            CTS: self._on_cts,
            DATA: self._on_data,
            DONE: self._sending.on_done,
            REFUSE: self._aborter.on_refuse,
        }

    @property
    def lookahead(self) -> int:
        """Bytes that may be missing when the next message is granted or sent."""
        return self._sending.lookahead

    @lookahead.setter
    def lookahead(self, size: int) -> None:
        self._sending.lookahead = self._receiving.lookahead = size

    @property
    def payload(self) -> list[int] | memoryview[int]:
        """Bytes of users' data ever sent to each rank, and their sum, without headers; they may be put elsewhere."""
        return self._outbox.payload

    @payload.setter
    def payload(self, counts: list[int] | memoryview[int]) -> None:
        self._outbox.payload = counts

    @property
    def keepalives(self) -> int:
        """Number of keepalives received, and of wake-ups."""
        return self._counters.keepalives

    @property
    def aborted(self) -> str | None:
        """Why the job ends, if the control plane has said that it does."""
        return self._notices.aborted

    # Calls of the endpoint.

    def ballot(self, ballot: Ballot) -> None:
        """Begin to wait for the decision on a vote; `ballots` has it then."""
        if self.aborted is not None:
            ballot.fail(JobAborted(self.rank, self.aborted, ballot.where, ballot.waiting_for))
        else:
            self.ballots.begin(ballot)

    def enrol(self, context: int, members: Collection[int], *, strict: bool = False) -> None:
        """Register a communicator of these ranks; a `strict` one is invalidated as soon as one of them has failed."""
        self._aborter.enrol(context, members, strict=strict)

    def give_up(self, context: int) -> None:
        """Invalidate a communicator if a member has failed: its ranks are to meet in another one."""
        state = self._enrolled(context)
        if self._aborter.give_up(context):
            state.reported = True

    def acknowledge(self, context: int, ranks: frozenset[int]) -> None:
        """Go on without these ranks in receives from any source."""
        if context not in self._contexts.retired:
            self._contexts[context].acknowledged = ranks

    def communicators(self) -> list[int]:
        """Return the numbers of all communicators that are not retired, also of ones that only peers have named."""
        return [*self._contexts]

    def idle(self, context: int) -> bool:
        """Return whether no operation of a communicator is under way."""
        return context not in self._contexts or not self._contexts[context].operations()

    def retire(self, context: int, *, by_all: bool = False) -> None:
        """End the use of a communicator, by all members or by this rank alone; messages that still arrive are refused.

        A probe is answered if all members have freed it: its sender is still in the call in which they do that.
        """
        self.invalidate(context, self._errors.freed())
        self._contexts.retire(context, by_all)

    def begin(
        self,
        context: int,
        call: Call,
        *,
        granted: bool = False,
        align: int = 1,
        p2p: bool = False,
        site: Site = NOWHERE,
        after: Operation | None = None,
    ) -> Operation:
        """Start an operation: the first stage of a call, or the stage that comes `after` another one of the same call.

        Raises:
            PeerFailed, CollectiveMismatch, ...: the error that ended the communicator, the first time; a collective
                in a communicator with a failed member ends the communicator;
            Revoked: afterwards.
        """
        state = self._usable(context)
        if self.failed and not p2p and self._aborter.give_up(context):
            raise self._cause(state)
        op, early = state.begin(context, call, granted, align, p2p, site, after)
        for header in early:
            self._aborter.agree(op, header)
        return op

    def unbegun(self, context: int, call: Call, site: Site, error: BaseException) -> Operation | None:
        """Return the call that could not begin because of `error`; None unless that had just ended its communicator.

        It tells which call this rank would have made where others have found that theirs differ.
        """
        state = self._contexts.get(context)
        return state.unbegun(context, call, site) if state is not None and state.error is error else None

    def _usable(self, context: int) -> Context:
        """Return the state of a communicator in which a call may begin; raises as `begin`."""
        if context in self._contexts.retired:
            raise self._errors.freed()
        if self.aborted is not None:
            self.invalidate(context, JobAborted(self.rank, self.aborted))
        state = self._enrolled(context)
        if state.error is not None:
            raise self._cause(state)
        return state

    def _enrolled(self, context: int) -> Context:
        """Return the state of a communicator; one that nothing has registered has all ranks."""
        state = self._contexts[context]
        if state.members is None:
            self.enrol(context, range(self.size))
        return state

    def _cause(self, state: Context) -> BaseException:
        assert state.error is not None
        if state.reported:
            by = state.error.by if is_a(state.error, Revoked) else None
            return Revoked(self.rank, self.reason(state.error), by)
        state.reported = True
        return state.error

    def end(self, op: Operation) -> None:
        """Finish an operation whose transfers are complete; `op.error` tells if messages are left over."""
        state = self._contexts[op.context]
        if op.number == P2P:
            state.exchanges.discard(op)
            return
        left = state.finish(op)
        if left:
            notified = set[int]()
            for header, frames in left:
                self._budget.forget(header, frames)
                self._aborter.mismatch(op, header, "a call with a message that this rank does not expect", notified)
            state.end(op)

    def next_call(
        self,
        lanes: Lanes,
        context: int,
        call: Call,
        site: Site,
        *,
        granted: bool,
        align: int,
        after: Operation | None = None,
    ) -> Operation | None:
        """Return the operation of the next call, which is not begun; None if it needs the general way.

        With `after`, it is the stage of the same call that follows that one, which is over.
        """
        state = self._contexts.get(context)
        if state is None or state.error is not None or state.members is None or self._notices.aborted is not None:
            return None
        number = state.next_number if after is None else after.number + 1
        op = Operation(context, number, call, granted, align, site)
        return op if self.lane(op, lanes) is not None else None

    def adopt(self, op: Operation) -> None:
        """Begin an operation of `next_call`, some of whose messages are over, or a point-to-point one.

        It fails at once if its communicator has ended since: a notice came in another call, which an operator or the
        handler of a signal has made in the middle of this one.
        """
        state = self._contexts[op.context]
        state.adopt(op)
        if self.failed and op.number != P2P:
            self._aborter.give_up(op.context)
        if state.error is not None and op.error is None:
            self._aborter.end_late(op, state.error)

    def over(self, op: Operation) -> None:
        """End an operation of `next_call`, all of whose messages are over."""
        state = self._contexts[op.context]
        state.calls = op.number // STAGES
        state.end(op)

    def lane(self, op: Operation, lanes: Lanes) -> Lane | None:
        """Return the lane of this rank if the messages of `op` are the only ones under way; none is yet."""
        state = self._contexts[op.context]
        if (
            op.number in state.mail
            or op.number in state.grants
            or self.outbox
            or self._sending.transfers
            or self._receiving.transfers
            or not self._counters.absent.isdisjoint(state.members or ())
        ):
            return None
        return self._lane or self._open_lane(lanes)

    def message_lane(self, context: int, peer: int, lanes: Lanes, tag: int | None = None) -> Lane | None:
        """Return the lane of this rank if a message to `peer` may go by it; or, with a `tag` or ANY, one from there."""
        state = self._contexts.get(context)
        if (
            state is None
            or state.error is not None
            or state.members is None
            or self._notices.aborted is not None
            or self.outbox
            or self._sending.transfers
            or self._receiving.transfers
            or peer in self._counters.absent
        ):
            return None
        if tag is not None and (self._budget.holding or not state.mail.tagged.free((peer, tag))):
            return None
        return self._lane or self._open_lane(lanes)

    def _open_lane(self, lanes: Lanes) -> Lane:
        self._lane = open_lane(self.rank, self.nonce, self._ledger, self._outbox, self._eager_credits, lanes)
        return self._lane

    def lent(self, op: Operation, peer: int, ordinal: int, transfer: int, frames: Sequence[memoryview]) -> Send:
        """Await the confirmation of a message that the lane has offered; return it."""
        return self._sending.lent(op, peer, ordinal, transfer, frames)

    def send(
        self, op: Operation, peer: int, frames: Sequence[memoryview], *, packed: bool = False, tag: int | None = None
    ) -> Send | None:
        """Send `frames` (bytes) as one message; returns None when it is complete already."""
        if op.error is not None:
            return None
        if tag is None:
            ordinal = op.sent.get(peer, 0)
            op.sent[peer] = ordinal + 1
        else:
            ordinal = tag
        count = len(frames)
        total = len(frames[0]) if count == 1 else sum(map(len, frames))
        self.posted[peer] += 1
        if peer == self.rank:
            self._send_to_itself(op, ordinal, total, frames)
            return None
        if peer in self._counters.absent and self._aborter.gone(op, peer):
            return None
        eager_credits, held = self._eager_credits, self._budget.messages
        overtakes = held and op.number == P2P and peer in held
        if count == 1 and total:
            count = 0  # of frames that are joined
        free = total <= EAGER_LIMIT and not (op.granted or op.synchronous or overtakes)
        if free and eager_credits.spend(peer, total, count):
            payload = (memoryview(join(frames)),) if count > 1 else frames if total else ()
            self._outbox.emit(EAGER, 0, peer, op, ordinal, count, total, eager_credits.collect(peer), payload)
            return None
        lend = peer in self._lenders
        send = self._sending.start(op, peer, ordinal, frames, total, lend=lend)
        send.packed = packed
        if lend:
            self._sending.ask(send, lend=True)
        elif not op.granted:
            self._sending.ask(send)
        elif (grant := self._contexts[op.context].grants[op.number].pop((peer, ordinal), None)) is not None:
            self._budget.forget(grant)
            try:
                self._granted(send, grant)
            except Broken as how:
                self._aborter.broke(peer, how)
        else:
            self._sending.promised[peer, op.context, op.number, ordinal] = send
            self._budget.lend(peer)
        return send

    def receive(self, op: Operation, peer: int, sink: Sink, *, tag: int | None = None, ahead: bool = False) -> Receive:
        """Post a receive; `op.pending` holds it until it is complete.

        Point-to-point, `peer` and `tag` may be ANY. With `ahead` it is the one of the next round, which `op.ahead`
        holds: it is granted when this round's receive is complete, also while this round's send is under way, and
        `catch_up` moves it to `op.pending`.
        """
        if tag is None:
            ordinal = op.received.get(peer, 0)
            op.received[peer] = ordinal + 1
        else:
            ordinal = tag
        recv = Receive(op, peer, ordinal, sink)
        if op.error is not None:
            return recv
        if ahead:
            op.ahead = recv
        else:
            op.pending.add(recv)
        found = self._contexts[op.context].mail[op.number].post((peer, ordinal), recv)
        if found is not None:
            self._meet_waiting(recv, found)
        elif op.granted and peer not in self._lenders:
            self._receiving.allow(recv)
        if (peer in self._counters.absent or peer == ANY) and recv in op.pending:
            self._await_senders(recv)
        if self._budget.holding and (recv in op.pending or op.ahead is recv) and _unmet(recv):
            self._lend(awaited(recv))
        return recv

    def look(self, context: int, peer: int, tag: int, sink: Sink) -> bool:
        """Return whether the point-to-point message has come that a receive would match now: `sink` gets its sizes.

        Raises:
            RingcastError: see `begin`.
        """
        state = self._usable(context)
        if self._has_come(state, peer, tag, sink):
            return True
        if (failed := self._failed_source(state, peer)) is not None:
            raise self._errors.peer_failed(failed, None)
        return False

    def _has_come(self, state: Context, peer: int, tag: int, sink: Sink) -> bool:
        found = state.mail.tagged.peek((peer, tag))
        if found is None:
            self._lend((peer,) if peer != ANY else [*self._budget.holding])
        return found is not None and self._announce(sink, *found)

    def take(self, context: int, peer: int, tag: int, sink: Sink) -> Waiting | None:
        """Take the message that a receive would match now: `sink` gets its sizes, and `receive_taken` the rest.

        Raises:
            RingcastError: see `begin`.
        """
        return self._contexts[context].mail.tagged.take((peer, tag)) if self.look(context, peer, tag, sink) else None

    def receive_taken(self, op: Operation, sink: Sink, taken: Waiting) -> None:
        """Receive a message that was taken; `op.pending` holds the receive until it is complete."""
        header = taken[0]
        lost = header.kind == RTS and header.source in self.failed
        if op.error is not None or (lost and self._aborter.gone(op, header.source)):
            return
        recv = Receive(op, header.source, header.ordinal, sink)
        op.pending.add(recv)
        self._meet_waiting(recv, taken)

    def _meet_waiting(self, recv: Receive, found: Waiting) -> None:
        """Match a receive with a message that has waited for it."""
        if found[0].kind == RTS:
            self._budget.forget(*found)
        try:
            self._meet(recv, *found)
        except Broken as how:
            self._aborter.broke(found[0].source, how)
        if found[0].source in self._budget.holding and self._needs(found[0].source):
            self._budget.lend(found[0].source)

    def await_message(self, op: Operation, peer: int, tag: int, sink: Sink) -> None:
        """Wait for a point-to-point message without taking it: `sink` gets its announcement, and nothing else."""
        state = self._usable(op.context)
        if not self._has_come(state, peer, tag, sink):
            recv = Receive(op, peer, tag, sink)
            op.pending.add(recv)
            state.probes.append(recv)
            self._await_senders(recv)

    def cancel(self, op: Operation) -> bool:
        """End a receive point-to-point, and return whether that was possible: no message has come for it."""
        recv = next(iter(op.pending), None)
        if not isinstance(recv, Receive) or recv.total is not None:
            return False
        self._contexts[op.context].mail.tagged.cancel((recv.peer, recv.ordinal), recv)
        op.pending.clear()
        self.end(op)
        return True

    def _lend(self, peers: Collection[int]) -> None:
        """Lend room to each of these peers that holds requests back, as the program waits for its message."""
        for peer in self._budget.holding.keys() & peers:
            self._budget.lend(peer)

    def _needs(self, peer: int) -> bool:
        """Return whether the program waits for a message or a grant of a peer that has not come."""
        if any(key[0] == peer for key in self._sending.promised):
            return True
        ops = (op for state in self._contexts.values() for op in state.operations())
        return any(_unmet(t) and peer in awaited(t) for op in ops for t in (*op.pending, *filter(None, (op.ahead,))))

    def _await_senders(self, recv: Receive) -> None:
        """Note the ranks that may send this message, and end the operation if none of them will."""
        op, peer = recv.operation, recv.peer
        if peer == ANY:
            state = self._contexts[op.context]
            others = frozenset(member for member in state.members or () if member != self.rank) or {self.rank}
            recv.sources = frozenset(others - state.acknowledged or others)
            for member in recv.sources.intersection(self._counters.absent):
                if recv in op.pending and (member in self.failed or self._aborter.needs(op, member)):
                    self._aborter.gone(op, member)
        elif peer in self._counters.absent:
            self._aborter.gone(op, peer)

    def _failed_source(self, state: Context, peer: int) -> int | None:
        """Return the failed rank that ends a receive from `peer`, or from any source; None if there is none."""
        if peer != ANY:
            return peer if peer in self.failed else None
        return next((rank for rank in state.failed(self.failed) if rank not in state.acknowledged), None)

    def catch_up(self, op: Operation) -> None:
        """Wait from now on for the receive that was posted ahead, if it is not complete."""
        recv, op.ahead = op.ahead, None
        if recv is not None:
            op.pending.add(recv)
            if recv.peer in self.finished:
                self._aborter.gone(op, recv.peer)

    def settle(self, op: Operation) -> None:
        """Wait from now on until others have read all that the operation has lent."""
        waits = op.lending.copy()
        op.pending |= waits
        op.lending.clear()
        for peer in {send.peer for send in waits}.intersection(self.finished):
            self._aborter.gone(op, peer)

    def probe(self, stalled: Iterable[Operation]) -> None:
        """Probe the ranks that operations wait for, whether they are in the same calls; when no message came lately.

        Without probes, ranks that all wait for each other, as two roots of a gather, would not detect the mismatch.
        """
        left = set()
        for op in stalled:
            if isinstance(op, Ballot):
                continue
            for peer, tag in {peer: t.ordinal for t in op.pending for peer in awaited(t)}.items():
                if peer == self.rank:
                    continue
                if peer in self.finished:
                    left.add(peer)
                else:
                    self._counters.keepalives_sent[peer] += 1
                    self._outbox.emit(CTS, PROBE, peer, op, on_wire(tag), 0, 0, 0)
        for peer in left:
            if self._counters.probes_exhausted(peer):
                missing = self.finished[peer] - self.seen[peer]
                self.lose(peer, f"it finished, but its last {missing} messages did not arrive")

    def under_way(self) -> list[Operation]:
        """Return the operations that are not complete."""
        return [*self.ballots.under_way(), *(op for state in self._contexts.values() for op in state.operations())]

    def report(self, awaited: Sequence[Operation], *, every: bool, seconds: float, times: int) -> StallReport:
        """Return the report of a program that has waited for `awaited` (`every` one, or any of them) for `seconds`.

        It is for the control plane (`ringcast.control.deadlocks`), and tells of all operations that are under way.
        """
        others = (op for op in self.under_way() if op not in awaited)
        told = [self._report_of(op) for op in islice(chain(awaited, others), REPORTED)]
        sent, seen = self._counters.without_keepalives()
        contexts = dict.fromkeys(op.call.context for op in told)
        ended = [op.call_record for context in contexts for op in self._contexts[context].last_ended(ENDED)][:ENDED]
        facts = self._contexts.begun(KNOWN), sent, seen, tuple(ended)
        return StallReport(self.rank, tuple(told), len(awaited), every, *facts, seconds=seconds, times=times)

    def _report_of(self, op: Operation) -> OperationReport:
        if isinstance(op, Ballot):  # the control plane knows better who has not voted
            return OperationReport(op.call_record, None, op.waiting_for, op.waiting_for, ())
        withheld = self._receiving.withheld_in(op)
        waits = op.pending - withheld
        # Of a send, and a receive from any rank, the send alone: that needs one certain rank.
        known = {t for t in waits if t.peer != ANY} or waits
        return OperationReport(
            op.call_record,
            op.round,
            waits=_ranks(known),
            sources=_ranks(t for t in known if isinstance(t, Receive)),
            owes=_ranks(withheld),
            every=any(t.peer != ANY for t in known),
        )

    # Invalidation of communicators.

    @property
    def gave_up(self) -> bool:
        """Whether messages under way were lost: some rank has failed, or a communicator was invalidated."""
        return bool(self.failed or self._contexts.causes())

    def whole(self, context: int) -> bool:
        """Whether a communicator was neither freed nor invalidated, and no member of it has failed."""
        return not self.revoked(context) and not self._contexts[context].failed(self.failed)

    @property
    def hopeless(self) -> bool:
        """Whether the job was aborted, or all communicators invalidated, so that no message counts any more."""
        return self.aborted is not None or 0 < len(self._contexts) == len(self._contexts.causes())

    @property
    def blamed(self) -> tuple[int, ...]:
        """The ranks that failed, and the causes that the errors of this rank's communicators name."""
        return tuple(sorted({*self.failed, *self._contexts.blamed}))

    @property
    def lost(self) -> frozenset[int]:
        """The ranks that a `PeerFailed` of this rank names; another rank may have told of them."""
        return self._contexts.lost

    def error_of(self, op: Operation) -> BaseException | None:
        """Return the error that ended `op`, as complete as it is known by now."""
        error = self._contexts[op.context].error
        return error if is_a(op.error, CollectiveMismatch) and error is not None else op.error

    def unreported(self) -> CollectiveMismatch | None:
        """Return a mismatch that was noticed after the last call."""
        return self._contexts.unreported()

    def reason(self, error: BaseException) -> str:
        """Return the description of an error for other ranks: its first cause, not the rank that passed it on."""
        return self._errors.reason(error)

    def invalidate(self, context: int, error: BaseException) -> None:
        """Invalidate a communicator: its operations end with `error`, its peers are refused, later calls raise."""
        self._aborter.invalidate(context, error)

    def revoke(self, context: int, error: BaseException) -> None:
        """Invalidate a communicator with an error that the caller raises: from now on calls raise Revoked."""
        self.invalidate(context, error)
        self._contexts[context].reported = True

    def withdraw(self) -> None:
        """Withdraw all memory that is lent, where this rank can say nothing more."""
        self._sending.withdraw()

    def revoked(self, context: int) -> bool:
        """Return whether a communicator was freed or invalidated, for whatever reason."""
        return self._contexts.given_up(context)

    def fail(self, op: Operation, error: BaseException) -> None:
        """End an operation, and with it its communicator, with an error that the caller raises."""
        self.revoke(op.context, error)

    def lose(self, peer: int, why: Failure | str) -> None:
        """Count `peer` as failed; see `Aborter.lose`."""
        self._aborter.lose(peer, why)

    # Arrivals.

    def handle(self, arrival: Arrival) -> None:
        """Handle one message. Frames that are not read are dropped by the transport."""
        try:
            header = unpack(arrival.header)
        except ValueError:
            self.dropped["malformed"] += 1
            return
        if header.nonce != self.nonce or header.source >= self.size:
            self.dropped["foreign"] += 1
            return
        source, handler = header.source, self._handlers.get(header.kind)
        try:
            if handler is None:
                self._notices.take(header, arrival)
                return
            seen = self.seen[source]
            if header.pair != seen & PAIR or source == self.rank or source in self.failed:
                self._out_of_turn(header)
                return
            self.seen[source] = seen + 1
            if header.context not in self._contexts:
                self._contexts.name(header)
            handler(header, arrival)
        except Broken as how:
            self._aborter.broke(source, how)
        except LinkLost as lost:
            link = f"the link from rank {source} to rank {self.rank}"
            self.lose(source, f"{link} broke off in the middle of a message: {lost.cause}")
        if source in self.finished:
            self._counters.note_arrival(source)
            self._aborter.check_left(source)

    def _out_of_turn(self, h: Header) -> None:
        """Drop a message that is not the next one of a rank that takes part."""
        if h.source == self.rank:  # no rank sends to itself
            self.dropped["foreign"] += 1
        elif h.source in self.failed:
            self.dropped["zombie"] += 1
        elif (missing := self._counters.missing(h)) == 0:
            self.dropped["replayed"] += 1
        else:
            link = f"the link from rank {h.source} to rank {self.rank}"
            self.lose(h.source, f"{link} is lost: {missing} messages before number {h.pair} are missing")

    def _on_eager(self, h: Header, arrival: Arrival) -> None:
        data, count = arrival.header, h.transfer
        if len(data) != SIZE + h.length + (prefix(count) if count > 1 else 0):
            raise Broken(f"an eager message of {h.length} bytes in {count} joined frames that do not add up")
        self._eager_credits.hold(h)
        if self._aborter.dead(h, answer=False):
            self._eager_credits.give_back(h)
            return
        payload = memoryview(data)[SIZE:]
        self._deliver(h, _apart(payload, count) if count > 1 else (payload,) if count or h.length else ())

    def _on_rts(self, h: Header, arrival: Arrival) -> None:
        sizes = arrival.read() if arrival.more else b""
        if len(sizes) % _U64.size or sum(size for (size,) in _U64.iter_unpack(sizes)) != h.length:
            raise Broken(f"a request for {h.length} bytes whose frames do not add up")
        self._eager_credits.refund(h)
        self._budget.arrive(h, len(sizes))
        if not self._aborter.dead(h):
            if arrival.loan is not None:
                self._contexts[h.context].loans[h.source, h.transfer] = arrival.loan
            self._deliver(h, [sizes])

    def _deliver(self, h: Header, frames: Sequence[Frame]) -> None:
        state = self._contexts[h.context]
        op = state.active.get(h.operation)
        if op is None and h.operation != P2P and state.begun(h.operation):
            self._forget_eager(h)
            self._aborter.unexpected(h)
            return
        if op is not None and not self._aborter.agree(op, h):
            self._forget_eager(h)
            return
        recv = state.mail[h.operation].arrive((h.source, h.ordinal), (h, frames))
        if recv is not None:
            self._meet(recv, h, frames)
            return
        if h.kind == RTS:
            self._budget.keep(h, len(frames[0]))
        for probe in [probe for probe in state.probes if _fits(probe, h)] if h.operation == P2P else ():
            state.probes.remove(probe)
            if self._announce(probe.sink, h, frames):
                probe.operation.complete(probe)

    def _meet(self, recv: Receive, h: Header, frames: Sequence[Frame]) -> None:
        """Match a posted receive with its message; for collectives the calls were compared when it arrived."""
        op = recv.operation
        loan = self._contexts[op.context].loans.pop((h.source, h.transfer), None) if h.kind == RTS else None
        if op.number == P2P:
            if not self._aborter.agree(op, h):
                self._forget_eager(h)
                return
            recv.peer, recv.ordinal = op.met = h.source, h.ordinal
            recv.sources = NOBODY
        if recv.total is None:
            if not self._announce(recv.sink, h, frames):
                self._forget_eager(h)
                return
            recv.total = h.length
        elif recv.total != h.length:
            self._forget_eager(h)
            self._aborter.mismatch(op, h, f"a message of {h.length} bytes where {recv.total} are expected")
            return
        if h.kind == RTS:
            if not (h.flags & OFFER and self._fetched(recv, h, loan)):
                self._receiving.start(recv, h)
                self._receiving.allow(recv)
            return
        offset = 0
        try:
            for frame in frames:
                recv.sink.put(offset, memoryview(frame))
                offset += len(frame)
        except BaseException as error:  # of the user's operator: it ends this call, but breaks off nothing here
            self.invalidate(op.context, error)
        self._eager_credits.give_back(h)
        self.matched[h.source] += 1
        self._outbox.count_received(h.source, h.length)
        op.complete(recv)
        if h.source == self.rank:
            self._sending.finish((h.source, h.transfer))

    def _fetched(self, recv: Receive, h: Header, loan: Loan | None) -> bool:
        """Return whether a message that was offered needs no grant: it was copied, or an operator has failed."""
        try:
            fetched = self._receiving.fetch(recv, h, loan)
        except Broken:
            raise
        except BaseException as error:  # of the user's operator, as below
            self.invalidate(recv.operation.context, error)
            return True
        if fetched:
            self.matched[h.source] += 1
            self._outbox.count_received(h.source, h.length)
        return fetched

    def _announce(self, sink: Sink, h: Header, frames: Sequence[Frame]) -> bool:
        """Announce the sizes of a message to a sink of any size; return whether it can take them."""
        sizes = [len(f) for f in frames] if h.kind == EAGER else [size for (size,) in _U64.iter_unpack(frames[0])]
        try:
            sink.announce(h.source, h.ordinal, sizes)
        except MemoryError as error:  # that is no fault of the peer
            self.invalidate(h.context, error)
            return False
        except (ValueError, OverflowError) as error:
            self.lose(h.source, f"it announced a message of {h.length} bytes that cannot be taken: {error}")
            return False
        return True

    def _send_to_itself(self, op: Operation, tag: int, total: int, frames: Sequence[memoryview]) -> None:
        """Deliver a copy of a message of this rank to itself, which is kept until it is received, however large."""
        transfer = self._sending.start(op, self.rank, tag, frames, total, lend=False).transfer if op.synchronous else 0
        fields = op.context, P2P, tag, 0, transfer, total, 0, op.fingerprint
        self._deliver(Header(VERSION, EAGER, 0, self.rank, self.nonce, *fields), [bytes(frame) for frame in frames])

    def _forget_eager(self, h: Header) -> None:
        """Return the credit of a message that will not be matched."""
        if h.kind == EAGER:
            self._eager_credits.give_back(h)

    def _on_cts(self, h: Header, _: Arrival) -> None:
        if h.flags & ~LENT:
            self._on_flagged(h)
        elif h.transfer:
            send = self._sending.transfers.get((h.source, h.transfer))
            if send is None:
                self.dropped["stale grant"] += 1
            else:
                self._sending.credit(send, h.word, h.length)
        else:
            self._budget.arrive(h, 0)
            if self._aborter.dead(h):
                return
            send = self._sending.promised.pop((h.source, h.context, h.operation, h.ordinal), None)
            if send is None:
                self._keep_cts(h)
            else:
                self._granted(send, h)

    def _on_flagged(self, h: Header) -> None:
        """Handle a CTS that grants nothing."""
        if h.flags & CREDIT_RETURN:
            self._eager_credits.refund(h)
        elif h.flags & HELD:
            self._budget.holding[h.source] = h.word
            if self._needs(h.source):
                self._budget.lend(h.source)
        elif h.flags & MORE_ROOM:
            self._budget.borrow(h)
        else:
            self._counters.count_keepalive(h.source)
            if h.flags & PROBE:
                self._on_probe(h)

    def _keep_cts(self, h: Header) -> None:
        """Keep a grant for a message that this rank has not sent yet."""
        state = self._contexts[h.context]
        op = state.active.get(h.operation)
        if op is not None:
            if not self._aborter.agree(op, h):
                return
        elif state.begun(h.operation):
            self._aborter.unexpected(h)
            return
        grants = state.grants[h.operation]
        if (h.source, h.ordinal) in grants:
            raise Broken(f"it granted message {h.ordinal} of operation {label_of(h.operation)} twice")
        grants[h.source, h.ordinal] = h
        self._budget.keep(h, 0)

    def _on_probe(self, h: Header) -> None:
        """Answer a probe; one in another call is a mismatch, one in a call that this rank has not begun is not."""
        if self._contexts.over(h.context):
            self._echo(h)
            return
        if self._aborter.dead(h):
            return
        state = self._contexts[h.context]
        op, ended = state.active.get(h.operation), state.ended.get(h.operation)
        if op is not None and op.fingerprint != h.fingerprint:
            self._aborter.mismatch(op, h, op.call.difference(h.fingerprint))
        elif ended is not None and ended.fingerprint != h.fingerprint:
            self._aborter.unexpected(h)
        else:
            self._echo(h)

    def _echo(self, h: Header) -> None:
        self._counters.keepalives_sent[h.source] += 1
        name = Name(h.context, h.operation, h.fingerprint)
        self._outbox.emit(CTS, ECHO, h.source, name, h.ordinal, 0, 0, 0)

    def _granted(self, send: Send, h: Header) -> None:
        """Handle the first grant of a message that was sent without RTS."""
        op = send.operation
        if not self._aborter.agree(op, h):
            return
        if h.length != send.total:
            self._aborter.mismatch(op, h, f"a receive of {h.length} bytes where {send.total} are sent")
            return
        self._sending.credit(send, h.word, h.length)

    def _on_data(self, h: Header, arrival: Arrival) -> None:
        recv = self._receiving.transfers.get((h.source, h.transfer)) or self._bind(h)
        if recv is None:
            self.dropped["dead data"] += 1
            return
        try:
            self._receiving.take(recv, h, arrival)
        except (Broken, LinkLost):
            raise
        except BaseException as error:  # of the user's operator, as above
            self.invalidate(recv.operation.context, error)
            return
        if self._receiving.advance(recv):
            self.matched[h.source] += 1
            self._outbox.count_received(h.source, recv.received)

    def _bind(self, h: Header) -> Receive | None:
        """Find the receive that granted this transfer before it had a number."""
        state = self._contexts.get(h.context)
        op = state.active.get(h.operation) if state else None
        if state is None or op is None or not op.granted:
            return None
        mailbox = state.mail[h.operation]
        assert isinstance(mailbox, Mailbox), "rounds are granted in collectives only"
        recv = mailbox.take_posted((h.source, h.ordinal))
        if recv is not None:
            self._receiving.start(recv, h)
        return recv


def _apart(payload: memoryview, count: int) -> list[memoryview]:
    """Return the frames of an eager message in which `count` frames are joined.

    Raises:
        Broken: they are not.
    """
    try:
        return split(payload, count)
    except ValueError as error:
        raise Broken(f"an eager message that cannot be read: {error}") from None


def _ranks(transfers: Iterable[Transfer]) -> tuple[int, ...]:
    """Return the ranks that transfers wait for, as a report has them."""
    return tuple(sorted(set().union(*map(awaited, transfers))))


def _unmet(transfer: Transfer) -> bool:
    """Return whether this transfer, which is not complete, is a receive for which no message has come."""
    return isinstance(transfer, Receive) and not transfer.transfer


def _fits(recv: Receive, h: Header) -> bool:
    """Return whether a receive, which may be open, takes such a message."""
    return recv.peer in (h.source, ANY) and recv.ordinal in (h.ordinal, ANY)
