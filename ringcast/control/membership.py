"""Membership of a job: the ranks that joined, left or failed. Pure decisions, without sockets, clocks or processes.

A worker sends Hello, gets the roster (the address of every rank) when all `size` ranks have done so, and from then on
gets at most one notice on every other rank: it left (`bye`, with the number of messages it sent to me), or it `failed`.
The rules:

1. A refusal names its reason. It does not touch the ranks that had joined properly.
2. A rank that ends before all have joined makes the start impossible: all that joined, or join later, are refused.
3. A rank is declared failed once, and never after it finished. It gets no more notices, except that it was given up.
4. The clock for `start_timeout` begins with the first Hello: a program that never communicates is not hurried.
5. Silence counts only where no launcher watches the processes (`hosted` is false), and only of a rank to which no
   connection is left: a busy interpreter is silent, but its end of the connection answers. Silence does not count
   while this process was stopped itself.
6. A lost rank is not failed yet: the owner makes sure that it is gone, and then declares it failed (Died). Where the
   processes are watched that holds also for a rank that reports its error; the others get the error that it reported.
   A rank that another one has lost is lost for all, as the survivors have to agree on who failed. Of two ranks whose
   link is dead one is lost for all (see `suspicions`).
7. The number of communicators that a member may give up is bounded, as others remember them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ringcast._util.dataclass import dataclass
from ringcast._util.rank_words import ranks_in_words
from ringcast.control.agreement import Agreements
from ringcast.control.deadlocks import DeadlockDetector
from ringcast.control.events import (
    Action,
    AllJoined,
    Died,
    End,
    Event,
    Joined,
    Joining,
    Leaving,
    Lost,
    SendTo,
    StartFailed,
    Tick,
    TooLate,
    Unread,
)
from ringcast.control.suspicions import PATIENCE, Accusations, Eviction
from ringcast.procs.timing import TIMING
from ringcast.wire.control_messages import (
    Abort,
    Accuse,
    Beat,
    Bye,
    Failed,
    Failing,
    Finished,
    Freed,
    FromMember,
    Hello,
    Left,
    Made,
    Moving,
    Refused,
    Revoke,
    Roster,
    ToWorker,
    Waiting,
)
from ringcast.wire.failure import Failure
from ringcast.wire.header import DERIVED, P2P
from ringcast.wire.reports import OperationReport, StallReport
from ringcast.wire.votes import Decision, Vote

SILENT = TIMING.cut_off_beats
MOST_REVOKED = 1 << 16  # communicators that one rank may give up
MOST_MADE = 1 << 16  # communicators of a part, not freed yet, that one rank may be the first to report


@dataclass(slots=True)
class _Member:
    connection: bytes
    hello: Hello
    heard: float
    finished: Finished | None = None
    report: Failing | None = None
    left: bool = False

    @property
    def host(self) -> str:
        return self.hello.host

    @property
    def pid(self) -> int:
        return self.hello.pid


class Membership:
    """The membership state machine of one job; `handle` takes an event and returns the actions that follow."""

    def __init__(
        self,
        size: int,
        *,
        version: str,
        hosted: bool = True,
        continues: bool = False,
        start_timeout: float = 60.0,
        beat: float = 1.0,
        silence: float = 10.0,
    ) -> None:
        self.size, self.version, self.hosted, self.continues = size, version, hosted, continues
        self.start_timeout, self.beat, self.silence = start_timeout, beat, silence
        self._members: dict[int, _Member] = {}
        self._ranks: dict[bytes, int] = {}
        self._failed: dict[int, str] = {}
        self._revoked: set[int] = set()
        self._revokes: Counter[int] = Counter()
        self._deadlocks = DeadlockDetector()
        self._agreements = Agreements(size)
        self._accusations = Accusations(patience=PATIENCE if hosted else 0.0)
        self._lost: set[int] = set()  # those reported to the owner
        self._given_up = ""  # why no rank can join any more
        self._started = False
        self._start_by: float | None = None
        self._next_beat = 0.0
        self._ticked: float | None = None

    def rank_of(self, connection: bytes) -> int | None:
        """Return the rank that joined over `connection`; None for a stranger."""
        return self._ranks.get(connection)

    @property
    def due(self) -> float:
        """The time of the next Tick that can matter."""
        waiting = self._start_by is not None and not self._started and not self._given_up
        others = (self._start_by if waiting else None, self._accusations.due)
        return min([self._next_beat, *(time for time in others if time is not None)])

    @property
    def over(self) -> bool:
        """Whether no client is left: all ranks left or failed, or all that had joined a job that cannot start."""
        gone = sum(member.left or rank in self._failed for rank, member in self._members.items())
        return gone == len(self._members) and (gone == self.size or bool(self._given_up))

    @property
    def heard(self) -> dict[int, float]:
        """The time of the last message of each rank that joined and neither left nor failed."""
        return {rank: member.heard for rank, member in self._listeners(None)}

    def process(self, rank: int) -> tuple[str, int]:
        """Return the host and the process number of a rank that joined."""
        return self._members[rank].host, self._members[rank].pid

    def mark(self, rank: int) -> str:
        """Return the mark of the process of a rank that joined, see `ringcast.procs.process_mark`."""
        return self._members[rank].hello.mark

    def handle(self, event: Event, now: float) -> list[Action]:
        """Return the actions that answer `event`, in order."""
        match event:
            case Joining():
                return self._hello(event.connection, event.hello, now)
            case Leaving():
                return self._leave(event.connection)
            case Died():
                return self._died(event)
            case End():
                return self._abort(event.cause)
            case Tick():
                return self._tick(event.unreachable, now)
        return self._from_member(event, now)

    def _hello(self, connection: bytes, hello: Hello, now: float) -> list[Action]:
        if self._ranks.get(connection) == hello.rank:
            return []
        reason = self._reason_not(hello)
        if reason:
            late: list[Action] = [TooLate(hello.rank)] if reason == self._given_up else []
            return [*late, SendTo(connection, Refused(reason))]
        self._members[hello.rank] = _Member(connection, hello, now)
        self._ranks[connection] = hello.rank
        if self._start_by is None:
            self._start_by = now + self.start_timeout
        beat = SendTo(connection, Beat())  # at once: a client that waits for others should know that the server is here
        actions: list[Action] = [Joined(hello.rank, hello.pid, hello.host, hello.card.address, hello.build), beat]
        if len(self._members) == self.size:
            self._started = True
            # One object for all: it is as long as the job is large, and is encoded once.
            roster = Roster(tuple(self._members[rank].hello.card for rank in range(self.size)), self.continues)
            actions += [SendTo(member.connection, roster) for member in self._members.values()]
            actions.append(AllJoined(roster.cards))
        return actions

    def _reason_not(self, hello: Hello) -> str:
        if hello.version != self.version:
            return f"rank {hello.rank} runs ringcast {hello.version}, but this job runs {self.version}"
        if hello.size != self.size:
            return f"rank {hello.rank} believes in {hello.size} ranks, but this job has {self.size}"
        if not 0 <= hello.rank < self.size:
            return f"rank {hello.rank} is not in 0..{self.size - 1}"
        if hello.rank in self._members:
            first = self._members[hello.rank]
            return (
                f"rank {hello.rank} has joined already, as pid {first.pid} on {first.host}; "
                "every worker needs its own RINGCAST_RANK, and joins once"
            )
        members = (member.hello for member in self._members.values())
        return _disagreement(hello, next(members, hello)) or self._given_up  # all others have what the first one has

    def _from_member(self, event: FromMember, now: float) -> list[Action]:
        member = self._members.get(event.rank)
        if member is None:
            return []
        member.heard = now
        if event.rank in self._failed:
            told = SendTo(member.connection, _given_up(event.rank, self._failed[event.rank]))
            return [event] if isinstance(event, Failing) else [told]
        if member.report is not None:
            return []
        match event:
            case Revoke() if event.rank in self._agreements.members(event.context):
                return [*self._revoke(event), *self._accuse(event)]
            case Accuse() if self._started and self._here(event.rank) and self._here(event.peer):
                self._accusations.accuse(event.rank, event.peer, event.cause, now)
            case Waiting():
                return self._compare(event.report, now)
            case Moving():
                self._deadlocks.moved(event.rank)
            case Made() if event.context >= DERIVED:
                return self._made(event)
            case Freed():
                self._agreements.freed(event.rank, event.context)
            case Vote() if self._started:
                self._deadlocks.voted(event.context)
                return self._announce(self._agreements.vote(event))
            case Failing():
                member.report = event
                self._deadlocks.moved(event.rank)
                return [event] if self.hosted else [event, *self._died(Died(event.rank, event.failure))]
            case Finished() if member.finished is None:
                return self._finished(event, member)
        return []

    def _made(self, event: Made) -> list[Action]:
        if self._agreements.made_by[event.rank] >= MOST_MADE:
            return self.lose(event.rank, f"it has more than {MOST_MADE} communicators")
        self._agreements.made(event.rank, event.context, event.members)
        return []

    def _revoke(self, event: Revoke) -> list[Action]:
        if event.context in self._revoked:
            return []  # the first one stands: every rank that hears of it says so as well
        if self._revokes[event.rank] >= MOST_REVOKED:
            return self.lose(event.rank, f"it gave up more than {MOST_REVOKED} communicators")
        self._revoked.add(event.context)
        self._deadlocks.ends(event.context)
        self._revokes[event.rank] += 1
        members = self._agreements.members(event.context)
        return [SendTo(m.connection, event) for rank, m in self._listeners(event.rank) if rank in members]

    def _accuse(self, event: Revoke) -> list[Action]:
        """Lose for all ranks one that `event` has lost, and that may still live: all must agree on who failed."""
        peer, member = event.failed, None if event.failed is None else self._members.get(event.failed)
        if peer is None or member is None or peer in (event.rank, *self._failed) or member.finished or member.left:
            return []
        if event.rank in self._lost:  # two that have lost each other: one of them is enough
            return []
        return self._lose_for_all(peer, event.cause)

    def _here(self, rank: int) -> bool:
        """Return whether a rank takes part, and has neither left nor been given up."""
        member = self._members.get(rank)
        gone = self._lost | self._failed.keys()
        return member is not None and not member.finished and not member.left and rank not in gone

    def _evict(self, now: float) -> list[Action]:
        """Evict ranks because of dead links."""

        def silent(rank: int) -> bool:
            return now - self._members[rank].heard > SILENT * self.beat

        evictions = self._accusations.decide(self._here, silent, now)
        return [
            action for eviction in evictions for action in self._lose_for_all(eviction.given_up, self._link(eviction))
        ]

    def _link(self, eviction: Eviction) -> str:
        ends = [
            f"rank {rank} ({self._members[rank].hello.card.address})" for rank in (eviction.reporter, eviction.peer)
        ]
        return f"the link between {ends[0]} and {ends[1]} is dead: {eviction.cause}"

    def _lose_for_all(self, rank: int, cause: str) -> list[Action]:
        return [*self.lose(rank, cause), *self._announce(self._agreements.lose(rank))]

    def _compare(self, report: StallReport, now: float) -> list[Action]:
        """Return the findings that follow from the reports of a stalled rank and of the others."""
        if any(map(self._ends, report.operations)):
            return []  # as soon as the rank hears of that
        findings = self._deadlocks.report(self._agreements.refined(report), now)
        return [SendTo(self._members[found.rank].connection, found) for found in findings]

    def _ends(self, operation: OperationReport) -> bool:
        """Return whether an operation ends by itself: its communicator was revoked, or it needs a rank that failed."""
        context, number = operation.call.context, operation.call.number
        if number < P2P:  # an agreement
            return False
        exchange = number == P2P and self.continues
        needed = operation.waits if exchange else self._agreements.members(context)
        return context in self._revoked or not self._failed.keys().isdisjoint(needed)

    def _finished(self, event: Finished, member: _Member) -> list[Action]:
        member.finished = event
        self._deadlocks.moved(event.rank)
        if not self._started:
            return [event, *self._give_up(f"rank {event.rank} left before all ranks had joined")]
        failure = event.failure.at(member.host, member.pid)
        byes = [
            SendTo(m.connection, Bye(event.rank, event.sent.get(rank, 0), failure))
            for rank, m in self._listeners(event.rank)
        ]
        return [event, *byes, *self._unread(event), *self._announce(self._agreements.lose(event.rank))]

    def _unread(self, event: Finished) -> list[Action]:
        """Compare the transfer counts of links whose both ends have left; not after an error, which loses messages."""
        if self._revoked or self._failed:
            return []
        found: list[Action] = []
        for rank, member in self._members.items():
            if member.finished is None:
                continue
            back = [(member.finished, event)] if rank != event.rank else []  # a rank may send to itself
            for source, sink in (event, member.finished), *back:
                count = source.posted.get(sink.rank, 0) - sink.matched.get(source.rank, 0)
                if count > 0:
                    found.append(Unread(sink.rank, source.rank, count))
        return found

    def _leave(self, connection: bytes) -> list[Action]:
        actions: list[Action] = [SendTo(connection, Left())]
        rank = self._ranks.get(connection)
        if rank is None:
            return actions
        member = self._members[rank]
        expected = member.finished or member.report or member.left or rank in self._failed
        if not expected and self._started:
            actions += self.lose(rank, "it closed its connection without finishing")
        member.left = True
        return actions

    def lose(self, rank: int, cause: str) -> list[Action]:
        """Return the actions for a rank that counts as lost, although it may still run."""
        self._lost.add(rank)
        return [Lost(rank, cause)]

    def _died(self, event: Died) -> list[Action]:
        member = self._members.get(event.rank)
        report = member.report if member is not None else None
        return self._fail(event.rank, event.failure if report is None else report.failure)

    def _fail(self, rank: int, failure: Failure) -> list[Action]:
        member = self._members.get(rank)
        if rank in self._failed or (member is not None and member.finished):
            return []
        self._failed[rank] = cause = failure.cause
        self._deadlocks.forget()
        if not self._started:
            return self._give_up(f"rank {rank} ended before all ranks had joined: {cause}")
        where = (member.host, member.pid) if member is not None else ("", 0)
        told = self._tell_others(rank, Failed(rank, failure.at(*where)))
        if member is not None and member.report is None and not self.hosted:  # it may live longer than this process
            told.append(SendTo(member.connection, _given_up(rank, cause)))
        return [*told, *self._announce(self._agreements.lose(rank))]

    def _announce(self, decisions: Iterable[Decision]) -> list[Action]:
        """Send decisions to the live members, which already have the notices on the ranks that are gone."""
        actions: list[Action] = []
        for decision in decisions:
            self._deadlocks.voted(decision.context)
            actions += [SendTo(self._members[rank].connection, decision) for rank in decision.members]
        return actions

    def _abort(self, cause: str) -> list[Action]:
        if not self._started:
            return self._give_up(cause)
        return self._tell_others(None, Abort(cause))

    def _give_up(self, reason: str) -> list[Action]:
        if self._given_up:
            return []
        self._given_up = reason
        return self._tell_others(None, Refused(reason))

    def _tick(self, unreachable: frozenset[int], now: float) -> list[Action]:
        self._forgive(now)
        actions = [*self._check_start(now), *self._evict(now)]
        if not self.hosted:
            actions += self._check_silence(unreachable, now)
        if now >= self._next_beat:
            self._next_beat = now + self.beat
            actions += self._tell_others(None, Beat())
        return actions

    def _forgive(self, now: float) -> None:
        # If this process was stopped or starved, the silence of others does not count.
        pause = 0.0 if self._ticked is None else now - self._ticked
        if pause > 3 * self.beat:
            for member in self._members.values():
                member.heard = min(now, member.heard + pause)
        self._ticked = now

    def _check_start(self, now: float) -> list[Action]:
        if self._started or self._given_up or self._start_by is None or now < self._start_by:
            return []
        missing = tuple(rank for rank in range(self.size) if rank not in self._members)
        reason = (
            f"{ranks_in_words(missing)} of {self.size} did not join within {self.start_timeout:g} s; "
            "look at their output, or allow more time (RINGCAST_START_TIMEOUT, --start-timeout)"
        )
        return [StartFailed(reason, missing), *self._give_up(reason)]

    def _check_silence(self, unreachable: frozenset[int], now: float) -> list[Action]:
        actions: list[Action] = []
        for rank, member in self._members.items():
            if now - member.heard < self.silence or member.left or rank in self._failed:
                continue
            if member.finished or self._given_up:
                member.left = True
            elif rank in unreachable:
                cause = f"there is no connection to it, and nothing was heard of it for {self.silence:g} s"
                actions += self.lose(rank, cause)
        return actions

    def _listeners(self, but: int | None) -> list[tuple[int, _Member]]:
        return [
            (rank, member)
            for rank, member in self._members.items()
            if rank != but and rank not in self._failed and not member.finished and not member.left
        ]

    def _tell_others(self, but: int | None, message: ToWorker) -> list[Action]:
        return [SendTo(member.connection, message) for _, member in self._listeners(but)]


def _disagreement(mine: Hello, theirs: Hello) -> str:
    """Return which setting differs between two ranks though all must have it alike; empty if none does."""
    if mine.network != theirs.network:
        return (
            f"rank {mine.rank} has {mine.network}, but rank {theirs.rank} has {theirs.network}: they would choose "
            "different algorithms; give all ranks the same RINGCAST_CONFIG, or none"
        )
    if bool(mine.card.key) != bool(theirs.card.key):
        with_key, without = (mine, theirs) if mine.card.key else (theirs, mine)
        return (
            f"rank {with_key.rank} encrypts, but rank {without.rank} does not: they could not talk; give all ranks the "
            "same RINGCAST_SECURITY and RINGCAST_TRANSPORT"
        )
    if mine.pickle != theirs.pickle:
        with_pickle, without = (mine, theirs) if mine.pickle else (theirs, mine)
        return (
            f"rank {without.rank} has RINGCAST_NO_PICKLE=1, but rank {with_pickle.rank} takes Python objects; "
            "give all ranks the same RINGCAST_NO_PICKLE"
        )
    if mine.deterministic != theirs.deterministic:
        fixed, free = (mine, theirs) if mine.deterministic else (theirs, mine)
        return (
            f"rank {fixed.rank} is deterministic, but rank {free.rank} is not: they would choose different algorithms; "
            "give all ranks the same RINGCAST_DETERMINISTIC, or the same to ringcast.init"
        )
    return ""


def _given_up(rank: int, cause: str) -> Abort:
    return Abort(f"rank {rank} was declared failed: {cause}")
