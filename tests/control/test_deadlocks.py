"""Cycles of waits: a found cycle is true for reports of any time, and every cycle is found."""

from __future__ import annotations

import doctest
import graphlib
from collections import Counter, deque
from dataclasses import replace
from itertools import product
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringcast.control import deadlocks
from ringcast.control.deadlocks import DeadlockDetector, find_cycle
from ringcast.wire.header import STAGES
from ringcast.wire.reports import CallRecord, Deadlock, Mismatch, OperationReport, StallReport

CALL = CallRecord(1, 3 * STAGES, 77, "barrier()", "prog.py:5")
OTHER = CallRecord(1, 3 * STAGES, 78, "scan()", "prog.py:9")
BEFORE = dict.fromkeys(range(100), 2)  # the last call in each communicator


def operation(
    *peers: int, call: CallRecord = CALL, sources: tuple[int, ...] | None = None, owes: tuple[int, ...] = ()
) -> OperationReport:
    return OperationReport(call, 0, peers, peers if sources is None else sources, owes)


def report(rank: int, *peers: int, call: CallRecord = CALL, times: int = 2, **facts: Any) -> StallReport:
    """Return the report of a rank whose program waits for one call, which needs all of some peers."""
    return waits(rank, operation(*peers, call=call), times=times, **facts)


def waits(rank: int, *operations: OperationReport, awaited: int = 1, every: bool = True, **facts: Any) -> StallReport:
    facts = {"begun": BEFORE, "sent": {}, "seen": {}, "times": 2, **facts}
    return StallReport(rank, operations, awaited, every, **facts)


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
        found = board.report(report(rank, (rank + 1) % p, call=replace(CALL, context=rank), seconds=rank), 10.0 * rank)
        assert (found != []) == (rank == p - 1)
    assert {each.rank: each.context for each in found} == {rank: rank for rank in range(p)}
    for each in found:
        assert isinstance(each, Deadlock)
        assert (each.cycle, each.seconds) == (tuple(range(p)), each.rank)
        assert each.calls == ("barrier() at prog.py:5",) * min(p, 8)


@pytest.mark.parametrize("p", [1, 2, 3, 7])
def test_a_program_that_may_do_something_else_is_in_no_cycle(p: int) -> None:
    """As one with several threads, or with coroutines: its report has operations, but none for which it waits."""
    board = DeadlockDetector()
    for rank in range(p):
        needs = operation((rank + 1) % p, call=replace(CALL, context=rank))
        assert board.report(waits(rank, needs, awaited=min(rank, 1)), 10.0 * rank) == []


def test_its_operations_may_be_in_one() -> None:
    """Ranks 0 and 1 are in a call that rank 2 has not made, as it waits for one that rank 0 makes next."""
    board, next_call = DeadlockDetector(), replace(CALL, context=2)
    assert board.report(waits(0, operation(1), begun=BEFORE | {1: 3}), 0.0) == []
    assert board.report(waits(1, operation(2), begun=BEFORE | {1: 3}, awaited=0), 10.0) == []
    found = board.report(waits(2, operation(0, call=next_call), begun=BEFORE | {2: 3}), 20.0)
    assert [(each.rank, each.context) for each in found] == [(0, 1), (1, 1), (2, 2)]


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
        board.report(waits(1, operation(2, 3, sources=(3,), owes=(0,))), 10.0)
        assert board.report(report(2, 0), 20.0) == []
        if not slow:
            found = board.report(report(3, 0), 30.0)
            assert {each.rank for each in found} == {0, 1, 3}


