"""Fractional trees in the simplex model: no rank sends and receives at a time, and runs follow every 2r+1 steps."""

import pytest

from ringcast.analysis import postconditions
from ringcast.analysis.simulate import simulate
from ringcast.analysis.verify import verify
from ringcast.schedules.fractional import tree_rounds
from ringcast.schedules.schedule import Schedule
from ringcast.schedules.simplex import simplex_tree
from support.cases import each

SIZES = (1, 2, 3, 4, 5, 8, 12, 17, 33, 65)


def rounds(p: int, r: int, n: int, root: int = 0) -> int:
    """Verify the schedules, and return what they take."""
    schedules: list[Schedule] = simplex_tree(p, run=r, nblocks=n, root=root)
    verify(schedules, postconditions.postcondition("bcast", p, (n,), root=root))
    assert all(step.send_to is None or step.recv_from is None for schedule in schedules for step in schedule)
    return simulate(schedules).rounds


@pytest.mark.parametrize("r", [1, 2, 3, 4, 5, 6, 7, 8])
@each("p", SIZES)
def test_is_hardly_slower_than_each_duplex_step_done_in_two(p: int, r: int) -> None:
    for n in (1, 3, r, 2 * r + 1, 4 * r):
        assert rounds(p, r, n, p // 2) <= 2 * tree_rounds(p, r, n) + 3 * r, f"{n=}"


@pytest.mark.parametrize("r", [1, 2, 3, 4, 5, 6, 7, 8])
@pytest.mark.parametrize("p", [12, 33, 65])
def test_a_run_takes_2r_plus_1_steps(p: int, r: int) -> None:
    assert p > r + 3
    few, more = rounds(p, r, 5 * r), rounds(p, r, 7 * r)
    assert more - few == 2 * (2 * r + 1)


@pytest.mark.long
@each("r", range(1, 9))
@pytest.mark.parametrize("p", range(1, 71))
def test_all_sizes(p: int, r: int) -> None:
    for n in (1, 2 * r - 1, 3 * r):
        assert rounds(p, r, n) <= 2 * tree_rounds(p, r, n) + 3 * r
