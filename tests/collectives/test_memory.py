"""The memory that a call uses, by its arguments; and common items of two arrays, against sets of items."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringcast import collectives
from ringcast.algorithms.network import NETWORKS
from ringcast.collectives import point_to_point
from ringcast.collectives.memory import overlap, uses_of
from ringcast.collectives.stage import AUTOMATIC, Choice, Group
from ringcast.ops import SUM
from support.jobs import Job

BIG = 40_000


@pytest.fixture(scope="module")
def groups() -> Iterator[list[Group]]:
    job = Job("threads", 2)
    yield [Group(endpoint, 3, NETWORKS["threads"]) for endpoint in job.endpoints]
    job.close()


def used(steps: Any, **names: Any) -> set[str]:
    """Return what a call does with these arrays: "reads x", and "later" if also after it has begun, or "writes x"."""
    words = set()
    for use in uses_of(steps):
        (name,) = (name for name, array in names.items() if array is use.array)
        words.add(f"writes {name}" if use.writes else f"reads {name}{' later' * use.later}")
    return words


def test_only_the_root_uses_its_out(groups: list[Group]) -> None:
    x, y = np.zeros(BIG), np.zeros(BIG)
    for rank, group in enumerate(groups):
        calls = [
            collectives.reduce.reduce(group, x, SUM, 1, y, AUTOMATIC),
            collectives.gather.gather(group, x, 1, y, AUTOMATIC),
            collectives.gather.gatherv(group, x, (BIG, BIG), 1, y, AUTOMATIC),
        ]
        for steps in calls:
            assert used(steps, x=x, y=y) == ({"reads x", "writes y"} if rank == 1 else {"reads x"})


def test_only_the_root_reads_what_it_hands_out(groups: list[Group]) -> None:
    x = np.zeros((2, BIG))
    for rank, group in enumerate(groups):
        for steps in (
            collectives.scatter.scatter(group, x, 1, None, AUTOMATIC),
            collectives.scatter.scatterv(group, x, None, 1, None, AUTOMATIC),
        ):
            assert used(steps, x=x) == ({"reads x later"} if rank == 1 else set())
        assert used(collectives.broadcast.bcast(group, x, 1, AUTOMATIC), x=x) == {
            "reads x later" if rank == 1 else "writes x"
        }


def test_every_rank_writes_its_out_of_what_is_handed_out_moved_on_or_merged(groups: list[Group]) -> None:
    x, y = np.zeros((2, BIG)), np.zeros(BIG)
    for rank, group in enumerate(groups):
        given = {"reads x later"} if rank == 1 else set()
        assert used(collectives.scatter.scatter(group, x, 1, y, AUTOMATIC), x=x, y=y) == given | {"writes y"}
        assert used(collectives.scatter.scatterv(group, x, None, 1, y, AUTOMATIC), x=x, y=y) == given | {"writes y"}
        assert used(collectives.shift.shift(group, x, 1, y, AUTOMATIC), x=x, y=y) == {"reads x later", "writes y"}
        assert used(collectives.merge.merge_sorted(group, x, y, AUTOMATIC), x=x, y=y) == {"reads x later", "writes y"}
        in_place = collectives.shift.shift(group, x, 1, x, AUTOMATIC)
        assert [(use.writes, use.later) for use in uses_of(in_place)] == [(False, False), (True, True)]


def test_a_small_broadcast_is_copied_but_for_one_whose_algorithm_is_given(groups: list[Group]) -> None:
    x = np.zeros(9)
    assert used(collectives.broadcast.bcast(groups[0], x, 0, AUTOMATIC), x=x) == {"reads x"}
    assert used(collectives.broadcast.bcast(groups[0], x, 0, Choice("circulant")), x=x) == {"reads x later"}


def test_the_first_rank_of_an_exclusive_scan_leaves_out_alone(groups: list[Group]) -> None:
    x, y = np.zeros(9), np.zeros(9)
    assert used(collectives.scan.exscan(groups[0], x, SUM, y, AUTOMATIC), x=x, y=y) == {"reads x"}
    assert used(collectives.scan.exscan(groups[1], x, SUM, y, AUTOMATIC), x=x, y=y) == {"reads x", "writes y"}


def test_a_reduce_scatter_in_place_overwrites_its_value(groups: list[Group]) -> None:
    x, y = np.zeros(8), np.zeros(4)
    steps = collectives.reduce.reduce_scatter(groups[0], x, SUM, None, y, AUTOMATIC)
    assert used(steps, x=x, y=y) == {"reads x", "writes y"}
    y = x[:4]
    steps = collectives.reduce.reduce_scatter(groups[0], x, SUM, None, y, AUTOMATIC)
    assert used(steps, x=x, y=y) == {"writes x", "writes y"}


def test_a_total_exchange_in_place_copies_its_value(groups: list[Group]) -> None:
    x, y = np.zeros(8), np.zeros(8)
    for group in groups:
        assert used(collectives.alltoall.alltoall(group, x, y, AUTOMATIC), x=x, y=y) == {"reads x later", "writes y"}
        swap = collectives.alltoall.alltoallv(group, x, (4, 4), (4, 4), x, AUTOMATIC)
        assert [(use.writes, use.later) for use in uses_of(swap)] == [(False, False), (True, True)]


def test_messages_to_nobody_and_from_nobody_use_nothing(groups: list[Group]) -> None:
    x = np.zeros(9)
    assert used(point_to_point.send(groups[0], x, None, 0), x=x) == set()
    assert used(point_to_point.recv(groups[0], None, 0, x, None), x=x) == set()
    assert used(collectives.point_to_point.sendrecv(groups[0], np.zeros(1), None, 0, 0, x), x=x) == {"writes x"}


@pytest.mark.parametrize("value", [1, "a", [np.zeros(3)], np.float64(1), np.array([None]), np.ma.zeros(3), None])
def test_what_cannot_change_or_travels_as_a_pickle_is_not_looked_at(groups: list[Group], value: Any) -> None:
    for steps in (
        collectives.reduce.allreduce(groups[0], value, SUM, None, AUTOMATIC),
        collectives.broadcast.bcast(groups[0], value, 0, AUTOMATIC),
        collectives.broadcast.bcast(groups[0], value, 1, AUTOMATIC),
        point_to_point.send(groups[0], value, 1, 0),
    ):
        assert uses_of(steps) == ()


@st.composite
def parts(draw: st.DrawFn) -> tuple[Any, bool]:
    """Return an index into three axes, and whether what it finds is transposed."""
    steps = st.sampled_from([-3, -2, -1, 1, 2, 3])
    ends = st.none() | st.integers(0, 7)
    index = st.builds(slice, ends, ends, steps) | st.integers(0, 3)
    return tuple(draw(index) for _ in range(3)), draw(st.booleans())


@given(parts(), parts(), st.sampled_from([np.int8, np.float64]))
def test_arrays_overlap_if_they_have_items_in_common(one: Any, other: Any, dtype: Any) -> None:
    table, numbers = np.zeros((4, 5, 6), dtype), np.arange(120).reshape(4, 5, 6)

    def part(of: Any, which: tuple[Any, bool]) -> Any:
        found = np.asarray(of[(*which[0], ...)])
        return found.T if which[1] else found

    common = set(part(numbers, one).ravel().tolist()) & set(part(numbers, other).ravel().tolist())
    assert overlap(part(table, one), part(table, other)) == bool(common)
