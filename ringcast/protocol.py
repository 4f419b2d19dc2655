"""The protocol between two ranks, as a pure state machine: arrivals and posted transfers in, messages out.

It does no I/O: what it wants sent it puts into `outbox`, and the endpoint hands that to a transport. Everything that
decides whether a message is sent, kept, matched, refused or dropped is in this file. The rules:

1. Every message carries the number of messages between these two ranks. A gap means a lost link, and the peer counts
   as failed. Messages of another job, of an older number or without a proper header are dropped and counted.
2. Small messages go eagerly, on a budget per peer that is given back when the message is *matched*. Without budget the
   sender asks first (RTS). Control messages need none. So a root that runs ahead cannot fill a slow rank's memory.
3. Larger messages go in segments, under a window of credits.
4. A GRANT without RTS is sent only where both sides know the transfer from the schedule. It is withheld only while
   another transfer is really moving and more than `lookahead` bytes of that are missing, never because of a grant
   that nobody uses: else legal programs would deadlock. In the same way a sender goes on without waiting for DONE
   while at most `lookahead` bytes are without it: transports copy what they are given.
5. After an error the transfers of the communicator are dead: DATA for them is read and dropped, every peer that was
   announced or granted something gets REFUSE, and later calls raise until the communicator is replaced.
6. A communicator concerns its members only: the failure of another rank leaves it as it is, and what another rank
   says about it is refused. Its number (context) is never reused. Messages for an unknown one are kept (its sender is
   ahead of this rank), for a retired one refused. Messages from a rank that was declared failed are dropped.
7. A rank that leaves says how many messages it sent. "Finished" is an error only for a receiver that has had them all
   and still waits.
8. Notices of the control plane (BYE, FAILED, REVOKE, ...) come through the same inbox as all messages.
9. Who waits for long asks (PROBE) and is answered (ECHO): so the loss of a last message shows as well. That is small
   talk: it does not tell that anything goes on, and is counted apart.
10. What a peer says is checked, and what is kept of it is bounded: one that breaks these rules counts as failed.
"""

from __future__ import annotations

import struct
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import TypeAlias

from ringcast.agreement import Vote
from ringcast.call import Call
from ringcast.errors import (
    CollectiveMismatch,
    CollectiveTimeout,
    JobAborted,
    PeerFailed,
    Revoked,
    RingcastError,
    Where,
    blames,
)
from ringcast.failure import Failure
from ringcast.matching import Mailbox
from ringcast.transfers import Operation, Receive, Send, Sink, place
from ringcast.transports.base import Arrival, Frame
from ringcast.waits import Deadlock, Made, Mismatch, Report, decode
from ringcast.wire import SIZE, VERSION, Header, Kind, pack_fields, unpack

BUDGET = 1 << 20  # bytes of unmatched eager messages per peer …
BUDGET_OF_ALL = 64 << 20  # … and of all peers together

BUDGET_RETURN = 1  # flag of GRANT: `word` bytes of the eager budget come back
PROBE = 2  # flag of GRANT: it allows nothing, but asks whether both ranks are in the same call
ECHO = 4  # flag of GRANT: it allows nothing, but answers a PROBE, and shows by its number what was lost before it
PACKED = 1  # flag of DATA: several pieces were joined into one frame
MISMATCH = 1  # flag of REFUSE: the payload is the other side's call, and in a second line its place in the program
ANSWER = 2  # flag of REFUSE: it answers one, and wants none itself
LOST = 4  # flag of REFUSE: the payload tells why the rank `word` failed
P2P = 0  # operation number of point-to-point messages
KEPT = 256  # bytes that a request or grant which waits is counted as, of BUDGET per peer
NAMED = 4096  # communicators that a peer may name before this rank has come to them
LONGEST_REASON = 400_000  # bytes of a refusal's text that are kept …
LONGEST_AHEAD = 10_000  # … and of one for a communicator that this rank has not come to
REMEMBERED = 64  # calls that have ended, of which messages that come too late can be told apart
REPORTED = 8  # calls that have ended, of which a rank that waits tells
PATIENCE = 10  # probes that the last messages of a rank that has left may take to arrive

# As plain integers, which are twice as fast to look up and to pack.
EAGER, RTS, GRANT, DATA, DONE, REFUSE = (int(kind) for kind in Kind if kind <= Kind.REFUSE)
_PAIR = (1 << 32) - 1
_NUMBERS = (1 << 32) - 1  # operations are numbered 1, ..., 2**32 - 1, 1, ...
_U64 = struct.Struct("<Q")


Waiting: TypeAlias = "tuple[Header, Sequence[Frame]]"  # an unmatched EAGER, or RTS without frames


def _copies(frames: Sequence[memoryview]) -> Sequence[Frame]:
    """Return frames that stay as they are; a single one is copied when it joins its header."""
    return frames if len(frames) == 1 else [bytes(frame) for frame in frames]


def _told(op: Operation | None) -> str:
    """Return what the other side of a mismatch is told of this one: the call, and in a second line its place."""
    return f"{op.call}\n{op.place}" if op is not None else "another call\n"


