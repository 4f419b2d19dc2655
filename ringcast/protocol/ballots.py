"""Agreements under way: operations that wait for a decision of the control plane instead of messages of their peers.

A ballot does not belong to the communicator's operations: it goes on while the communicator is revoked. It stays open
at the control plane when this rank stops waiting for it. Its decision is kept until the next vote, as a call may take
up the old one, whose wait a signal's handler has broken off; a decision that comes later is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ringcast.errors import JobAborted, Where
from ringcast.protocol.error_factory import ErrorFactory
from ringcast.protocol.matching import ANY
from ringcast.protocol.operations import Operation, Receive
from ringcast.wire.call import Call, Site
from ringcast.wire.header import P2P
from ringcast.wire.reports import CallRecord, Deadlock
from ringcast.wire.votes import Decision, Vote


class _Decision:
    """The sink of a decision, which is no message between ranks."""

    total: int | None = 0

    def announce(self, source: int, tag: int, sizes: Sequence[int]) -> None:
        """Nothing to learn."""

    def view(self, offset: int, length: int) -> memoryview:
        raise AssertionError(f"a decision has no bytes at {offset}, length {length}")

    def placed(self, offset: int, length: int) -> None:
        raise AssertionError(f"a decision has no bytes at {offset}, length {length}")

    def put(self, offset: int, data: memoryview) -> None:
        raise AssertionError(f"a decision has no bytes at {offset}, length {len(data)}")


class Ballot(Operation):
    """The wait for the decision on a vote of this rank; `voters` returns the ranks that may still vote."""

    __slots__ = ("vote", "voters")

    def __init__(self, vote: Vote, site: Site, voters: Callable[[], tuple[int, ...]]) -> None:
        super().__init__(vote.context, P2P, Call(vote.verb), False, 1, site)
        self.vote, self.voters = vote, voters
        self.pending.add(Receive(self, ANY, 0, _Decision()))

    @property
    def key(self) -> tuple[int, int]:
        """Communicator and number of the vote, by which the control plane names it."""
        return self.vote.context, self.vote.number

    @property
    def where(self) -> Where:
        return Where(self.vote.verb, self.vote.number)

    @property
    def waiting_for(self) -> tuple[int, ...]:
        return self.voters()

    @property
    def call_record(self) -> CallRecord:
        return CallRecord(self.context, -self.vote.number, 0, f"{self.vote.verb}()", self.place)

    def decided(self) -> None:
        """End the wait."""
        for transfer in list(self.pending):
            self.complete(transfer)


class Ballots:
    """The ballots of one rank, and the decisions that it has not taken yet."""

    def __init__(self, errors: ErrorFactory) -> None:
        self._errors = errors
        self._open: dict[tuple[int, int], Ballot] = {}
        self._decisions: dict[tuple[int, int], Decision] = {}
        self._abandoned: set[tuple[int, int]] = set()  # votes whose decision no call takes, and is still to come

    def begin(self, ballot: Ballot) -> None:
        """Wait for a decision, which may be there."""
        if ballot.key in self._decisions:
            ballot.decided()
        else:
            self._open[ballot.key] = ballot

    def end(self, ballot: Ballot) -> None:
        """Stop waiting, for whatever reason."""
        self._open.pop(ballot.key, None)

    def take(self, ballot: Ballot) -> Decision:
        """Return the decision, once."""
        return self._decisions.pop(ballot.key)

    def abandon(self, context: int, number: int) -> None:
        """Drop the decision on a vote, now or when it comes: no call waits for it any more."""
        if self._decisions.pop((context, number), None) is None:
            self._abandoned.add((context, number))

    def of(self, context: int) -> Ballot | None:
        """Return the ballot of a communicator that is under way; None if there is none."""
        return next((ballot for ballot in self._open.values() if ballot.context == context), None)

    def under_way(self) -> list[Ballot]:
        return list(self._open.values())

    def decide(self, decision: Decision) -> None:
        """Keep a decision of the control plane, and end the wait for it; drop it if its vote is abandoned."""
        key = decision.context, decision.number
        if key in self._abandoned:
            self._abandoned.remove(key)
            return
        self._decisions[key] = decision
        if (ballot := self._open.pop(key, None)) is not None:
            ballot.decided()

    def deadlock(self, found: Deadlock) -> bool:
        """End a ballot that is in a cycle of waiting ranks; return whether it is still open."""
        ballot = self._open.pop((found.context, -found.number), None)
        if ballot is not None:
            ballot.fail(self._errors.deadlock(ballot, found))
        return ballot is not None

    def abort(self, cause: str) -> None:
        """End all ballots, as the job ends."""
        for ballot in self.under_way():
            self.end(ballot)
            ballot.fail(JobAborted(self._errors.rank, cause, ballot.where, ballot.waiting_for))