class World:
    """Ranks that compute, send, and wait for a message of each of several others, or of any; their reports come late,
    in order.
    """

    def __init__(self, p: int) -> None:
        self.p, self.board, self.now = p, DeadlockDetector(), 0.0
        self.needs: list[set[int]] = [set() for _ in range(p)]  # empty: computes
        self.every = [True] * p
        self.sent: Counter[tuple[int, int]] = Counter()
        self.seen: Counter[tuple[int, int]] = Counter()  # [a, b]: of those from b
        self.spare: Counter[tuple[int, int]] = Counter()  # seen, and not used yet
        self.times = [0] * p
        self.line: list[deque[StallReport | None]] = [deque() for _ in range(p)]  # None: moving

    def stuck(self) -> set[int]:
        """Return the ranks that can never go on: the largest set each of which needs another one of it."""
        ranks = set(range(self.p))
        while free := {a for a in ranks if not self._held(a, ranks)}:
            ranks -= free
        return ranks

    def _held(self, a: int, ranks: set[int]) -> bool:
        held = [b in ranks and self._missing(a, b) for b in self.needs[a]]
        return any(held) if self.every[a] else bool(held) and all(held)

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

    def wait(self, a: int, peers: set[int], every: bool) -> None:
        if not self.needs[a]:
            self.needs[a], self.every[a] = set(peers), every
            self._use(a)

    def _use(self, a: int) -> None:
        come = [b for b in self.needs[a] if self.spare[a, b]]
        for b in come if self.every[a] else come[:1]:
            self.spare[a, b] -= 1
            self.needs[a].discard(b)
        if come and not self.every[a]:
            self.needs[a].clear()

    def _moved(self, a: int) -> None:
        if self.times[a]:
            self.times[a] = 0
            self.line[a].append(None)

    def report(self, a: int) -> None:
        if self.needs[a]:
            self.times[a] += 1
            counts = [{b: table[a, b] for b in range(self.p)} for table in (self.sent, self.seen)]
            peers = tuple(sorted(self.needs[a]))
            call = replace(CALL, context=a)
            sent, seen = counts
            needs = replace(operation(*peers, call=call), every=self.every[a])
            said = waits(a, needs, sent=sent, seen=seen, times=self.times[a])
            self.line[a].append(said)

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
            world.wait(a, data.draw(st.sets(rank, min_size=1)), data.draw(st.booleans()))
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


# Several operations under way.


def call(context: int, number: int = 3, stage: int = 0) -> CallRecord:
    return CallRecord(context, number * STAGES + stage, 77, f"call in {context}", "prog.py:5")


def told(*reports: StallReport) -> set[int]:
    """Return the ranks that are in a cycle when all have reported."""
    board = DeadlockDetector()
    return {found.rank for now, said in enumerate(reports) for found in board.report(said, 10.0 * now)}


def test_an_operation_goes_on_while_the_program_waits_for_another_one() -> None:
    """Rank 0 waits for rank 1 in call 5. The program of rank 1 waits in call 7, but its call 5 needs only rank 3."""
    cycle = waits(2, operation(0, call=call(6)))
    for needs, found in ((2,), {0, 1, 2}), ((3,), set()):
        one = waits(1, operation(2, call=call(7)), operation(*needs, call=call(5)))
        assert told(waits(0, operation(1, call=call(5))), one, cycle) == found


def test_a_call_that_a_rank_has_not_made_needs_its_program() -> None:
    for last, found in (2, {0, 1}), (3, set()):
        other = waits(1, operation(0, call=call(6)), begun={5: last, 6: 3})
        assert told(waits(0, operation(1, call=call(5))), other) == found


def test_a_later_stage_needs_the_one_under_way_and_an_earlier_one_is_over() -> None:
    """Rank 0 waits for 1 in stage 1, 1 for 2 in some stage of the same call, and 2 for 0 in a call it has not made."""
    for stage, found in (0, {0, 1, 2}), (1, {0, 1, 2}), (2, set()):
        first = waits(0, operation(1, call=call(5, 3, 1)), begun={5: 3, 6: 2})
        second = waits(1, operation(2, call=call(5, 3, stage)), begun={5: 3, 6: 2})
        assert told(first, second, waits(2, operation(0, call=call(6)), begun={5: 2, 6: 3})) == found


@pytest.mark.parametrize("every", [False, True])
def test_who_waits_for_any_of_several_calls_needs_all_of_them_to_be_stuck(every: bool) -> None:
    for other, stuck in (1, True), (2, every):  # nothing is known of rank 2
        first = waits(0, operation(1, call=call(5)), operation(other, call=call(6)), awaited=2, every=every)
        assert told(first, waits(1, operation(0, call=call(7)))) == ({0, 1} if stuck else set())


def test_an_exchange_needs_the_program_of_its_peer_unless_that_owes_a_grant() -> None:
    exchange = replace(call(5), number=0)
    for owes, found in ((), {0, 1}), ((0,), set()):
        other = waits(1, operation(0, call=call(6)), operation(call=exchange, sources=(), owes=owes))
        assert told(waits(0, operation(1, call=exchange)), other) == found