class _Context:
    """One communicator: its operations under way, and what has arrived for them or for later ones."""

    __slots__ = (
        "active",
        "ended",
        "exchanges",
        "grants",
        "mail",
        "members",
        "namer",
        "number",
        "poison",
        "reported",
        "told",
    )

    def __init__(self) -> None:
        self.members: Collection[int] | None = None  # None: this rank has not come to it yet
        self.number = 0  # of the last operation that was begun
        self.ended: dict[int, Operation] = {}  # the last collectives that have ended
        self.active: dict[int, Operation] = {}  # collectives under way, by number
        self.exchanges: set[Operation] = set()  # point-to-point
        self.mail: dict[int, Mailbox[Receive, Waiting]] = defaultdict(Mailbox)
        self.grants: dict[int, dict[tuple[int, int], Header]] = defaultdict(dict)
        self.poison: BaseException | None = None
        self.reported = False
        self.namer: int | None = None  # the peer that spoke of it before this rank has come to it
        self.told: set[tuple[int, int]] = set()  # peers that were refused since it is dead, with the flags

    def operations(self) -> list[Operation]:
        return [*self.active.values(), *self.exchanges]

    def begun(self, number: int) -> bool:
        """Whether this rank has come to the operation of this number already; numbers wrap around."""
        return (self.number - number) % _NUMBERS < _NUMBERS // 2

    def end(self, op: Operation) -> None:
        self.active.pop(op.number, None)
        self.ended[op.number] = op
        if len(self.ended) > REMEMBERED:
            del self.ended[next(iter(self.ended))]

    def known(self, number: int) -> Operation | None:
        """Return the operation of this number, under way or ended; None where it has not begun, or is forgotten."""
        if number == P2P:
            return next(iter(self.exchanges), None)
        return self.active.get(number) or self.ended.get(number)

    def where(self, number: int) -> Where:
        """Return what errors say of the operation of this number."""
        op = self.known(number)
        if op is None or number in self.ended:
            return Where(op.label if op is not None else "operation", number)
        return op.where


