"""The rings: rounds, volume, and what the pipelined one makes of empty parts."""

from itertools import groupby, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringcast.analysis import postconditions
from ringcast.analysis.simulate import Report, simulate
from ringcast.analysis.verify import verify
from ringcast.schedules import ring
from support.places import golden_collectives

COLLECTIVES = golden_collectives()
counts_of_parts = st.lists(st.one_of(st.just(0), st.integers(1, 30)), min_size=1, max_size=14).map(tuple)


def run(counts: tuple[int, ...], nblocks: int) -> Report:
    """Verify the pipelined ring, and return what it costs."""
    p = len(counts)
    schedules = [ring.pipelined_ring(p, r, nblocks=nblocks, counts=counts) for r in range(p)]
    verify(schedules, postconditions.postcondition("allgatherv", p, schedules[0].parts))
    report = simulate(schedules)
    assert report.rounds <= max(len(s) for s in schedules)
    return report


def longest_gap(counts: tuple[int, ...]) -> int:
    """Return the longest run of empty parts around the ring."""
    around = [counts[r] == 0 for r in ring.ring_order(counts)] * 2
    return max((len(list(run)) for empty, run in groupby(around) if empty), default=0)


@pytest.mark.parametrize("p", [*range(1, 20), 33, 65])
def test_linear_ring_takes_p_minus_1_rounds(p: int) -> None:
    schedules = [ring.ring(p, r) for r in range(p)]
    verify(schedules, postconditions.postcondition("allgatherv", p, schedules[0].parts))
    report = simulate(schedules)
    assert report.rounds == len(schedules[0]) == p - 1
    assert report.sent == report.received == (p - 1,) * p


@pytest.mark.parametrize(("counts", "rounds"), COLLECTIVES["ring_rounds"])
def test_golden_rounds(counts: list[int], rounds: int) -> None:
    assert run(tuple(counts), max(counts)).rounds == rounds


@given(counts=counts_of_parts, nblocks=st.integers(1, 12))
def test_rounds_and_volume(counts: tuple[int, ...], nblocks: int) -> None:
    blocks = ring.blocks_of(counts, nblocks)
    report = run(counts, nblocks)
    assert report.rounds == ring.ring_rounds(counts, nblocks)
    assert report.received == tuple(sum(blocks) - b if len(counts) > 1 else 0 for b in blocks)


@given(p=st.integers(2, 16), n=st.integers(1, 9))
def test_equal_parts_of_one_block_are_the_linear_ring(p: int, n: int) -> None:
    assert run((7,) * p, 1).rounds == p - 1
    assert run((10 * n,) * p, n).rounds == (p - 1) * n


@pytest.mark.parametrize("p", range(2, 13))
def test_theorem_with_empty_parts(p: int) -> None:
    for z, size in product(range(p), (6, 12)):
        counts = (0,) * z + tuple(size + i for i in range(p - z))
        gap, nblocks = longest_gap(counts), max(counts)
        assert gap == (-(-z // (p - z)))
        if size > gap and z:
            assert run(counts, nblocks).rounds == sum(counts) - 1 + gap
        elif size > gap:
            assert run(counts, nblocks).rounds == sum(counts) - min(counts)


@pytest.mark.parametrize("p", [2, 3, 8, 33])
def test_one_contributor_is_a_pipeline(p: int) -> None:
    assert run((0,) * (p - 1) + (40,), 20).rounds == 20 + p - 2


@given(counts=counts_of_parts, nblocks=st.integers(1, 12))
def test_blocks_are_no_larger_than_those_of_the_largest_part(counts: tuple[int, ...], nblocks: int) -> None:
    blocks = ring.blocks_of(counts, nblocks)
    largest = -(-max(counts) // nblocks)
    assert max(blocks) <= nblocks
    for m, b in zip(counts, blocks, strict=True):
        assert b == 0 if m == 0 else (b - 1) * largest < m <= b * largest


@given(counts=counts_of_parts)
def test_order_is_a_permutation_that_keeps_the_order_of_both_kinds(counts: tuple[int, ...]) -> None:
    order = ring.ring_order(counts)
    assert sorted(order) == list(range(len(counts)))
    for kind in (0, 1):
        ranks = [r for r in order if (counts[r] > 0) == kind]
        start = ranks.index(min(ranks)) if ranks else 0
        assert ranks[start:] + ranks[:start] == sorted(ranks)


def test_block_size_is_formula_2() -> None:
    # m/B + (p+z)/2 - 1 + z//(p-z) rounds of alpha + beta B are fewest or shortest at B.
    counts, alpha, beta = (4000, 0, 0, 9000, 2000, 0), 1e-4, 1e-9 * 100
    p, z, m = len(counts), counts.count(0), sum(counts)

    def seconds(b: float) -> float:
        return (m / b + (p + z) / 2 - 1 + z // (p - z)) * (alpha + beta * b)

    best = ring.block_size(counts, alpha, beta)
    assert seconds(best) < min(seconds(best * 0.9), seconds(best * 1.1))


def test_block_size_in_the_corners() -> None:
    assert ring.block_size((0, 0), 1.0, 1.0) == 0
    assert ring.block_size((5, 5), 1.0, 1.0) == 5  # nothing but the volume counts
    assert ring.block_size((5, 0, 0), 100.0, 1.0) == 5  # never more than the largest part
