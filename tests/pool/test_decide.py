"""Laws of a pool's decisions: workers that obey them, end tasks and die in any order."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringcast.pool.decide import (
    BYTES_AHEAD,
    MOST_AHEAD,
    SMALL,
    Death,
    Decisions,
    Digest,
    Fail,
    Forget,
    Run,
    Spread,
    Task,
    Together,
)

SIZES = {b"f": 10, b"g": 10, b"F": SMALL + 1, b"a": 5 * SMALL, b"b": 5 * SMALL}  # content: functions and arrays


class Model:
    """Workers that obey; each law is checked as it is touched."""

    def __init__(self, workers: int, retries: int) -> None:
        self.retries = retries
        self.decisions = Decisions(range(1, workers + 1), retries)
        self.has: dict[int, set[Digest]] = {worker: set() for worker in range(1, workers + 1)}
        self.runs: dict[int, list[int]] = {worker: [] for worker in self.has}
        self.receives: dict[int, Digest] = {}
        self.tasks: dict[int, Task] = {}
        self.open: set[int] = set()
        self.started: list[int] = []
        for digest, size in SIZES.items():
            self.decisions.content(digest, size)

    def add(self, needs: tuple[Digest, ...], size: int, ranks: int) -> None:
        task = Task(len(self.tasks), needs, size, ranks)
        self.tasks[task.number] = task
        self.open.add(task.number)
        self.decisions.add(task)

    def obey(self) -> None:
        while actions := self.decisions.next():
            for action in actions:
                match action:
                    case Run(worker, numbers, content):
                        assert worker not in self.receives
                        self.has[worker] |= {*content}
                        assert all(SIZES[each] <= SMALL for each in content)
                        for number in numbers:
                            self.start(worker, number)
                        if not self.retries:
                            assert len(self.runs[worker]) == 1
                        assert sum(self.tasks[each].size for each in self.runs[worker][1:]) <= BYTES_AHEAD
                    case Together(number, workers, _, content):
                        assert len(workers) == self.tasks[number].ranks == len({*workers})
                        for worker in workers:
                            assert not self.runs[worker]
                            self.has[worker] |= {*content}
                            self.start(worker, number)
                    case Spread(digest, workers, _):
                        assert SIZES[digest] > SMALL
                        for worker in workers:
                            assert digest not in self.has[worker]
                            assert not self.runs[worker]
                            assert worker not in self.receives
                            self.receives[worker] = digest
                    case Forget(worker, digest):
                        self.has[worker].discard(digest)
                    case Fail(number, deaths, reason):
                        self.open.remove(number)
                        if reason:
                            assert self.tasks[number].ranks > len(self.has)
                        else:
                            assert len(deaths) == self.retries + 1

    def start(self, worker: int, number: int) -> None:
        assert {*self.tasks[number].needs} <= self.has[worker]
        assert number in self.open
        self.runs[worker].append(number)
        if number not in self.started:
            self.started.append(number)

    def end(self, worker: int, seconds: float) -> None:
        number = self.runs[worker].pop(0)
        others = [each for each, numbers in self.runs.items() if number in numbers]
        if self.decisions.done(worker, number, seconds):
            assert not others
            self.open.remove(number)

    def receive(self, worker: int) -> None:
        digest = self.receives.pop(worker)
        self.has[worker].add(digest)
        self.decisions.received(worker, digest)

    def die(self, worker: int) -> None:
        del self.runs[worker]
        self.receives.pop(worker, None)
        del self.has[worker]
        self.decisions.died(worker, "h", "killed")

    def step(self, choice: int, seconds: float) -> bool:
        """Let one worker go on; return False if none can."""
        can = [worker for worker in self.has if self.runs[worker] or worker in self.receives]
        if not can:
            return False
        worker = can[choice % len(can)]
        if worker in self.receives:
            self.receive(worker)
        else:
            self.end(worker, seconds)
        return True


NEEDS = st.sampled_from([(b"f",), (b"g",), (b"F",), (b"f", b"a"), (b"F", b"a", b"b")])
TASK = st.tuples(st.just("add"), NEEDS, st.sampled_from([0, 100, BYTES_AHEAD + 1]), st.sampled_from([0, 0, 0, 1, 2, 5]))
GO_ON = st.tuples(st.just("step"), st.integers(0, 9), st.sampled_from([0.0, 0.001, 1.0]))
DIE = st.tuples(st.just("die"), st.integers(0, 9))
CANCEL = st.tuples(st.just("cancel"), st.integers(0, 30))
RECALL = st.tuples(st.just("recall"))
EVENTS = st.lists(st.one_of(TASK, TASK, TASK, GO_ON, GO_ON, GO_ON, DIE, CANCEL, RECALL), max_size=60)


@given(st.integers(1, 4), st.integers(0, 2), EVENTS)
@settings(deadline=None)
def test_each_task_ends_once_with_what_it_needs_while_a_worker_lives(workers: int, retries: int, events: list) -> None:
    model = Model(workers, retries)
    cancelled = set()
    for event in events:
        match event:
            case ("add", needs, size, ranks):
                model.add(needs, size, ranks)
            case ("step", choice, seconds):
                model.step(choice, seconds)
            case ("die", choice):
                if len(model.has) > 1:
                    model.die([*model.has][choice % len(model.has)])
            case ("cancel", number):
                if model.decisions.cancel(number):
                    assert not any(number in each for each in model.runs.values())
                    model.open.remove(number)
                    cancelled.add(number)
            case ("recall",):
                for number in model.decisions.recall():
                    assert not any(number in each for each in model.runs.values())
                    model.open.remove(number)
                assert model.open == {number for each in model.runs.values() for number in each}
        model.obey()
    while model.step(0, 0.0):
        model.obey()
    assert not model.open
    assert model.decisions.unfinished == 0


@given(st.lists(st.one_of(TASK, GO_ON), max_size=60), st.integers(1, 4))
@settings(deadline=None)
def test_tasks_start_in_their_order(events: list, workers: int) -> None:
    model = Model(workers, 1)
    for event in events:
        if event[0] == "add":
            model.add(event[1], event[2], min(event[3], workers))
        else:
            model.step(*event[1:])
        model.obey()
    while model.step(0, 0.0):
        model.obey()
    assert model.started == sorted(model.started)


def test_large_content_goes_to_all_idle_workers_in_one_broadcast() -> None:
    model = Model(8, 1)
    model.add((b"F",), 0, 0)
    assert [*model.decisions.next()] == [Spread(b"F", tuple(range(1, 9)), 1)]
    for _ in range(1000):
        model.add((b"F",), 0, 0)
    assert not model.decisions.next()


@pytest.mark.parametrize(("seconds", "most"), [(0.0001, 40), (1.0, 1)])
def test_quick_tasks_are_given_ahead_and_long_ones_are_not(seconds: float, most: int) -> None:
    model = Model(1, 1)
    for _ in range(100):
        model.add((b"f",), 0, 0)
    model.obey()
    at_once = []
    while model.open:
        model.end(1, seconds)
        model.obey()
        at_once.append(len(model.runs[1]))
    assert max(at_once) == most


def test_a_worker_gets_the_next_quick_tasks_when_half_of_its_own_are_left() -> None:
    decisions = Decisions([1], 1)
    decisions.content(b"f", 10)
    for number in range(1000):
        decisions.add(Task(number, (b"f",)))
    given = [number for run in decisions.next() for number in run.numbers]
    decisions.done(1, given[0], 1e-6)
    sizes = []
    for number in range(1, 500):
        for run in decisions.next():
            sizes.append(len(run.numbers))
            given += run.numbers
        decisions.done(1, given[number], 1e-6)
    assert max(sizes) <= MOST_AHEAD
    assert min(sizes[1:]) >= MOST_AHEAD / 2 - 1


def test_of_tasks_of_a_worker_that_died_each_runs_alone_until_the_cause_is_found() -> None:
    model = Model(3, 1)
    model.add((b"f",), 0, 0)
    model.obey()
    model.end(1, 0.0)
    for _ in range(8):
        model.add((b"f",), 0, 0)
    model.obey()
    had = [*model.runs[1]]
    assert len(had) > 1
    model.die(1)
    model.obey()
    for worker in (2, 3):
        while model.runs[worker]:
            model.end(worker, 0.0)
    model.obey()
    assert all(len(each) == 1 for each in model.runs.values())
    assert {number for each in model.runs.values() for number in each} <= {*had}


def test_a_task_whose_rank_died_after_its_own_outcome_runs_again() -> None:
    model = Model(3, 1)
    model.add((b"f",), 0, 2)
    model.obey()
    model.end(1, 0.0)
    model.die(1)
    assert model.decisions.done(2, 0, 0.0)
    model.runs[2].clear()
    for attempt in range(2):
        model.decisions.lost(model.tasks[0], Death(1, "h", "it has died"))
        model.obey()
        assert [*model.runs.values()] == ([[0], [0]] if attempt == 0 else [[], []])
        for worker in model.runs:
            if model.runs[worker]:
                model.runs[worker].clear()
                model.decisions.done(worker, 0, 0.0)
    assert not model.open


def test_content_that_is_dropped_is_forgotten_by_those_who_have_it() -> None:
    model = Model(2, 1)
    model.add((b"f",), 0, 0)
    model.obey()
    model.decisions.drop(b"f")
    assert model.decisions.next() == [Forget(1, b"f")]


def test_content_that_a_broadcast_has_not_brought_is_broadcast_anew_to_those_who_lack_it() -> None:
    model = Model(3, 1)
    model.add((b"F",), 0, 3)
    assert [*model.decisions.next()] == [Spread(b"F", (1, 2, 3), 1)]
    model.decisions.received(1, b"F")
    for worker in 2, 3:
        model.decisions.received(worker, b"F", well=False)
    assert [*model.decisions.next()] == [Spread(b"F", (2, 3), 2)]
