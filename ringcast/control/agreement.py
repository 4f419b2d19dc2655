"""Agreement of the surviving ranks after a failure: pure decisions, without sockets or clocks.

A member of a communicator votes; when every member has voted, has failed or has left the job, one decision is made from
the votes of the live members, and sent to all of them. The control plane, which sees all failures, holds one
`Agreements`; so all survivors get the same decision, whatever else fails meanwhile. The rules:

1. The n-th vote of a rank on a communicator matches the n-th votes of the others: `number` is n, from 1 without gaps.
2. A rank that failed or left is gone: its vote does not count any more, and no vote waits for it.
3. A member that is gone, and was not acknowledged by all live members, is listed in the decision (`unacknowledged`).
4. A shrunk communicator gets a number that is never reused, and its members are the live ones, in their order.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from operator import and_

from ringcast.wire.reports import OperationReport, StallReport
from ringcast.wire.votes import SHRINK, Decision, Vote


class Agreements:
    """All agreements of one job; each event returns the decisions that it completes."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._gone: set[int] = set()
        self._open: dict[tuple[int, int], dict[int, Vote]] = {}
        self._last: dict[tuple[int, int], int] = defaultdict(int)  # number of the last vote, by context and rank
        self._members: dict[int, tuple[int, ...]] = {}  # of the communicators of a part of the job
        self._freed: dict[int, set[int]] = defaultdict(set)  # of these, the members that have freed it
        self._maker: dict[int, int] = {}  # of these, the rank that has told of it first
        self.made_by: Counter[int] = Counter()  # how many of them each rank has told of first
        self._fresh = 1 << 32  # numbers below are for whoever starts the job

    def members(self, context: int) -> Sequence[int]:
        """Return the ranks of a communicator; all, unless it was made by shrinking, or of a part of the job."""
        return self._members.get(context, range(self._size))

    def made(self, rank: int, context: int, members: Sequence[int]) -> None:
        """Note the members of a communicator, as one of them tells; the first one counts."""
        if rank in members and context not in self._members:
            self._members[context] = tuple(members)
            self._maker[context] = rank
            self.made_by[rank] += 1

    def freed(self, rank: int, context: int) -> None:
        """Note that a rank uses a communicator no more; when none of its members does, it is forgotten."""
        members = self._members.get(context, ())
        if rank in members:
            self._freed[context].add(rank)
            if self._gone.union(self._freed[context]).issuperset(members):
                del self._members[context], self._freed[context]
                if context in self._maker:  # else it was made by shrinking
                    self.made_by[self._maker.pop(context)] -= 1

    def vote(self, vote: Vote) -> list[Decision]:
        """Count a vote, unless its rank is no member or gone, or its number is not the next one."""
        turn = self._last[vote.context, vote.rank] + 1
        if vote.rank in self._gone or vote.rank not in self.members(vote.context) or vote.number != turn:
            return []
        self._last[vote.context, vote.rank] = turn
        self._open.setdefault((vote.context, vote.number), {})[vote.rank] = vote
        return self._decide(vote.context, vote.number)

    def refined(self, report: StallReport) -> StallReport:
        """Return a report in which agreements wait for the ranks whose votes they lack, which the rank cannot know."""
        told = (self._refined(op, report.rank) if op.call.number < 0 else op for op in report.operations)
        return replace(report, operations=tuple(told))

    def _refined(self, op: OperationReport, rank: int) -> OperationReport:
        context = op.call.context
        votes = self._open.get((context, -op.call.number), {})
        missing = {*self.members(context)} - {*votes} - self._gone if rank in votes else ()
        waits = tuple(sorted(missing))
        return replace(op, waits=waits, sources=waits)

    def lose(self, rank: int) -> list[Decision]:
        """Count a rank as gone: it failed, or has left the job."""
        self._gone.add(rank)
        keys = [key for key in self._open if rank in self.members(key[0])]
        return [decision for key in keys for decision in self._decide(*key)]

    def _decide(self, context: int, number: int) -> list[Decision]:
        votes, members = self._open[context, number], self.members(context)
        living = tuple(rank for rank in members if rank not in self._gone)
        if any(rank not in votes for rank in living):
            return []
        del self._open[context, number]
        if not living:
            return []
        flag = reduce(and_, (votes[rank].flag for rank in living))
        verbs = tuple(votes[rank].verb for rank in living)
        known = set.intersection(*(set(votes[rank].acknowledged) for rank in living))
        news = tuple(rank for rank in members if rank in self._gone and rank not in known)
        fresh = self._renew(living) if set(verbs) == {SHRINK} else 0
        return [Decision(context, number, living, verbs, flag, news, fresh)]

    def _renew(self, living: tuple[int, ...]) -> int:
        self._fresh += 1
        self._members[self._fresh] = living
        return self._fresh
