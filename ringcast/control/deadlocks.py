"""Detection of deadlocks, and of mismatches that no message shows, from the reports of stalled ranks. Pure decisions.

A stalled rank, which has waited for a while without a message, reports its wait-for set, how many messages it has sent
to and seen from every peer, and its last calls. It needs a message of *all* the ranks it waits for. The findings:

1. Mismatch: A waits for B, and B made another call with the same number in the same communicator. A call that was made
   stays made, so this holds however old the reports are.
2. Deadlock: a cycle of ranks, each of which waits for the next one, with nothing under way between neighbours (each has
   seen as many messages of the other as that has sent). The communicators may be different ones.

Such a cycle is a deadlock, though the reports are of different times. Proof: suppose that some rank of it went on.
Take the first event after the reports by which a rank A got something from the next one, B. B sent that after its own
report, for A had seen all from before. But B sends nothing that A waits for until B itself goes on, for which it needs
the rank after it: that was an event before the first one. The one thing that a rank gives without going on is a grant
that it withheld, and that needs the messages it receives: so the way goes on from there to those senders only. A rank
that computes does not report, and a message under way makes a pair of numbers differ: a slow program forms no cycle.

A rank in `agree` or `shrink` needs the votes of the ranks that have not voted, which the control plane knows. A vote
comes the same way as the reports of its rank, after them: so the argument holds. As a call in a communicator that was
given up ends by itself, and another rank may vote before that, such calls are no part of a cycle (see
`ringcast.control.membership`).

Only a call that ends by itself (a timeout, an interrupt) breaks a cycle; such a rank reports that it has moved, and a
cycle counts only when each of its ranks has reported twice that it waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from ringcast.wire.reports import CallRecord, Deadlock, Finding, Mismatch, StallReport

LOOK = 2e-6  # seconds between two searches for cycles, times the square of the waiting ranks: bounds their cost …
MOST = 1.0  # … and at most this
CALLS_SHOWN = 8  # ranks of a cycle whose calls are in the finding

Node = TypeVar("Node")


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
            if report.context == context and report.call.number < 0:
                self.moved(report.rank)

    def ends(self, context: int) -> None:
        """Forget the calls in a communicator that was given up."""
        for report in [*self._reports.values()]:
            if report.context == context and report.call.number >= 0:
                self.moved(report.rank)

    def forget(self) -> None:
        """Forget all reports: calls end by themselves, and ranks that still wait report again."""
        self._reports.clear()

    def _mismatch(self, report: StallReport) -> list[Finding]:
        mine, context = report.call, report.context
        if mine.number <= 0:
            return []
        for peer in report.waits:
            other = self._reports.get(peer)
            if other is None or other.context != context:
                continue
            for theirs in (other.call, *other.ended):
                if theirs.number == mine.number and theirs.fingerprint != mine.fingerprint:
                    return [
                        _mismatch(report.rank, context, mine, peer, theirs),
                        _mismatch(peer, context, theirs, report.rank, mine),
                    ]
        return []

    def _deadlock(self) -> list[Finding]:
        edges = (edge for rank in sorted(self._reports) for edge in self._edges(rank, self._reports[rank].waits))
        found = find_cycle(edges, self._after)
        if not found:
            return []
        ranks = [rank for rank, _ in found]
        first = ranks.index(min(ranks))
        cycle = (*ranks[first:], *ranks[:first])
        made = [self._reports[rank].call for rank in cycle[:CALLS_SHOWN]]
        calls = tuple(f"{call.text} at {call.site}" if call.site else call.text for call in made)
        reports = (self._reports[rank] for rank in dict.fromkeys(cycle))
        return [Deadlock(r.rank, r.context, r.call.number, r.seconds, cycle, calls) for r in reports]

    def _after(self, edge: tuple[int, int]) -> Iterator[tuple[int, int]]:
        """Return the edges of which one must vanish before this one can."""
        waiting, rank = edge
        report = self._reports[rank]
        return self._edges(rank, report.sources if waiting in report.owes else report.waits)

    def _edges(self, rank: int, peers: Iterable[int]) -> Iterator[tuple[int, int]]:
        """Return the steady waits of `rank` for some of `peers`: nothing is under way between the two."""
        mine = self._reports[rank]
        for peer in peers:
            theirs = self._reports.get(peer)
            if (
                theirs is not None
                and min(mine.times, theirs.times) >= 2
                and mine.sent.get(peer, 0) == theirs.seen.get(rank, 0)
                and mine.seen.get(peer, 0) == theirs.sent.get(rank, 0)
            ):
                yield rank, peer


def _mismatch(rank: int, context: int, mine: CallRecord, peer: int, theirs: CallRecord) -> Mismatch:
    same = theirs.text == mine.text
    text = "the same, with other arguments" if same else theirs.text
    return Mismatch(rank, context, mine.number, peer, mine.text, mine.site, text, theirs.site)


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
