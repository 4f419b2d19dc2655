"""Who waits for whom: what is found is true whenever reports were made, and everything that is stuck is found."""

from __future__ import annotations

import doctest
import graphlib
from collections import Counter, deque
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringcast.control import deadlocks
from ringcast.control.deadlocks import DeadlockDetector, find_cycle
from ringcast.wire.reports import CallRecord, Deadlock, Mismatch, StallReport

CALL = CallRecord(3, 77, "barrier()", "prog.py:5")
OTHER = CallRecord(3, 78, "scan()", "prog.py:9")


def report(
    rank: int, *peers: int, call: CallRecord = CALL, context: int = 1, times: int = 2, **facts: Any
) -> StallReport:
    return StallReport(rank, context, call, 0, peers, peers, facts.pop("owes", ()), {}, {}, times=times, **facts)


def test_the_examples_in_docstrings_are_true() -> None:
    result = doctest.testmod(deadlocks)
    assert result.attempted > 0
    assert result.failed == 0


# Cycles.

graphs = st.integers(1, 7).flatmap(
    lambda p: st.lists(st.lists(st.integers(0, p - 1), max_size=3), min_size=p, max_size=p)
)


@given(graphs)
def test_a_cycle_is_found_where_there_is_one(after: list[list[int]]) -> None:
    cycle = find_cycle(range(len(after)), after.__getitem__)
    assert all(b in after[a] for a, b in zip(cycle, cycle[1:] + cycle[:1], strict=True))
    try:
        graphlib.TopologicalSorter(dict(enumerate(after))).prepare()
        assert cycle == []
    except graphlib.CycleError:
        assert cycle != []


@pytest.mark.parametrize("p", [*range(1, 9), 100])
def test_ranks_that_wait_around_are_a_deadlock_of_all_of_them(p: int) -> None:
    board = DeadlockDetector()
    for rank in range(p):
        found = board.report(report(rank, (rank + 1) % p, context=rank, seconds=rank), 10.0 * rank)
        assert (found != []) == (rank == p - 1)
    assert {each.rank: each.context for each in found} == {rank: rank for rank in range(p)}
    for each in found:
        assert isinstance(each, Deadlock)
        assert (each.cycle, each.seconds) == (tuple(range(p)), each.rank)
        assert each.calls == ("barrier() at prog.py:5",) * min(p, 8)


def test_a_deadlock_needs_two_reports_of_every_rank() -> None:
    for first, second in product((1, 2), repeat=2):
        board = DeadlockDetector()
        board.report(report(0, 1, times=first), 0.0)
        assert (board.report(report(1, 0, times=second), 1.0) != []) == (first == second == 2)


def test_a_rank_that_has_moved_is_no_part_of_a_cycle() -> None:
    board = DeadlockDetector()
    board.report(report(0, 1), 0.0)
    board.moved(0)
    assert board.report(report(1, 0), 1.0) == []


@pytest.mark.parametrize("p", range(2, 6))
@pytest.mark.parametrize("back", [False, True])
def test_nobody_is_accused_while_one_message_is_under_way(p: int, back: bool) -> None:
    for at in range(p):
        sender, receiver = ((at + 1) % p, at) if back else (at, (at + 1) % p)
        board = DeadlockDetector()
        for rank in range(p):
            said = report(rank, (rank + 1) % p)
            said = replace(said, sent={receiver: 1}) if rank == sender else said
            assert board.report(said, 10.0 * rank) == []
        seen = replace(report(receiver, (receiver + 1) % p), seen={sender: 1})  # it has come, and did not help
        assert {each.rank for each in board.report(seen, 100.0)} == set(range(p))


def test_a_withheld_grant_waits_for_what_is_received_only() -> None:
    """Rank 1 receives from 3 and will then grant to 0; that it also sends to 2 does not keep it from that."""
    for slow in True, False:
        board = DeadlockDetector()
        board.report(report(0, 1), 0.0)
        board.report(replace(report(1, 2, 3, owes=(0,)), sources=(3,)), 10.0)
        assert board.report(report(2, 0), 20.0) == []
        if not slow:
            found = board.report(report(3, 0), 30.0)
            assert {each.rank for each in found} == {0, 1, 3}


