"""Bounds and choices of the fractional-tree paper: its worked example, its figure, and how they relate."""

import doctest
from math import log2
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringcast.analysis import bounds
from ringcast.analysis.simulate import simulate, simulate_bcast
from ringcast.schedules import circulant, embedding, fractional, grouptree, mesh
from ringcast.schedules.simplex import simplex_tree

sizes = st.integers(3, 20_000)
ratios = st.floats(1, 1e8)


@pytest.mark.parametrize("module", [bounds, fractional, grouptree, embedding, mesh], ids=lambda module: module.__name__)
def test_examples_in_docstrings(module: ModuleType) -> None:
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


def test_worked_example() -> None:
    p, k, t = 1024, 4096.0, 1.0
    assert bounds.approximate_run(p, k, t) == 8
    assert (fractional.depth(p, 8), bounds.best_packets(p, k, t, 8)) == (57, 456)
    assert bounds.tree_time(p, k, t, 8, 456) / k == pytest.approx(1.389, abs=5e-4)
    assert (bounds.best_run(p, k, t), bounds.best_packets(p, k, t, 10)) == (10, 503)
    assert bounds.tree_time(p, k, t, 10, 503) / k == pytest.approx(1.387, abs=5e-4)


@given(p=sizes, ratio=ratios)
def test_bounds_are_in_order_and_below_all_that_is_known(p: int, ratio: float) -> None:
    assert bounds.lower_bound(p, ratio, 1) <= bounds.packets_lower_bound(p, ratio, 1)
    circulant = bounds.pipeline_time((p - 1).bit_length() - 1, ratio, 1)
    tree = min(bounds.tree_time(p, ratio, 1, r, bounds.best_packets(p, ratio, 1, r)) for r in (1, 4, 16))
    assert bounds.lower_bound(p, ratio, 1) <= circulant <= tree
    # The bound for packets of equal size, with log2 p - 1 steps besides the packets.
    assert ratio * (1 + (max(log2(p) - 1, 0) / ratio) ** 0.5) ** 2 <= circulant * (1 + 1e-9)


@given(p=sizes, ratio=ratios, r=st.integers(1, 30))
def test_best_packets_are_best(p: int, ratio: float, r: int) -> None:
    s = bounds.best_packets(p, ratio, 1, r)
    near = [other for other in (s - 1, s + 1) if other]
    time = bounds.tree_time(p, ratio, 1, r, s)
    assert all(time <= bounds.tree_time(p, ratio, 1, r, other) * 1.001 for other in near) or s < 10


@pytest.mark.parametrize("p", [3, 5, 12, 33])
def test_times_are_those_of_the_simulator(p: int) -> None:
    for r, s in (1, 4), (2, 6), (3, 6):
        schedules = [fractional.fractional_tree(p, rank, nblocks=s, run=r) for rank in range(p)]
        time = simulate(schedules, [10] * s, alpha=7.0, beta=1.0).time
        assert time == pytest.approx(bounds.tree_time(p, 10 * s, 7.0, r, s) - 17.0)  # one step less


@pytest.mark.parametrize(
    ("p", "ratio"), [(64, 1), (64, 64), (64, 4096), (1024, 64), pytest.param(1024, 4096, marks=pytest.mark.long)]
)
def test_points_of_figure_3_are_what_schedules_take(p: int, ratio: int) -> None:
    r = bounds.best_run(p, ratio, 1)
    s = bounds.best_packets(p, ratio, 1, r)
    tree = simulate([fractional.fractional_tree(p, rank, nblocks=s, run=r) for rank in range(p)])
    steps = fractional.depth(p, r) + s * (1 + 1 / r)
    assert steps - 1 <= tree.rounds < steps  # the paper counts one more, and a last run that is full
    fill = (p - 1).bit_length() - 1
    n = bounds.pipeline_packets(fill, ratio, 1)
    circulant = simulate_bcast(p, n, n, alpha=1.0, beta=ratio / n)
    assert circulant.rounds == fill + n
    assert circulant.time == pytest.approx(bounds.pipeline_time(fill, ratio, 1))


@pytest.mark.parametrize(("p", "k", "t"), [(33, 480, 1.0), (33, 480, 10.0), (64, 1200, 5.0)])
def test_no_simulated_broadcast_beats_the_bounds(p: int, k: int, t: float) -> None:
    for s in (1, 4, 12, 24):
        duplex = [circulant.bcast(p, rank, nblocks=s) for rank in range(p)]
        assert simulate(duplex, [k // s] * s, alpha=t, beta=1.0).time >= bounds.lower_bound(p, k, t)
        simplex = simplex_tree(p, run=3, nblocks=s)
        assert simulate(simplex, [k // s] * s, alpha=t, beta=1.0).time >= bounds.simplex_lower_bound(p, k, t)


def test_figure_3() -> None:
    curves = bounds.figure_3()
    best = {p: max(point.fractional for point in curve) for p, curve in curves.items()}
    assert best == pytest.approx({64: 1.28, 1024: 1.57, 16384: 1.78}, abs=0.01)
    for curve in curves.values():
        assert all(1 <= point.fractional <= point.circulant <= 2.0 or point.ratio < 100 for point in curve)
        assert [point.ratio for point in curve] == sorted(point.ratio for point in curve)
    assert list(bounds.figure_3([8], [16.0])) == [8]
