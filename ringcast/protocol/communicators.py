"""The communicators of a rank: in use, invalidated, freed, or named by peers before this rank has registered them.

State, and two bounds: how many unknown ones a peer may name, and how many freed ones are remembered. The rules are
number 6 in `ringcast.protocol.machine`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TypeAlias

from ringcast._util.safe_text import is_a
from ringcast.errors import CollectiveMismatch, PeerFailed, Where, blames
from ringcast.protocol.matching import Mailbox, TaggedMailbox
from ringcast.protocol.operations import Operation, Receive
from ringcast.transports.base import Frame, Loan
from ringcast.wire.call import Call, Site
from ringcast.wire.failure import Broken
from ringcast.wire.header import CALLS, CTS, DATA, DONE, EAGER, OF_NO_CALL, P2P, STAGES, Header, call_of, made

NAMED = 4096  # communicators that a peer may name before this rank has registered them
OVER = 4096  # communicators that all members have freed, whose late messages can be recognised
REMEMBERED = 64  # calls that have ended, whose late messages can be recognised

Waiting: TypeAlias = "tuple[Header, Sequence[Frame]]"  # an unmatched EAGER, or RTS; a CTS has no frames
Tagged: TypeAlias = TaggedMailbox[Receive, Waiting]
Box: TypeAlias = "Mailbox[Receive, Waiting] | Tagged"


class Mail(dict[int, Box]):
    """The mailboxes of a communicator by the number of the operation; a missing one is created on access."""

    def __missing__(self, number: int) -> Box:
        box: Box = Mailbox() if number != P2P else TaggedMailbox()
        self[number] = box
        return box

    @property
    def tagged(self) -> Tagged:
        """The one of the point-to-point calls."""
        box = self[P2P]
        assert isinstance(box, TaggedMailbox)
        return box


class Context:
    """One communicator: its operations under way, and what has arrived for them or for later ones."""

    __slots__ = (
        "acknowledged",
        "active",
        "calls",
        "ended",
        "error",
        "exchanges",
        "grants",
        "loans",
        "mail",
        "members",
        "namer",
        "notified",
        "probes",
        "reported",
        "stages",
        "strict",
    )

    def __init__(self, strict: bool) -> None:
        self.members: Collection[int] | None = None  # None: this rank has not registered it yet
        self.strict = strict  # the failure of a member gives it up, also where no collective is under way
        self.acknowledged: frozenset[int] = frozenset()  # members whose failure the program knows of
        self.calls = 0  # number of the last call that was made
        self.stages: dict[int, int] = {}  # of each call under way: its last operation that was begun
        self.ended: dict[int, Operation] = {}  # the last collectives that have ended
        self.active: dict[int, Operation] = {}  # collectives under way, by number
        self.exchanges: set[Operation] = set()  # point-to-point
        self.probes: list[Receive] = []  # waits for a point-to-point message that it does not take
        self.mail = Mail()
        self.grants: dict[int, dict[tuple[int, int], Header]] = defaultdict(dict)
        self.loans: dict[tuple[int, int], Loan] = {}  # of requests that wait, by (peer, transfer)
        self.error: BaseException | None = None
        self.reported = False
        self.namer: int | None = None  # the peer that named it before this rank has registered it
        self.notified: set[tuple[int, int]] = set()  # peers that were refused since it is dead, with the flags

    def operations(self) -> list[Operation]:
        return [*self.active.values(), *self.exchanges]

    def failed(self, failed: Iterable[int]) -> list[int]:
        """Return the members among the failed ranks."""
        return [rank for rank in failed if rank in (self.members or ())]

    def one(self) -> Operation | None:
        """Return an operation that is under way."""
        return next(iter(self.operations()), None)

    def begun(self, number: int) -> bool:
        """Return whether this rank has begun the operation of this number already; numbers wrap around."""
        call = call_of(number)
        last = self.stages.get(call)
        return number <= last if last is not None else made(self.calls, call)

    def begin(
        self,
        context: int,
        call: Call,
        granted: bool,
        align: int,
        p2p: bool,
        site: Site,
        after: Operation | None,
    ) -> tuple[Operation, list[Header]]:
        """Begin an operation; return it, and the headers that have arrived for it before.

        It is the next stage of the call whose stage `after` was, or the first one of the next call; all point-to-point
        messages have the same number.
        """
        if p2p:
            op = Operation(context, P2P, call, granted, align, site)
            self.adopt(op)
            return op, []
        number = self.next_number if after is None else after.number + 1
        assert after is None or number % STAGES, f"a call with more than {STAGES} stages"
        op = Operation(context, number, call, granted, align, site)
        self.adopt(op)
        mail, grants = self.mail.get(number), self.grants.get(number)
        if mail is None and grants is None:
            return op, []
        early = [header for header, _ in mail.unclaimed()] if mail is not None else []
        return op, [*early, *grants.values()] if grants else early

    @property
    def next_number(self) -> int:
        """The number of the first operation of the next call."""
        return STAGES * (self.calls % CALLS + 1)

    def adopt(self, op: Operation) -> None:
        """Take note that an operation is under way: the first one of the next call, or the next one of its call; or a
        point-to-point one.
        """
        if op.number == P2P:
            self.exchanges.add(op)
            return
        call, stage = divmod(op.number, STAGES)
        if not stage:
            self.calls = call
        self.stages[call] = op.number
        self.active[op.number] = op
        op.stages = self.stages

    def unbegun(self, context: int, call: Call, site: Site) -> Operation:
        """Return the next call as an operation that does not begin, as the communicator was given up before it."""
        return Operation(context, self.next_number, call, False, 1, site)

    def end(self, op: Operation) -> None:
        self.active.pop(op.number, None)
        self.ended[op.number] = op
        if len(self.ended) > REMEMBERED:
            del self.ended[next(iter(self.ended))]

    def last_ended(self, count: int) -> list[Operation]:
        """Return the last collectives that have ended, so many at most."""
        return list(self.ended.values())[-count:]

    def known(self, number: int) -> Operation | None:
        """Return the operation of this number, under way or ended; None where it has not begun, or is forgotten."""
        if number == P2P:
            return next(iter(self.exchanges), None)
        return self.active.get(number) or self.ended.get(number)

    def where(self, number: int) -> Where:
        """Return the `Where` of the operation of this number, for errors."""
        op = self.known(number)
        if op is None or number in self.ended:
            return Where(op.label if op is not None else "operation", call_of(number))
        return op.where

    def finish(self, op: Operation) -> list[Waiting]:
        """End an operation if all its messages were matched; else remove and return the unmatched ones."""
        mail, grants = self.mail.pop(op.number, None), self.grants.pop(op.number, None)
        left = mail.unclaimed() if mail is not None else []
        if grants:
            left += [(grant, ()) for grant in grants.values()]
        if not left:
            self.end(op)
        return left

    def waiting(self) -> Iterator[Waiting]:
        """Return all messages that arrived and were not matched."""
        for mail in self.mail.values():
            yield from mail.unclaimed()
        for grants in self.grants.values():
            for grant in grants.values():
                yield grant, ()

    def tags_from(self, peer: int) -> list[int]:
        """Return the tags of the messages of `peer` that no receive has met, in the order in which they have come."""
        return [header.ordinal for header, _ in self.mail.tagged.unclaimed() if header.source == peer]

    def mismatch_with(self, peer: int) -> CollectiveMismatch | None:
        """Return the mismatch with `peer` that invalidated this communicator, if one did."""
        return self.error if is_a(self.error, CollectiveMismatch) and self.error.peer == peer else None

    def clear(self) -> None:
        """End all operations and calls, and drop all messages."""
        for op in list(self.active.values()):
            self.end(op)
        self.exchanges.clear()
        self.probes.clear()
        self.stages.clear()
        self.mail.clear()
        self.grants.clear()
        self.loans.clear()

    def withdraw(self, recv: Receive) -> None:
        """Forget a point-to-point receive, or a probe, for which no message has come."""
        if recv in self.probes:
            self.probes.remove(recv)
        else:
            self.mail.tagged.cancel((recv.peer, recv.ordinal), recv)

    def forget(self, peer: int) -> None:
        """Drop the messages of `peer` that no receive has met, except whole ones that a receive can still take."""
        for number, mail in list(self.mail.items()):
            if isinstance(mail, TaggedMailbox):
                mail.forget(peer, lambda waiting: waiting[0].kind != EAGER)
                continue
            mail.forget(peer)
            if not any(mail.unclaimed()):
                del self.mail[number]
        for name in [name for name in self.loans if name[0] == peer]:
            del self.loans[name]
        for number, grants in list(self.grants.items()):
            for key in [key for key in grants if key[0] == peer]:
                del grants[key]
            if not grants:
                del self.grants[number]


class Contexts(dict[int, Context]):
    """The communicators of a rank by number, without retired ones; a missing one is created on access."""

    def __init__(self, *, strict: bool) -> None:
        super().__init__()
        self._strict = strict  # where nothing else is said, as the job ends with a rank that fails
        self.retired: set[int] = set()
        self._over: dict[int, None] = {}  # retired communicators that all members have freed, the oldest one first
        self._named: Counter[int] = Counter()  # unregistered communicators that each peer has named

    def __missing__(self, context: int) -> Context:
        self[context] = state = Context(self._strict)
        return state

    def enrol(self, context: int, members: Collection[int], strict: bool) -> None:
        """Register a communicator of these ranks, which may be `strict`."""
        state = self[context]
        state.members, state.strict = members, strict or self._strict
        if state.namer is not None:
            self._named[state.namer] -= 1
            state.namer = None

    def retire(self, context: int, by_all: bool) -> None:
        """End the use of a communicator, which all members do, or this rank alone.

        A communicator that all have freed is remembered for a while only: its members have made their last call, and
        all messages of that call are here. So only a probe may still come, or a message that a program never received.
        """
        del self[context]
        self.retired.add(context)
        if by_all:
            self._over[context] = None
            if len(self._over) > OVER:
                oldest = next(iter(self._over))
                del self._over[oldest]
                self.retired.discard(oldest)

    def over(self, context: int) -> bool:
        """Return whether all members have freed a communicator."""
        return context in self._over

    def name(self, h: Header) -> None:
        """Record the sender of the first message for an unknown communicator.

        Raises:
            Broken: it has named too many.
        """
        if h.kind in (DATA, DONE) or h.context in self.retired or (h.kind == CTS and h.flags & OF_NO_CALL):
            return
        self.named_by(h.source, h.context)

    def named_by(self, source: int, context: int) -> None:
        """Record that a rank has named an unknown communicator.

        Raises:
            Broken: it has named too many.
        """
        if self._named[source] >= NAMED:
            raise Broken(f"it has named {NAMED} communicators that this rank does not know")
        self._named[source] += 1
        self[context].namer = source

    def foreign(self, h: Header) -> bool:
        """Return whether a message is for a communicator to which its sender does not belong."""
        members = self[h.context].members
        return members is not None and h.source not in members

    def begun(self, count: int) -> dict[int, int]:
        """Return the number of the last call that was made in each communicator, of the newest ones."""
        return {context: self[context].calls for context in list(self)[-count:] if self[context].members is not None}

    def given_up(self, context: int) -> bool:
        """Return whether a communicator was freed or invalidated, for whatever reason."""
        return context in self.retired or (context in self and self[context].error is not None)

    def causes(self) -> list[BaseException]:
        """Return the errors that invalidated communicators."""
        return [state.error for state in self.values() if state.error is not None]

    @property
    def blamed(self) -> tuple[int, ...]:
        """The ranks that the errors of these communicators name as their cause."""
        return tuple(sorted({rank for error in self.causes() for rank in blames(error)}))

    @property
    def lost(self) -> frozenset[int]:
        """The ranks that errors of these communicators call failed, maybe before the control plane does."""
        return frozenset(rank for error in self.causes() if is_a(error, PeerFailed) for rank in blames(error))

    def unreported(self) -> CollectiveMismatch | None:
        """Return a mismatch that no call has raised."""
        for state in self.values():
            if is_a(state.error, CollectiveMismatch) and not state.reported:
                return state.error
        return None