@pytest.mark.parametrize("every", [False, True])
def test_a_receive_from_any_rank_needs_all_of_them_to_be_stuck(every: bool) -> None:
    """Rank 0 waits for 1, which waits for 0, and for 2, of which nothing is known, or which waits for 0 as well."""
    any_rank = replace(operation(1, 2, call=replace(call(5), number=0)), every=every)
    others = [waits(rank, operation(0, call=call(6 + rank))) for rank in (1, 2)]
    assert (told(waits(0, any_rank), others[0]) != set()) == every
    assert told(waits(0, any_rank), *others) >= {0}


class Overlap:
    """Ranks whose calls overlap: each of the calls 0, 1, … is one message to each of some ranks, and one from each.

    A rank makes all of its calls in the same order, sends what belongs to a call when it has all that the call needs
    before, and waits for some calls, for all or any of them, before it makes the next one.
    """

    def __init__(self, p: int, calls: int, random: Random) -> None:
        self.p, self.calls, self.board, self.now = p, calls, DeadlockDetector(), 0.0
        others = [[b for b in range(p) if b != a] for a in range(p)]
        self.needs = [[{*random.choices(others[a], k=random.randrange(1, 3))} for _ in range(calls)] for a in range(p)]
        self.gives = [[{b for b in range(p) if a in self.needs[b][c]} for c in range(calls)] for a in range(p)]
        self.eager = [[random.random() < 0.4 for _ in range(calls)] for _ in range(p)]  # sends before it receives
        self.made = [0] * p
        self.waits: list[tuple[set[int], bool]] = [(set(), True) for _ in range(p)]  # calls, whether for all of them
        self.under_way: list[set[tuple[int, int]]] = [set() for _ in range(p)]  # from a: (to, call)
        self.got: list[set[tuple[int, int]]] = [set() for _ in range(p)]  # (from, call)
        self.sent: Counter[tuple[int, int]] = Counter()
        self.times = [0] * p

    def open(self, a: int) -> list[int]:
        return [c for c in range(self.made[a]) if self.missing(a, c)]

    def missing(self, a: int, c: int) -> set[int]:
        return {b for b in self.needs[a][c] if (b, c) not in self.got[a]}

    def free(self, a: int) -> bool:
        """Return whether the program computes: it waits for no call, or its wait is over."""
        calls, every = self.waits[a]
        done = [not self.missing(a, c) for c in calls]
        return not calls or (all(done) if every else any(done))

    def make(self, a: int, waits: set[int], every: bool) -> None:
        if self.free(a) and self.made[a] < self.calls:
            self.moved(a)
            c, self.made[a] = self.made[a], self.made[a] + 1
            if self.eager[a][c] or not self.missing(a, c):
                self.give(a, c)
            self.waits[a] = {w for w in waits if w < self.made[a]}, every

    def wait(self, a: int) -> None:
        """Let a program that computes wait for all of its calls: nothing can be known of it before."""
        if self.free(a):
            self.waits[a] = set(self.open(a)), True

    def give(self, a: int, c: int) -> None:
        self.under_way[a] |= {(b, c) for b in self.gives[a][c]}
        for b in self.gives[a][c]:
            self.sent[a, b] += 1

    def deliver(self, a: int) -> None:
        if self.under_way[a]:
            b, c = min(self.under_way[a])
            self.under_way[a].remove((b, c))
            self.moved(b)
            self.got[b].add((a, c))
            if c < self.made[b] and not self.eager[b][c] and not self.missing(b, c):
                self.give(b, c)

    def moved(self, a: int) -> None:
        self.times[a] = 0
        self.board.moved(a)

    def report(self, a: int) -> set[int]:
        if self.free(a):
            return set()
        self.times[a] += 1
        self.now += 10.0
        calls, every = self.waits[a]
        awaited = [c for c in calls if self.missing(a, c)]
        rest = [c for c in self.open(a) if c not in awaited]
        sent = {b: self.sent[a, b] for b in range(self.p)}
        seen = {b: self.sent[b, a] - sum(to == a for to, _ in self.under_way[b]) for b in range(self.p)}
        told = (operation(*sorted(self.missing(a, c)), call=call(1, c + 1)) for c in (*awaited, *rest))
        facts = {"begun": {1: self.made[a]}, "sent": sent, "seen": seen, "times": self.times[a]}
        said = waits(a, *told, awaited=len(awaited), every=every, **facts)
        return {found.rank for found in self.board.report(said, self.now)}

    def stuck(self) -> set[int | tuple[int, int]]:
        """Return all ranks and (rank, call) that can never go on, though every rank that is free makes all calls."""
        stuck: set[int | tuple[int, int]] = {a for a in range(self.p) if not self.free(a)}
        stuck |= {(a, c) for a in range(self.p) for c in self.open(a)}

        def held(one: int | tuple[int, int]) -> bool:
            if isinstance(one, tuple):
                a, c = one
                return any(self.never(a, b, c, stuck) for b in self.missing(a, c))
            calls, every = self.waits[one]
            found = [(one, c) in stuck for c in calls]
            return any(found) if every else all(found)

        while free := {one for one in stuck if not held(one)}:
            stuck -= free
        return stuck

    def never(self, a: int, b: int, c: int, stuck: set[int | tuple[int, int]]) -> bool:
        """Return whether `b` never sends its message for call `c` to `a`, if everything in `stuck` is stuck."""
        if (a, c) in self.under_way[b]:
            return False
        return b in stuck if c >= self.made[b] else (b, c) in stuck and not self.eager[b][c]


