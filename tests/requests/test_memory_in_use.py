"""The memory in use against the plainest thing that could be right: a look at all arrays; and that it looks at few."""

from __future__ import annotations

import gc
import mmap
from collections.abc import Generator, Sequence
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ringcast.collectives.memory import Use
from ringcast.engine import drive
from ringcast.engine.open_call import OpenCall
from ringcast.engine.task import Task
from ringcast.requests.memory_in_use import SLACK, MemoryInUse, bounds

TABLE = np.zeros((64, 64), np.uint16)

spans = st.tuples(st.integers(0, 64), st.integers(0, 64), st.sampled_from([-3, -1, 1, 2])).map(lambda s: slice(*s))
uses = st.builds(lambda rows, columns, writes: Use(TABLE[rows, columns], writes, True), spans, spans, st.booleans())


def steps() -> Generator[Any, None, None]:
    yield


def calls_of(taken: Sequence[Use]) -> list[tuple[OpenCall, tuple[Use, ...]]]:
    return [(OpenCall("isend", ("", 0), steps(), 1), (use,)) for use in taken]


@given(st.lists(uses, max_size=30), uses)
def test_whatever_overlaps_is_found_where_one_of_the_two_writes(taken: list[Use], mine: Use) -> None:
    calls = calls_of(taken)
    found = {id(call) for call, _ in MemoryInUse(calls).near(mine)}
    for call, (theirs,) in calls:
        overlaps = (mine.writes or theirs.writes) and np.shares_memory(mine.array, theirs.array)
        assert id(call) in found or not overlaps
        assert id(call) not in found or mine.writes or theirs.writes


@given(uses)
def test_the_bounds_are_those_of_the_first_and_the_last_byte(use: Use) -> None:
    if use.array.size:
        assert bounds(use.array) == np.lib.array_utils.byte_bounds(use.array)


def test_of_many_rows_few_are_looked_at() -> None:
    table = np.zeros((1000, 100))
    calls = calls_of([Use(row, True, True) for row in table])
    in_use = MemoryInUse(calls)
    for row in table:
        assert 1 <= len(list(in_use.near(Use(row, True, True)))) <= 5
    assert len(list(in_use.near(Use(table, False, True)))) >= 1000
    elsewhere = np.frombuffer(mmap.mmap(-1, 1 << 22))[1 << 18 :]  # 2 MB from any memory that is not its own
    assert not list(in_use.near(Use(elsewhere[:1000], True, True)))


def test_what_is_read_by_many_is_found_by_none_that_reads() -> None:
    array = np.zeros(100)
    in_use = MemoryInUse(calls_of([Use(array, False, True)] * 1000))
    assert not list(in_use.near(Use(array, False, True)))


def test_calls_that_have_ended_keep_no_memory_and_are_left_out_in_time() -> None:
    in_use = MemoryInUse(())
    for _ in range(SLACK + 1):
        assert not in_use.crowded
        ((call, taken),) = calls_of([Use(np.zeros(1), True, True)])
        in_use.add(call, taken)
    (use,) = taken
    assert in_use.crowded
    del call
    gc.collect()
    assert not list(in_use.near(use))


class Counted(Task[None]):
    """A task that counts the looks at whether it is done."""

    __slots__ = ("looks",)

    def __init__(self, endpoint: Any) -> None:
        super().__init__(endpoint, steps(), ("", 0))
        self.looks = 0

    def poll(self) -> bool:
        self.looks += 1
        return super().poll()


class Ended:
    """The counts of an endpoint."""

    ended = failures = 0


def test_a_wait_for_many_looks_at_each_a_few_times_however_often_one_ends() -> None:
    endpoint = Ended()
    tasks = [Counted(endpoint) for _ in range(100)]
    several: Any = drive._Several(endpoint, tasks, every=True)  # type: ignore[arg-type]  # all that it needs
    for task in reversed(tasks):
        assert not several.poll()
        task.done = True
        endpoint.ended += 1
    assert several.poll()
    assert max(task.looks for task in tasks) == 1


def test_a_wait_for_many_ends_with_the_first_that_fails_and_one_for_any_with_the_first_that_ends() -> None:
    for every in False, True:
        endpoint = Ended()
        tasks = [Counted(endpoint) for _ in range(3)]
        several: Any = drive._Several(endpoint, tasks, every)  # type: ignore[arg-type]  # as above
        assert not several.poll()
        tasks[1].done = True
        endpoint.ended += 1
        assert several.poll() is not every
        tasks[2].done, tasks[2].error = True, ValueError()
        endpoint.ended += 1
        endpoint.failures += 1
        assert several.poll()
