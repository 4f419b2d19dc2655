"""Detection of deadlocks, and of mismatches that no message shows, from the reports of stalled ranks. Pure decisions.

A stalled rank is one whose program has waited for a while, without a message, for one or several of its calls: for all
of them, or for any. It reports these and all other operations that it has under way, the ranks from which each needs
a message, how many messages it has sent to and seen from every peer, and its last calls. A rank that computes or polls
does not report. Where other threads or coroutines of a rank may make calls, its report has operations, but none for
which the program waits: these may be a part of what is stuck, the program is not. The findings:

1. Mismatch: A waits for B, and B made another call with the same number in the same communicator. A call that was made
   stays made, so this holds however old the reports are.
2. Deadlock. A program needs its calls; an operation needs all ranks that it waits for. Of such a rank it needs the same
   operation, if that is under way there; or the program, if that has not made the call yet. What needs something that
   is stuck is stuck; a program that waits for any of several calls, or a receive from any of several ranks, is so if
   all of them are. The communicators may be different ones. The ranks of one cycle of these programs and operations get
   a finding.

What is stuck stays so, though the reports are of different times. For an edge between two ranks counts only where
nothing is under way between them: each has seen as many messages of the other as that has sent. Proof: suppose that
something of it went on. Take the first event after the reports by which a rank A got something from the next one, B.
B sent that after its own report, for A had seen all from before. So B had gone on before: with the same operation, or
with its program. Each of them is stuck as well, so it needed something from a third rank (the program through one of
its calls): that was an event before the first one. The one thing that a rank gives without going on is a grant that it
withheld, and that needs the messages which this operation receives: so the way goes on from there to those senders
only. A rank withdraws its report with the next message, whatever that is for. A message under way makes a pair of
numbers differ: a slow program forms no cycle.

A rank in `agree` or `shrink` needs the votes of the ranks that have not voted, which the control plane knows. A vote
comes the same way as the reports of its rank, after them: so the argument holds. As a call in a communicator that was
given up ends by itself, and another rank may vote before that, such calls are no part of a cycle (see
`ringcast.control.membership`).

Only a call that ends by itself (a timeout, an interrupt) breaks a cycle; such a rank reports that it has moved, and a
rank counts only when it has reported twice that it waits.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeVar

from ringcast.wire.header import P2P, call_of, made
from ringcast.wire.reports import KNOWN, CallRecord, Deadlock, Finding, Mismatch, OperationReport, StallReport

LOOK = 2e-6  # seconds between two searches for cycles, times the square of the waiting ranks: bounds their cost …
MOST = 1.0  # … and at most this
CALLS_SHOWN = 8  # ranks of a cycle whose calls are in the finding

Node = TypeVar("Node")


class _Stuck(NamedTuple):
    """A node of the wait-for graph: the program of a rank, or one of its operations."""

    rank: int
    operation: int | None  # its place in the rank's report; None: the program
    receives: bool = False  # of the operation only what it receives counts


class DeadlockDetector:
    """Keeps the last report of every stalled rank, and searches them for mismatches and cycles."""

    def __init__(self) -> None:
        self._reports: dict[int, StallReport] = {}
        self._look = 0.0  # no search for cycles before this time

    def report(self, report: StallReport, now: float) -> list[Finding]:
        """Take a report and return what is known now, for every rank that it concerns; `now` is in seconds."""
        self._reports[report.rank] = report
        found = self._mismatch(report)
        if not found and now >= self._look:
            self._look = now + min(MOST, LOOK * len(self._reports) ** 2)
            found = self._deadlock()
        for finding in found:
            self.moved(finding.rank)
        return found

    def moved(self, rank: int) -> None:
        """Forget a rank that does not wait any more."""
        self._reports.pop(rank, None)

    def voted(self, context: int) -> None:
        """Forget the reports of ranks in an agreement of this communicator, as their wait-for sets have changed."""
        for report in [*self._reports.values()]:
            if any(op.call.context == context and op.call.number < 0 for op in report.operations):
                self.moved(report.rank)

    def ends(self, context: int) -> None:
        """Forget the reports of ranks with calls in a communicator that was given up."""
        for report in [*self._reports.values()]:
            if context in report.contexts:
                self.moved(report.rank)

    def forget(self) -> None:
        """Forget all reports: calls end by themselves, and ranks that still wait report again."""
        self._reports.clear()

    def _mismatch(self, report: StallReport) -> list[Finding]:
        for mine in report.operations:
            for peer in mine.waits if mine.call.number > 0 else ():
                for theirs in self._calls(peer):
                    if _same_place(mine.call, theirs) and theirs.fingerprint != mine.call.fingerprint:
                        return [
                            _mismatch(report.rank, mine.call, peer, theirs),
                            _mismatch(peer, theirs, report.rank, mine.call),
                        ]
        return []

    def _calls(self, rank: int) -> Iterator[CallRecord]:
        if (report := self._reports.get(rank)) is not None:
            yield from (op.call for op in report.operations)
            yield from report.ended

    def _deadlock(self) -> list[Finding]:
        stuck = self._stuck()
        cycle = find_cycle(stuck, lambda one: (other for other in stuck[one] if other in stuck))
        told: dict[int, CallRecord] = {}  # of each rank in the cycle, the first operation that is part of it
        for rank, operation, _ in cycle:
            if operation is not None:
                told.setdefault(rank, self._reports[rank].operations[operation].call)
        if not told:
            return []
        ranks = [rank for rank, operation, _ in cycle if operation is not None]
        first = ranks.index(min(ranks))
        around = (*ranks[first:], *ranks[:first])
        shown = [told[rank] for rank in around[:CALLS_SHOWN]]
        calls = tuple(f"{call.text} at {call.site}" if call.site else call.text for call in shown)
        return [
            Deadlock(rank, told[rank].context, told[rank].number, self._reports[rank].seconds, around, calls)
            for rank in dict.fromkeys(around)
        ]

    def _stuck(self) -> dict[_Stuck, list[_Stuck]]:
        """Return all that is stuck, with what it needs: the largest set that is consistent."""
        needs: dict[_Stuck, list[_Stuck]] = {}
        todo = [_Stuck(rank, None) for rank in sorted(self._reports) if self._reports[rank].times >= 2]
        while todo:
            one = todo.pop()
            if one not in needs:
                needs[one] = [*self._needs(one)]
                todo += needs[one]
        users: dict[_Stuck, list[_Stuck]] = defaultdict(list)
        for one, others in needs.items():
            for other in others:
                users[other].append(one)
        left = {one: len(others) for one, others in needs.items()}
        todo = [one for one in needs if not left[one]]
        while todo:
            one = todo.pop()
            if needs.pop(one, None) is not None:
                for user in users[one]:
                    left[user] -= 1
                    if not left[user] or self._any_will_do(user):
                        todo.append(user)
        return needs

    def _any_will_do(self, one: _Stuck) -> bool:
        report = self._reports[one.rank]
        return not (report.every if one.operation is None else report.operations[one.operation].every)

    def _needs(self, one: _Stuck) -> Iterator[_Stuck]:
        """Yield what must go on before `one` can: all of that, or any (`_any_will_do`)."""
        report = self._reports[one.rank]
        if one.operation is None:
            yield from (_Stuck(one.rank, place) for place, _ in enumerate(report.operations[: report.awaited]))
            return
        mine = report.operations[one.operation]
        peers = mine.sources if one.receives else mine.waits
        parts = [part for peer in peers for part in self._parts(report, mine, peer)]
        if mine.every or len(parts) == len(peers):  # else one that would do is not known to wait
            yield from parts

    def _parts(self, report: StallReport, mine: OperationReport, peer: int) -> Iterator[_Stuck]:
        """Yield the one thing that an operation needs of a rank, or nothing."""
        if (theirs := self._reports.get(peer)) is not None and _steady(report, theirs):
            yield from _part(mine, report.rank, theirs)


def _steady(mine: StallReport, theirs: StallReport) -> bool:
    """Return whether both have waited for long, and nothing is under way between the two."""
    return (
        min(mine.times, theirs.times) >= 2
        and mine.sent.get(theirs.rank, 0) == theirs.seen.get(mine.rank, 0)
        and mine.seen.get(theirs.rank, 0) == theirs.sent.get(mine.rank, 0)
    )


def _part(mine: OperationReport, rank: int, theirs: StallReport) -> Iterator[_Stuck]:
    """Yield what an operation of `rank` needs of another rank; nothing where that is not known."""
    call = mine.call
    for place, op in enumerate(theirs.operations):
        owed = rank in op.owes
        if op.call.context == call.context and (_same_call(call, op.call) or (owed and call.number == P2P)):
            if op.call.number <= call.number:  # else it has sent its part of that stage already
                yield _Stuck(theirs.rank, place, receives=owed)
            return
    if call.number <= P2P or not _has_made(theirs, call):
        yield _Stuck(theirs.rank, None)


def _has_made(report: StallReport, call: CallRecord) -> bool:
    """Return whether a rank has made this call, as far as is known."""
    last = report.begun.get(call.context)
    if last is None:  # it does not know the communicator yet; or it has so many that not all are in the report
        return len(report.begun) >= KNOWN
    return made(last, call_of(call.number))


def _same_call(mine: CallRecord, theirs: CallRecord) -> bool:
    return min(mine.number, theirs.number) > P2P and call_of(mine.number) == call_of(theirs.number)


def _same_place(mine: CallRecord, theirs: CallRecord) -> bool:
    return (mine.context, mine.number) == (theirs.context, theirs.number)


def _mismatch(rank: int, mine: CallRecord, peer: int, theirs: CallRecord) -> Mismatch:
    same = theirs.text == mine.text
    text = "the same, with other arguments" if same else theirs.text
    return Mismatch(rank, mine.context, mine.number, peer, mine.text, mine.site, text, theirs.site)


def find_cycle(starts: Iterable[Node], after: Callable[[Node], Iterable[Node]]) -> list[Node]:
    """Return the nodes of a cycle that can be reached from `starts`, each before one that is `after` it; or none.

    >>> find_cycle([1], {1: [2, 3], 2: [], 3: [4], 4: [3]}.__getitem__)
    [3, 4]
    """
    done: set[Node] = set()
    for start in starts:
        path: list[Node] = [start]
        ways = [] if start in done else [iter(after(start))]
        while ways:
            node = next(ways[-1], None)
            if node is None:
                ways.pop()
                done.add(path.pop())
            elif node in path:
                return path[path.index(node) :]
            elif node not in done:
                path.append(node)
                ways.append(iter(after(node)))
    return []