@pytest.mark.thorough
@pytest.mark.parametrize("seeds", [range(300), pytest.param(range(300, 1000), marks=pytest.mark.long)], ids=str)
@pytest.mark.parametrize("p", [2, 3, 4])
def test_findings_on_calls_that_overlap_are_true_and_complete(p: int, seeds: range) -> None:
    assert sum(check_overlap(p, seed) for seed in seeds) > len(seeds) / 10, "some programs must come to a deadlock"


def check_overlap(p: int, seed: int) -> bool:
    """Check what is found while a random program runs, and at its end; return whether that is a deadlock."""
    random = Random(seed)
    world, found, where = Overlap(p, 4, random), set[int](), f"p = {p}, seed = {seed}"
    for _ in range(40):
        a = random.randrange(p)
        match random.choice(["make", "deliver", "deliver", "report"]):
            case "make":
                world.make(a, {*random.choices(range(4), k=random.randrange(4))}, random.random() < 0.5)
            case "deliver":
                world.deliver(a)
            case _:
                found |= set().union(*(world.report(b) for b in (*range(p), *range(p))))
                assert found <= {one if isinstance(one, int) else one[0] for one in world.stuck()}, where
                if found:
                    break
    while any(world.under_way):
        for a in range(p):
            world.deliver(a)
    for a in range(p):
        world.wait(a)
    for _ in range(3):
        for a in range(p):
            found |= world.report(a)
    stuck = world.stuck()
    assert found <= {one if isinstance(one, int) else one[0] for one in stuck}, where
    assert found or not any(isinstance(one, int) for one in stuck), where
    return bool(found)


# Mismatches.


@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize("first", [0, 1])
def test_another_call_with_the_same_number_is_a_mismatch_of_both(ended: bool, first: int) -> None:
    later = replace(CALL, number=9 * STAGES)
    said = [report(0, 1, times=1), report(1, 0, call=later, ended=(OTHER,)) if ended else report(1, 0, call=OTHER)]
    board = DeadlockDetector()
    assert board.report(said[first], 0.0) == []
    found = board.report(said[1 - first], 0.0) or board.report(said[0], 1.0)  # at the latest when it says so again
    sides = {each.rank: each for each in found}
    assert sides[0] == Mismatch(0, 1, 3 * STAGES, 1, "barrier()", "prog.py:5", "scan()", "prog.py:9")
    assert sides[1] == Mismatch(1, 1, 3 * STAGES, 0, "scan()", "prog.py:9", "barrier()", "prog.py:5")


@pytest.mark.parametrize(
    "other",
    [
        report(1, 0, call=replace(OTHER, context=2), times=1),
        report(1, 0, call=replace(OTHER, number=4 * STAGES), times=1),
        report(1, 0, call=CALL, times=1),
        report(1, 0, call=replace(OTHER, number=4 * STAGES), ended=(CALL,), times=1),
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