class Protocol:
    """The state of one rank. Methods never block and never fail because of what a peer sends."""

    def __init__(self, rank: int, size: int, nonce: int, *, lookahead: int = 0) -> None:
        self.rank, self.size, self.nonce, self.lookahead = rank, size, nonce, lookahead
        self.outbox: deque[tuple[int, list[Frame], bool]] = deque()  # (peer, message, whether its loss matters)
        self.sent: Counter[int] = Counter()  # messages ever, by peer
        # One number: bytes of users' data ever sent, headers not counted.
        self.payload: list[int] | memoryview[int] = [0]
        self.seen: Counter[int] = Counter()
        self.asked: Counter[int] = Counter()  # those of `sent` that are small talk
        self.answered: Counter[int] = Counter()  # those of `seen`
        self.talk = 0  # all of `answered`
        self.posted: Counter[int] = Counter()  # sends ever (of whole transfers), by peer; `matched` is the other end
        self.matched: Counter[int] = Counter()
        self.dropped: Counter[str] = Counter()
        self.failed: dict[int, Failure] = {}  # in the order in which that was heard
        self.found: list[tuple[int, int]] = []  # (context, rank that failed), of which the others have to hear
        self.finished: dict[int, int] = {}
        self._farewells: dict[int, Failure] = {}  # of those that have finished, with the error that made them leave
        self.aborted: str | None = None
        self.decisions: dict[tuple[int, int], bytes] = {}  # agreements that were heard of, by context and number
        self.stuck: dict[tuple[int, int], Deadlock] = {}  # agreements that cannot come about, by the same
        self.budget = min(BUDGET, BUDGET_OF_ALL // size)
        self._spent: Counter[int] = Counter()  # eager bytes that each peer has not matched yet
        self._held: Counter[int] = Counter()  # eager bytes from each peer that this rank has not matched yet
        self._owed: Counter[int] = Counter()  # matched, but not yet given back
        self._kept: Counter[int] = Counter()  # bytes of requests and grants from each peer that wait
        self._named: Counter[int] = Counter()  # communicators that each peer has named ahead of this rank
        self._silent: Counter[int] = Counter()  # probes since a rank has left with messages missing
        self._contexts: dict[int, _Context] = defaultdict(_Context)
        self._retired: set[int] = set()
        self._transfers = 0
        self._sending: dict[tuple[int, int], Send] = {}  # by (peer, transfer)
        self._trailing = 0  # bytes of messages whose completion nobody waits for, at most `lookahead`
        self._promised: dict[tuple[int, int, int, int], Send] = {}  # waiting for a grant without RTS
        self._receiving: dict[tuple[int, int], Receive] = {}
        self._moving: set[Receive] = set()
        self._withheld: deque[Receive] = deque()
        self._handlers: dict[int, Callable[[Header, Arrival], None]] = {
            EAGER: self._on_eager,
            RTS: self._on_rts,
            GRANT: self._on_grant,
            DATA: self._on_data,
            DONE: self._on_done,
            REFUSE: self._on_refuse,
        }

    # What the endpoint asks for.

    def enrol(self, context: int, members: Collection[int]) -> None:
        """Come to a communicator of these ranks; if one of them has failed by now, it is given up at once."""
        state = self._contexts[context]
        state.members = members
        if state.namer is not None:
            self._named[state.namer] -= 1
            state.namer = None
        gone = next((peer for peer in self.failed if peer in members), None)
        if gone is not None:
            self.found.append((context, gone))
            self.poison(context, self._peer_failed(gone, None))

    def retire(self, context: int) -> None:
        """End the use of a communicator; what still arrives for it is refused."""
        self.poison(context, Revoked(self.rank, "the communicator was freed"))
        del self._contexts[context]
        self._retired.add(context)

    def begin(
        self,
        context: int,
        call: Call,
        *,
        granted: bool = False,
        align: int = 1,
        p2p: bool = False,
        site: tuple[str, int] = ("", 0),
    ) -> Operation:
        """Start an operation.

        Raises:
            PeerFailed, CollectiveMismatch, ...: what ended the communicator, the first time;
            Revoked: afterwards.
        """
        if context in self._retired:
            raise Revoked(self.rank, "the communicator was freed")
        if self.aborted is not None:
            self.poison(context, JobAborted(self.rank, self.aborted))
        state = self._contexts[context]
        if state.members is None:
            self.enrol(context, range(self.size))
        if state.poison is not None:
            raise self._cause(state)
        if p2p:
            op = Operation(context, P2P, call, granted, align, site)
            state.exchanges.add(op)
            return op
        state.number = state.number % _NUMBERS + 1
        op = Operation(context, state.number, call, granted, align, site)
        state.active[op.number] = op
        early = [header for _, (header, _) in state.mail[op.number].unclaimed()] if op.number in state.mail else []
        early += state.grants[op.number].values() if op.number in state.grants else ()
        for header in early:
            self._agree(op, header.source, header.ordinal, header)
        return op

    def _cause(self, state: _Context) -> BaseException:
        assert state.poison is not None
        if state.reported:
            return Revoked(self.rank, self.reason(state.poison))
        state.reported = True
        return state.poison

    def end(self, op: Operation) -> None:
        """Finish an operation whose transfers are complete; `op.error` tells if messages are left over."""
        state = self._contexts[op.context]
        if op.number == P2P:
            state.exchanges.discard(op)
            return
        mail, grants = state.mail.pop(op.number, None), state.grants.pop(op.number, None)
        left = [message for _, message in mail.unclaimed()] if mail else []
        left += [(grant, ()) for grant in grants.values()] if grants else []
        told: set[int] = set()
        for header, frames in left:
            self._forget(header, frames)
            theirs = "a call with a message that this rank does not expect"
            self._mismatch(op, header.source, header.ordinal, theirs, told)
        state.end(op)

    def send(
        self, op: Operation, peer: int, frames: Sequence[memoryview], *, packed: bool = False, tag: int | None = None
    ) -> Send | None:
        """Send `frames` (bytes) as one message; returns None when it is complete already."""
        if op.error is not None:
            return None
        ordinal = op.sent.get(peer, 0) if tag is None else tag
        op.sent[peer] = ordinal + 1
        total = sum(map(len, frames))
        self.posted[peer] += 1
        if peer in self.finished and self._left(op, peer):
            return None
        if not op.granted and total <= op.eager and self._spent[peer] + total + 64 <= self.budget:
            self._spent[peer] += total + 64
            self.payload[0] += total
            self._emit(EAGER, 0, peer, op, ordinal, 0, total, self._owed.pop(peer, 0), _copies(frames))
            return None
        send = Send(op, peer, ordinal, frames, total)
        send.packed = packed
        self._transfers = self._transfers + 1 & _PAIR or 1
        send.transfer = self._transfers
        self._sending[peer, send.transfer] = send
        op.pending.add(send)
        if not op.granted:
            sizes = struct.pack(f"<{len(frames)}Q", *map(len, frames))
            self._emit(RTS, 0, peer, op, ordinal, send.transfer, total, self._owed.pop(peer, 0), [sizes])
        elif (grant := self._contexts[op.context].grants[op.number].pop((peer, ordinal), None)) is not None:
            self._forget(grant)
            self._granted(send, grant)
        else:
            self._promised[peer, op.context, op.number, ordinal] = send
        return send

    def receive(self, op: Operation, peer: int, sink: Sink, *, tag: int | None = None, ahead: bool = False) -> Receive:
        """Post a receive; `op.pending` holds it until it is complete.

        With `ahead` it is the one of the next round, which `op.ahead` holds: it is granted when this round's receive
        is complete, also while this round's send is under way, and `catch_up` makes it one that is waited for.
        """
        ordinal = op.received.get(peer, 0) if tag is None else tag
        op.received[peer] = ordinal + 1
        recv = Receive(op, peer, ordinal, sink)
        if op.error is not None:
            return recv
        if ahead:
            op.ahead = recv
        else:
            op.pending.add(recv)
        found = self._contexts[op.context].mail[op.number].post((peer, ordinal), recv)
        if found is not None:
            if found[0].kind == RTS:
                self._forget(*found)
            self._meet(recv, *found)
        elif op.granted:
            self._allow(recv)
        if peer in self.finished and recv in op.pending:
            self._left(op, peer)
        return recv

    def catch_up(self, op: Operation) -> None:
        """Wait from now on for the receive that was posted ahead, if it is not complete."""
        recv, op.ahead = op.ahead, None
        if recv is not None:
            op.pending.add(recv)
            if recv.peer in self.finished:
                self._left(op, recv.peer)

    def poison(self, context: int, error: BaseException, told: set[int] | None = None) -> None:
        """Give up a communicator: its operations end with `error`, its peers are told, later calls raise.

        `told` are peers that know already.
        """
        state = self._contexts[context]
        if state.poison is not None:
            return
        state.poison = error
        told = set() if told is None else told
        for op in state.operations():
            self._kill(op, error, told)
        for mail in state.mail.values():
            for (source, ordinal), (header, frames) in mail.unclaimed():
                self._forget(header, frames)
                if header.kind == RTS:
                    self._pass_on(source, context, header.operation, ordinal, error, told)
        for number, grants in state.grants.items():
            for (source, ordinal), header in grants.items():
                self._forget(header)
                self._pass_on(source, context, number, ordinal, error, told)
        for key, send in list(self._sending.items()):
            if send.trailing and send.operation.context == context:
                self._finish(key)
        for op in list(state.active.values()):
            state.end(op)
        state.exchanges.clear()
        state.mail.clear()
        state.grants.clear()
        self._release()

    def probe(self, op: Operation) -> None:
        """Ask the ranks that `op` waits for whether they are in the same call; for when nothing has come for a while.

        Without that, ranks that all wait for each other, as two who both gather, would never notice.
        """
        for peer, transfer in {transfer.peer: transfer for transfer in op.pending}.items():
            if peer in self.finished:
                self._silent[peer] += 1
                if self._silent[peer] > PATIENCE:
                    missing = self.finished[peer] - self.seen[peer]
                    self.lose(peer, f"it finished, but its last {missing} messages did not arrive")
            else:
                self.asked[peer] += 1
                self._emit(GRANT, PROBE, peer, op, transfer.ordinal, 0, 0, 0)

    def report(self, op: Operation, *, seconds: float, times: int) -> Report:
        """Return what others should know of `op`, which has taken `seconds` and hears nothing; see `ringcast.waits`."""
        withheld = {recv for recv in self._withheld if recv.operation is op}
        waits = op.pending - withheld
        sent, seen = self._counts()
        return Report(
            self.rank,
            op.context,
            op.made,
            op.round,
            waits=tuple(sorted({t.peer for t in waits})),
            sources=tuple(sorted({t.peer for t in waits if isinstance(t, Receive)})),
            owes=tuple(sorted({recv.peer for recv in withheld})),
            sent=sent,
            seen=seen,
            ended=tuple(ended.made for ended in list(self._contexts[op.context].ended.values())[-REPORTED:]),
            seconds=seconds,
            times=times,
        )

    def report_vote(self, vote: Vote, place: str, awaited: tuple[int, ...], *, seconds: float, times: int) -> Report:
        """Return the same of an agreement, which may still need the votes of the ranks that are `awaited`."""
        call = Made(-vote.number, 0, f"{vote.verb}()", place)
        sent, seen = self._counts()
        facts = self.rank, vote.context, call, None, awaited, awaited, ()
        return Report(*facts, sent, seen, seconds=seconds, times=times)

    def _counts(self) -> tuple[dict[int, int], dict[int, int]]:
        """Return the messages to and from every peer, without small talk."""
        sent = {peer: count - self.asked[peer] for peer, count in self.sent.items()}
        return sent, {peer: count - self.answered[peer] for peer, count in self.seen.items()}

    @property
    def gave_up(self) -> bool:
        """Whether some communicator was given up, so that messages under way were lost."""
        return any(state.poison is not None for state in self._contexts.values())

    @property
    def hopeless(self) -> bool:
        """Whether the job or all communicators were given up, so that no message counts any more."""
        states = self._contexts.values()
        return self.aborted is not None or (bool(states) and all(state.poison is not None for state in states))

    @property
    def blamed(self) -> tuple[int, ...]:
        """The ranks that the errors of this rank's communicators name as their cause."""
        errors = [state.poison for state in self._contexts.values()]
        return tuple(sorted({rank for error in errors for rank in blames(error)}))

    def verdict(self, op: Operation) -> BaseException | None:
        """Return what ended `op`, with all that is known about it by now."""
        poison = self._contexts[op.context].poison
        return poison if isinstance(op.error, CollectiveMismatch) and poison is not None else op.error

    def unreported(self) -> CollectiveMismatch | None:
        """Return a mismatch that was noticed after the last call."""
        for state in self._contexts.values():
            if isinstance(state.poison, CollectiveMismatch) and not state.reported:
                return state.poison
        return None

    def revoke(self, context: int, error: BaseException) -> None:
        """Give up a communicator with an error that the caller knows: from now on calls raise Revoked."""
        self.poison(context, error)
        self._contexts[context].reported = True

    def revoked(self, context: int) -> bool:
        """Whether a communicator was given up, for whatever reason."""
        return context in self._retired or (context in self._contexts and self._contexts[context].poison is not None)

    def fail(self, op: Operation, error: BaseException) -> None:
        """End an operation, and with it its communicator, with an error that the caller raises itself."""
        self.revoke(op.context, error)

    def lose(self, peer: int, why: Failure | str) -> None:
        """Count `peer` as failed: every communicator that it shares with this rank is given up.

        A text is what this rank has found itself: the other members of these communicators have to hear of it.
        """
        if peer in self.failed:
            return
        self.failed[peer] = Failure(why) if isinstance(why, str) else why
        for context, state in list(self._contexts.items()):
            if state.members is not None and peer in state.members:
                where = next((op.where for op in state.operations()), None)
                if isinstance(why, str) and state.poison is None:
                    self.found.append((context, peer))
                self.poison(context, self._peer_failed(peer, where))
            elif state.members is None:
                self._unsay(state, peer)

    def _unsay(self, state: _Context, peer: int) -> None:
        """Forget what a rank that failed has sent for a communicator that this rank has not come to."""
        for number, mail in list(state.mail.items()):
            mail.forget(peer)
            if not any(mail.unclaimed()):
                del state.mail[number]
        for number, grants in list(state.grants.items()):
            for key in [key for key in grants if key[0] == peer]:
                del grants[key]
            if not grants:
                del state.grants[number]

    def _peer_failed(self, peer: int, where: Where | None, why: Failure | None = None) -> PeerFailed:
        """Return the error that tells of a failed rank, and of all that are known to have failed."""
        why, ranks = why or self.failed[peer], tuple(self.failed)
        return PeerFailed(
            self.rank, peer, why.cause, where, ranks=ranks, host=why.host, pid=why.pid, remote_traceback=why.traceback
        )

    # What arrives.

    def handle(self, arrival: Arrival) -> None:
        """Take one message. Frames that are not read are dropped by the transport."""
        try:
            header = unpack(arrival.header)
        except ValueError:
            self.dropped["malformed"] += 1
            return
        source, kind = header.source, header.kind
        if header.nonce != self.nonce or source >= self.size:
            self.dropped["foreign"] += 1
            return
        handler = self._handlers.get(kind)
        if handler is None:
            self._on_notice(header, arrival)
            return
        if source == self.rank:  # nobody sends to itself
            self.dropped["foreign"] += 1
            return
        if source in self.failed:
            self.dropped["zombie"] += 1
            return
        missing = (header.pair - self.seen[source]) & _PAIR
        if missing:
            if missing > _PAIR >> 1:
                self.dropped["replayed"] += 1
            else:
                self.lose(source, f"the link is lost: {missing} messages before number {header.pair} are missing")
            return
        self.seen[source] += 1
        if header.context in self._contexts or self._may_name(header):
            handler(header, arrival)
        if source in self.finished:
            self._silent.pop(source, None)
            self._check_left(source)

    def _may_name(self, h: Header) -> bool:
        """Note who speaks of a communicator that this rank has not come to; False: of too many, and it is lost."""
        if h.kind in (DATA, DONE) or h.context in self._retired or (h.kind == GRANT and h.flags & BUDGET_RETURN):
            return True
        if self._named[h.source] >= NAMED:
            self._broken(h, f"it has named {NAMED} communicators that this rank does not know")
            return False
        self._named[h.source] += 1
        self._contexts[h.context].namer = h.source
        return True

    def _broken(self, h: Header, how: str) -> None:
        """Give up a peer that does not keep the rules."""
        self.lose(h.source, f"it broke the protocol: {how}")

    def _on_eager(self, h: Header, arrival: Arrival) -> None:
        frames: list[Frame] = [memoryview(arrival.header)[SIZE:]] if len(arrival.header) > SIZE else []
        while arrival.more:
            frames.append(arrival.read())
        if sum(map(len, frames)) != h.length or self._held[h.source] + h.length > self.budget:
            self._broken(h, f"an eager message of {h.length} bytes beyond its budget")
            return
        if h.word:
            self._refund(h)
        self._held[h.source] += h.length + 64
        if self._dead(h, answer=False):
            self._give_back(h.source, h.length + 64)
            return
        self._deliver(h, frames)

    def _on_rts(self, h: Header, arrival: Arrival) -> None:
        sizes = arrival.read() if arrival.more else b""
        if len(sizes) % _U64.size or sum(size for (size,) in _U64.iter_unpack(sizes)) != h.length:
            self._broken(h, f"a request for {h.length} bytes whose frames do not add up")
            return
        self._refund(h)
        if not self._dead(h):
            self._deliver(h, [sizes])

    def _deliver(self, h: Header, frames: Sequence[Frame]) -> None:
        state = self._contexts[h.context]
        op = state.active.get(h.operation)
        if op is None and h.operation != P2P and state.begun(h.operation):
            self._forget_eager(h)
            self._unexpected(h)
            return
        if op is not None and not self._agree(op, h.source, h.ordinal, h):
            self._forget_eager(h)
            return
        recv = state.mail[h.operation].arrive((h.source, h.ordinal), (h, frames))
        if recv is not None:
            self._meet(recv, h, frames)
        elif h.kind == RTS:
            self._keep(h, len(frames[0]))

    def _meet(self, recv: Receive, h: Header, frames: Sequence[Frame]) -> None:
        """Bring a posted receive and its message together; collectives have been compared when it arrived."""
        op = recv.operation
        if op.number == P2P and not self._agree(op, h.source, h.ordinal, h):
            self._forget_eager(h)
            return
        if recv.total is None:
            sizes = [len(f) for f in frames] if h.kind == EAGER else [s for (s,) in _U64.iter_unpack(frames[0])]
            try:
                recv.sink.announce(sizes)
            except MemoryError as error:  # that is no fault of the peer
                self._forget_eager(h)
                self.poison(op.context, error)
                return
            except (ValueError, OverflowError) as error:
                self.lose(h.source, f"it announced a message of {h.length} bytes that cannot be taken: {error}")
                return
            recv.total = h.length
        elif recv.total != h.length:
            self._forget_eager(h)
            self._mismatch(op, h.source, h.ordinal, f"a message of {h.length} bytes where {recv.total} are expected")
            return
        if h.kind == RTS:
            if (h.source, h.transfer) in self._receiving:
                self._broken(h, f"it began transfer {h.transfer} twice")
                return
            recv.transfer = h.transfer
            self._receiving[h.source, h.transfer] = recv
            self._allow(recv)
            return
        offset = 0
        for frame in frames:
            place(recv.sink, offset, memoryview(frame))
            offset += len(frame)
        self._give_back(h.source, h.length + 64)
        self.matched[h.source] += 1
        self._complete(recv)

    def _on_grant(self, h: Header, _: Arrival) -> None:
        if h.flags & BUDGET_RETURN:
            self._refund(h)
            return
        if h.flags & (PROBE | ECHO):
            self.answered[h.source] += 1
            self.talk += 1
            if h.flags & PROBE:
                self._on_probe(h)
            return
        if h.transfer:
            send = self._sending.get((h.source, h.transfer))
            if send is None:
                self.dropped["stale grant"] += 1
                return
            self._credit(send, h)
            return
        if self._dead(h):
            return
        send = self._promised.pop((h.source, h.context, h.operation, h.ordinal), None)
        if send is not None:
            self._granted(send, h)
            return
        state = self._contexts[h.context]
        op = state.active.get(h.operation)
        if op is not None:
            if not self._agree(op, h.source, h.ordinal, h):
                return
        elif state.begun(h.operation):
            self._unexpected(h)
            return
        if (h.source, h.ordinal) in state.grants[h.operation]:
            self._broken(h, f"it granted message {h.ordinal} of operation {h.operation} twice")
            return
        state.grants[h.operation][h.source, h.ordinal] = h
        self._keep(h, 0)

    def _on_probe(self, h: Header) -> None:
        """Somebody waits for this rank: in the same call, or in one that this rank has not come to, all is well."""
        if self._dead(h):
            return
        state = self._contexts[h.context]
        op, ended = state.active.get(h.operation), state.ended.get(h.operation)
        if op is not None and op.fingerprint != h.fingerprint:
            self._mismatch(op, h.source, h.ordinal, op.call.difference(h.fingerprint))
        elif ended is not None and ended.fingerprint != h.fingerprint:
            self._unexpected(h)
        else:
            self.asked[h.source] += 1
            self._post(GRANT, ECHO, h.source, h.context, h.operation, h.ordinal, 0, 0, 0, h.fingerprint, ())

    def _granted(self, send: Send, h: Header) -> None:
        op = send.operation
        if not self._agree(op, h.source, h.ordinal, h):
            return
        if h.length != send.total:
            theirs = f"a receive of {h.length} bytes where {send.total} are sent"
            self._mismatch(op, h.source, h.ordinal, theirs)
            return
        self._credit(send, h)

    def _credit(self, send: Send, h: Header) -> None:
        """Take what a grant allows."""
        if send.credit + h.word > send.total:
            self._broken(h, f"it granted {send.credit + h.word} bytes of a message of {send.total}")
            return
        send.credit += h.word
        self._pump(send)

    def _pump(self, send: Send) -> None:
        """Send what the credit allows; only whole segments, except at the end."""
        op, flags = send.operation, PACKED if send.packed else 0
        while True:
            left = send.total - send.offset
            if min(op.segment, left) > send.credit - send.offset or (left == 0 and send.total > 0):
                break
            frames = send.take(op.segment)
            size = sum(map(len, frames))
            self._emit(DATA, flags, send.peer, op, send.ordinal, send.transfer, size, send.offset, frames)
            self.payload[0] += size
            send.offset += size
            if send.total == 0:
                break
        if left == 0 and self.lookahead and self._trailing + send.total <= self.lookahead:
            self._trailing += send.total
            send.trailing = True
            op.pending.discard(send)

    def _on_data(self, h: Header, arrival: Arrival) -> None:
        recv = self._receiving.get((h.source, h.transfer)) or self._bind(h)
        if recv is None:
            self.dropped["dead data"] += 1
            return
        sink, offset, end = recv.sink, h.word, h.word + h.length
        if offset != recv.received or end > recv.granted or (end == offset and recv.total):
            self._broken(h, f"bytes {offset}:{end} of a transfer at {recv.received}")
            return
        self._moving.add(recv)
        while arrival.more:
            if h.flags & PACKED:
                frame = arrival.read()
                size, fits = len(frame), offset + len(frame) <= end
                if fits:
                    place(sink, offset, memoryview(frame))
            else:
                view = sink.view(offset, end - offset) if offset < end else memoryview(bytearray())
                size = arrival.read_into(view)
                fits = size <= len(view)  # a longer frame was cut silently
                if fits:
                    sink.placed(offset, size)
            if not fits:
                self._broken(h, f"a frame of {size} bytes at offset {offset} of {end}")
                return
            offset += size
        if offset != end:
            self._broken(h, f"{offset - h.word} bytes where {h.length} were announced")
            return
        recv.received = end
        self._advance(recv)

    def _bind(self, h: Header) -> Receive | None:
        """Find the receive that granted this transfer before it had a number."""
        state = self._contexts.get(h.context)
        op = state.active.get(h.operation) if state else None
        if state is None or op is None or not op.granted:
            return None
        recv = state.mail[h.operation].take_posted((h.source, h.ordinal))
        if recv is not None:
            recv.transfer = h.transfer
            self._receiving[h.source, h.transfer] = recv
        return recv

    def _advance(self, recv: Receive) -> None:
        """After a segment: finish the transfer, or send more credit."""
        assert recv.total is not None
        op = recv.operation
        if recv.received == recv.total:
            del self._receiving[recv.peer, recv.transfer]
            self._moving.discard(recv)
            self.matched[recv.peer] += 1
            self._complete(recv)
            self._emit(DONE, 0, recv.peer, op, recv.ordinal, recv.transfer, 0, 0)
        elif recv.granted < recv.total and recv.granted - recv.received <= op.window // 2:
            more = min(recv.total - recv.granted, op.window - (recv.granted - recv.received))
            recv.granted += more
            self._emit(GRANT, 0, recv.peer, op, recv.ordinal, recv.transfer, 0, more)
        self._release()

    def _complete(self, recv: Receive) -> None:
        op = recv.operation
        if op.ahead is recv:
            op.ahead = None
        op.pending.discard(recv)

    def _on_done(self, h: Header, _: Arrival) -> None:
        send = self._sending.get((h.source, h.transfer))
        if send is not None and send.offset < send.total:
            self._broken(h, f"it confirmed {send.total} bytes of which {send.offset} were sent")
            return
        self._finish((h.source, h.transfer))

    def _finish(self, key: tuple[int, int]) -> None:
        """Forget a message of which nothing is left to do."""
        send = self._sending.pop(key, None)
        if send is not None:
            self._trailing -= send.total if send.trailing else 0
            send.operation.pending.discard(send)

    def _on_refuse(self, h: Header, arrival: Arrival) -> None:
        if h.context in self._retired or self._foreign(h):
            return
        state = self._contexts[h.context]
        longest = LONGEST_REASON if state.namer is None else LONGEST_AHEAD
        text = bytes(arrival.read()[:longest]).decode(errors="replace") if arrival.more else ""
        if h.flags & LOST and h.word < self.size:
            self.poison(h.context, self._told_failure(h, h.word, Failure.decode(text.encode())))
            return
        if not h.flags & MISMATCH:
            self.poison(h.context, Revoked(self.rank, text, h.source))
            return
        once = h.source, MISMATCH
        told = {h.source} if h.flags & ANSWER or once in state.told else set()
        if not h.flags & ANSWER:
            state.told.add(once)
        mine = _told(state.known(h.operation))
        self._refuse(h.source, h.context, h.operation, h.ordinal, mine, told, MISMATCH | ANSWER)
        theirs, _, site = text.partition("\n")
        self._meant(h.context, h.operation, h.source, theirs, site, told)

    def _told_failure(self, h: Header, peer: int, why: Failure) -> RingcastError:
        """Return the error for a failed rank of which another rank has told, before the control plane does."""
        if peer == self.rank:  # so it seems from there
            return Revoked(self.rank, f"rank {h.source}: peer rank {peer} failed: {why.cause}", h.source)
        op = next(iter(self._contexts[h.context].operations()), None)
        return self._peer_failed(peer, op.where if op is not None else None, self.failed.get(peer, why))

    def _meant(self, context: int, number: int, peer: int, theirs: str, their_site: str, told: set[int]) -> None:
        """Give up a communicator in which `peer` made another call, of which all is known now; `told` know already."""
        state = self._contexts[context]
        op, where, known = state.known(number), state.where(number), state.poison
        mine, site = (str(op.call), op.place) if op is not None else ("another call", "")
        again = isinstance(known, CollectiveMismatch) and known.peer == peer  # the same, now with their whole call
        if isinstance(known, CollectiveMismatch) and again:
            mine, site, where = known.mine, known.my_site, known.where
            theirs = known.theirs if theirs == mine else theirs  # calls that read alike: what was found says more
        elif theirs == mine:
            theirs = "the same, with messages of other sizes"
        error = CollectiveMismatch(
            self.rank, peer, mine, theirs, where, complete=True, my_site=site, their_site=their_site
        )
        if again:
            state.poison = error
        self.poison(context, error, told)

    def _on_notice(self, h: Header, arrival: Arrival) -> None:
        data = bytes(arrival.read()) if arrival.more else b""
        text = data.decode(errors="replace")
        if h.kind == Kind.BYE:
            self.finished[h.source] = h.length
            self._farewells[h.source] = Failure.decode(data)
            self._check_left(h.source)
        elif h.kind == Kind.FAILED:
            self.lose(h.source, Failure.decode(data))
        elif h.kind == Kind.REVOKE:
            if h.context in self._contexts or (self._may_name(h) and h.context not in self._retired):
                named = 0 < h.word <= self.size
                error = (
                    self._told_failure(h, h.word - 1, Failure(text)) if named else Revoked(self.rank, text, h.source)
                )
                self.poison(h.context, error)
        elif h.kind == Kind.AGREED:
            self.decisions[h.context, h.length] = data
        elif h.kind == Kind.ABORT:
            self.aborted = text
            for context, state in list(self._contexts.items()):
                op = next(iter(state.operations()), None)
                place = (op.where, op.waiting_for) if op is not None else ()
                self.poison(context, JobAborted(self.rank, text, *place))
        elif h.kind in (Kind.MISMATCH, Kind.DEADLOCK):
            self._on_finding(h.context, data)
        else:
            self.dropped["malformed"] += 1

    def _on_finding(self, context: int, data: bytes) -> None:
        """The control plane has compared what the ranks wait for: this one's call cannot end."""
        found = decode(data)
        state = self._contexts.get(context)
        if isinstance(found, Deadlock) and found.number < 0:
            self.stuck[context, -found.number] = found
        elif found is None or state is None:
            self.dropped["malformed" if found is None else "late finding"] += 1
        elif isinstance(found, Mismatch):
            self._meant(context, found.number, found.peer, found.theirs, found.their_site, {found.peer})
        else:
            self._deadlock(state, found)

    def _deadlock(self, state: _Context, found: Deadlock) -> None:
        op = next((op for op in state.operations() if op.number == found.number), None)
        if op is None:  # it has ended by itself meanwhile
            self.dropped["late finding"] += 1
            return
        facts = self.rank, op.waiting_for, found.seconds, op.where
        error = CollectiveTimeout(*facts, progress=op.progress, circle=found.circle, calls=found.calls)
        self.poison(op.context, error, set(found.circle))

    # The parts.

    def _emit(
        self,
        kind: int,
        flags: int,
        peer: int,
        op: Operation,
        ordinal: int,
        transfer: int,
        length: int,
        word: int,
        frames: Sequence[Frame] = (),
    ) -> None:
        self._post(kind, flags, peer, op.context, op.number, ordinal, transfer, length, word, op.fingerprint, frames)

    def _post(
        self,
        kind: int,
        flags: int,
        peer: int,
        context: int,
        operation: int,
        ordinal: int,
        transfer: int,
        length: int,
        word: int,
        fingerprint: int,
        frames: Sequence[Frame],
    ) -> None:
        pair = self.sent[peer] & _PAIR
        self.sent[peer] += 1
        header = pack_fields(
            VERSION,
            kind,
            flags,
            self.rank,
            self.nonce,
            context,
            operation,
            ordinal,
            pair,
            transfer,
            length,
            word,
            fingerprint,
        )
        # One frame is cheaper than two, and what goes eagerly has to be copied anyway.
        if kind == EAGER and len(frames) == 1 and frames[0]:
            header, frames = b"".join((header, frames[0])), ()
        # A peer that has left, properly or not, misses neither returned budget nor a refusal.
        vital = kind != REFUSE and not (kind == GRANT and flags & BUDGET_RETURN)
        self.outbox.append((peer, [header, *frames], vital))

    def _allow(self, recv: Receive) -> None:
        """Grant a transfer, or withhold that while another one moves (one-ported)."""
        op = recv.operation
        ahead = op.ahead is recv and any(isinstance(t, Receive) for t in op.pending)
        before = self._moving.union(t for t in op.pending if isinstance(t, Receive)) if ahead else self._moving
        if sum((r.total or 0) - r.received for r in before) > self.lookahead:
            self._withheld.append(recv)
            return
        assert recv.total is not None
        recv.granted = min(recv.total, op.window)
        self._emit(GRANT, 0, recv.peer, op, recv.ordinal, recv.transfer, recv.total, recv.granted)

    def _release(self) -> None:
        """Grant what was withheld, as far as that is possible now."""
        for _ in range(len(self._withheld)):
            self._allow(self._withheld.popleft())

    def _give_back(self, source: int, size: int) -> None:
        """Return eager budget: with the next message that way, or, when half of it is owed, at once."""
        self._held[source] -= size
        self._owed[source] += size
        if self._owed[source] >= self.budget // 2:
            owed = self._owed.pop(source)
            self._post(GRANT, BUDGET_RETURN, source, 0, 0, 0, 0, 0, owed, 0, ())

    def reason(self, error: BaseException) -> str:
        """Return what other ranks are told of an error: the first cause, not who passed it on."""
        if isinstance(error, Revoked):
            return error.cause
        if isinstance(error, PeerFailed):
            return str(error).partition("\n")[0]  # everyone gets the traceback from the control plane
        return str(error) if isinstance(error, RingcastError) else f"rank {self.rank}: {error!r}"

    def _refund(self, h: Header) -> None:
        """Take back the budget that a peer returns; never more than was spent."""
        self._spent[h.source] = max(0, self._spent[h.source] - h.word)

    def _keep(self, h: Header, size: int) -> None:
        """Count a request of `size` bytes, or a grant, that waits for this rank to come to it."""
        self._kept[h.source] += KEPT + size
        if self._kept[h.source] > BUDGET:
            self._broken(h, f"{self._kept[h.source]} bytes of its requests and grants wait")

    def _forget(self, h: Header, frames: Sequence[Frame] = ()) -> None:
        """Count a message no more that has waited, and is taken or will never be."""
        self._forget_eager(h)
        if h.kind != EAGER:
            self._kept[h.source] -= KEPT + sum(map(len, frames))

    def _forget_eager(self, h: Header) -> None:
        """Return the budget of a message that nobody will take."""
        if h.kind == EAGER:
            self._give_back(h.source, h.length + 64)

    def _dead(self, h: Header, answer: bool = True) -> bool:
        """Whether a message is for a communicator that was given up or retired; its sender is told."""
        if h.context in self._retired:
            poison: BaseException | None = Revoked(self.rank, "the communicator was freed")
        else:
            poison = self._contexts[h.context].poison
            if poison is None and self._foreign(h):
                poison = Revoked(self.rank, f"rank {h.source} is no member of this communicator")
        if poison is None:
            return False
        self.dropped["dead"] += 1
        state = self._contexts.get(h.context)
        if answer and (state is None or (h.source, 0) not in state.told):  # once: that gives up the whole of it
            if state is not None:
                state.told.add((h.source, 0))
            self._pass_on(h.source, h.context, h.operation, h.ordinal, poison, set())
        return True

    def _foreign(self, h: Header) -> bool:
        """Whether a message is about a communicator to which its sender does not belong."""
        members = self._contexts[h.context].members
        return members is not None and h.source not in members

    def _agree(self, op: Operation, source: int, ordinal: int, h: Header) -> bool:
        # Both ends decide from the call whether to grant, so another decision is another call.
        if h.fingerprint == op.fingerprint and (h.kind == Kind.GRANT) == op.granted:
            return True
        self._mismatch(op, source, ordinal, op.call.difference(h.fingerprint))
        return False

    def _mismatch(self, op: Operation, source: int, ordinal: int, theirs: str, told: set[int] | None = None) -> None:
        told = set() if told is None else told
        error = CollectiveMismatch(self.rank, source, str(op.call), theirs, op.where, my_site=op.place)
        self._refuse(source, op.context, op.number, ordinal, _told(op), told, MISMATCH)
        self.poison(op.context, error, told)

    def _unexpected(self, h: Header) -> None:
        """A message for an operation that has ended here: its sender does something else."""
        state = self._contexts[h.context]
        ended = state.ended.get(h.operation)
        mine, site = (str(ended.call), ended.place) if ended is not None else ("a call that has ended", "")
        theirs = "a call with a message that this rank did not expect"
        if ended is not None and ended.fingerprint != h.fingerprint:
            theirs = ended.call.difference(h.fingerprint)
        self._refuse(h.source, h.context, h.operation, h.ordinal, f"{mine}\n{site}", set(), MISMATCH)
        where = state.where(h.operation)
        self.poison(h.context, CollectiveMismatch(self.rank, h.source, mine, theirs, where, my_site=site))

    def _pass_on(
        self, peer: int, context: int, number: int, ordinal: int, error: BaseException, told: set[int]
    ) -> None:
        """Tell a peer what has ended the communicator."""
        if isinstance(error, PeerFailed):
            text = Failure(error.cause, error.host, error.pid, error.remote_traceback).encode().decode()
            self._refuse(peer, context, number, ordinal, text, told, LOST, error.peer)
        else:
            self._refuse(peer, context, number, ordinal, self.reason(error), told)

    def _refuse(
        self,
        peer: int,
        context: int,
        number: int,
        ordinal: int,
        text: str,
        told: set[int],
        flags: int = 0,
        word: int = 0,
    ) -> None:
        if peer in told or peer in self.failed or peer == self.rank:
            return
        told.add(peer)
        payload = text.encode("utf-8", "replace")
        self._post(REFUSE, flags, peer, context, number, ordinal, 0, len(payload), word, 0, [payload])

    def _kill(self, op: Operation, error: BaseException, told: set[int]) -> None:
        op.error = op.error or error
        for transfer in op.pending if op.ahead is None else (*op.pending, op.ahead):
            key = transfer.peer, transfer.transfer
            if isinstance(transfer, Send):
                self._sending.pop(key, None)
                self._promised.pop((transfer.peer, op.context, op.number, transfer.ordinal), None)
            else:
                self._receiving.pop(key, None)
                self._moving.discard(transfer)
                if transfer in self._withheld:
                    self._withheld.remove(transfer)
            self._pass_on(transfer.peer, op.context, op.number, transfer.ordinal, error, told)

    def _check_left(self, peer: int) -> None:
        """Look whether some operation waits for a rank that has left."""
        for state in list(self._contexts.values()):
            for op in state.operations():
                if any(t.peer == peer for t in op.pending) and self._left(op, peer):
                    break

    def _left(self, op: Operation, peer: int) -> bool:
        """Raise "finished" in `op`, which needs `peer`, if that has left and all its messages have been seen."""
        if self.seen[peer] < self.finished[peer]:
            return False
        farewell = self._farewells[peer]
        after = f" after {farewell.cause}" if farewell.cause else ""
        cause = f"rank {peer} finished (it left the job{after}), but this rank still communicates with it"
        self.poison(op.context, self._peer_failed(peer, op.where, replace(farewell, cause=cause)))
        return True