class World:
    """Ranks that compute, send, and wait for a message of each of several others; their reports come late, in order."""

    def __init__(self, p: int) -> None:
        self.p, self.board, self.now = p, DeadlockDetector(), 0.0
        self.needs: list[set[int]] = [set() for _ in range(p)]  # empty: computes
        self.sent: Counter[tuple[int, int]] = Counter()
        self.seen: Counter[tuple[int, int]] = Counter()  # [a, b]: of those from b
        self.spare: Counter[tuple[int, int]] = Counter()  # seen, and not used yet
        self.times = [0] * p
        self.line: list[deque[StallReport | None]] = [deque() for _ in range(p)]  # None: moving

    def stuck(self) -> set[int]:
        """Return the ranks that can never go on: the largest set each of which needs another one of it."""
        ranks = set(range(self.p))
        while free := {a for a in ranks if not any(b in ranks and self._missing(a, b) for b in self.needs[a])}:
            ranks -= free
        return ranks

    def _missing(self, a: int, b: int) -> bool:
        return self.sent[b, a] == self.seen[a, b]

    def send(self, a: int, b: int) -> None:
        if not self.needs[a]:
            self.sent[a, b] += 1

    def deliver(self, a: int, b: int) -> None:
        if self.sent[a, b] > self.seen[b, a]:
            self.seen[b, a] += 1
            self.spare[b, a] += 1
            self._moved(b)
            self._use(b)

    def wait(self, a: int, peers: set[int]) -> None:
        if not self.needs[a]:
            self.needs[a] = set(peers)
            self._use(a)

    def _use(self, a: int) -> None:
        for b in [b for b in self.needs[a] if self.spare[a, b]]:
            self.spare[a, b] -= 1
            self.needs[a].discard(b)

    def _moved(self, a: int) -> None:
        if self.times[a]:
            self.times[a] = 0
            self.line[a].append(None)

    def report(self, a: int) -> None:
        if self.needs[a]:
            self.times[a] += 1
            counts = [{b: table[a, b] for b in range(self.p)} for table in (self.sent, self.seen)]
            peers = tuple(sorted(self.needs[a]))
            self.line[a].append(StallReport(a, a, CALL, None, peers, peers, (), *counts, times=self.times[a]))

    def hear(self, a: int) -> list[Any]:
        self.now += 10.0
        if not self.line[a]:
            return []
        said = self.line[a].popleft()
        if said is None:
            self.board.moved(a)
            return []
        return self.board.report(said, self.now)


@given(st.integers(1, 4), st.data())
def test_findings_are_true_at_any_time_and_complete_in_the_end(p: int, data: st.DataObject) -> None:
    world, rank = World(p), st.integers(0, p - 1)
    told: set[int] = set()
    steps = st.sampled_from(["send", "deliver", "wait", "report", "hear"])
    for step in data.draw(st.lists(steps, max_size=60)):
        a = data.draw(rank)
        if step in ("send", "deliver"):
            getattr(world, step)(a, data.draw(rank))
        elif step == "wait":
            world.wait(a, data.draw(st.sets(rank, min_size=1)))
        elif step == "report":
            world.report(a)
        else:
            found = world.hear(a)
            told |= {each.rank for each in found}
            assert told <= world.stuck(), "a rank that can go on was accused"
    for a, b in product(range(p), repeat=2):
        while world.sent[a, b] > world.seen[b, a]:
            world.deliver(a, b)
    for _ in range(p + 2):  # a look finds one cycle
        for a in range(p):
            world.report(a)
            while world.line[a]:
                told |= {each.rank for each in world.hear(a)}
    assert told <= world.stuck()
    assert bool(told) == bool(world.stuck())


# Mismatches.


@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize("first", [0, 1])
def test_another_call_with_the_same_number_is_a_mismatch_of_both(ended: bool, first: int) -> None:
    later = replace(CALL, number=9)
    said = [report(0, 1, times=1), report(1, 0, call=later, ended=(OTHER,)) if ended else report(1, 0, call=OTHER)]
    board = DeadlockDetector()
    assert board.report(said[first], 0.0) == []
    found = board.report(said[1 - first], 0.0) or board.report(said[0], 1.0)  # at the latest when it says so again
    sides = {each.rank: each for each in found}
    assert sides[0] == Mismatch(0, 1, 3, 1, "barrier()", "prog.py:5", "scan()", "prog.py:9")
    assert sides[1] == Mismatch(1, 1, 3, 0, "scan()", "prog.py:9", "barrier()", "prog.py:5")


@pytest.mark.parametrize(
    "other",
    [
        report(1, 0, call=OTHER, context=2, times=1),
        report(1, 0, call=replace(OTHER, number=4), times=1),
        report(1, 0, call=CALL, times=1),
        report(1, 0, call=replace(OTHER, number=4), ended=(CALL,), times=1),
        report(2, 0, call=OTHER, times=1),
    ],
)
def test_other_communicators_numbers_and_ranks_are_no_mismatch(other: StallReport) -> None:
    board = DeadlockDetector()
    board.report(other, 0.0)
    assert board.report(report(0, 1), 0.0) == []


def test_exchanges_between_two_have_no_number_by_which_they_could_differ() -> None:
    board = DeadlockDetector()
    board.report(report(0, 1, call=replace(CALL, number=0), times=1), 0.0)
    assert board.report(report(1, 0, call=replace(OTHER, number=0), times=1), 0.0) == []
