"""Distributions of an irregular allgather: each against the formula of its paper, in exact fractions."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import product
from math import log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringcast.commands.bench.distributions import DISTRIBUTIONS, parts
from support.cases import each

SIZES = (1, 2, 3, 7, 8, 33, 65)

# What rank r has in the paper of 2010, for the base count c = 1; only the proportions count.
PAPER: dict[str, Callable[[int, int], Fraction | float]] = {
    "regular": lambda r, p: 1,
    "broadcast": lambda r, p: 1 if r == 0 else 0,
    "spike": lambda r, p: Fraction(1, 2) if r == 0 else Fraction(1, 2 * (p - 1)),
    "half-full": lambda r, p: 2 if r % 2 == 0 else 0,
    "decreasing": lambda r, p: Fraction(2 * (p - 1 - r), p - 1),
    "geometric": lambda r, p: Fraction(p) / 2 ** int(log2(r + 1)) / Fraction(log2(p)),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@given(m=st.integers(0, 10**9), p=st.integers(1, 80))
def test_parts_are_one_per_rank_not_negative_and_add_up(name: str, m: int, p: int) -> None:
    found = parts(name, m, p)
    assert len(found) == p
    assert min(found) >= 0
    assert sum(found) == m


@each("name, p, m", list(product(PAPER, SIZES[1:], (0, 1, 2, 64, 1000, 10**7))))
def test_each_part_is_within_a_byte_of_its_share(name: str, p: int, m: int) -> None:
    shares = [PAPER[name](r, p) for r in range(p)]
    unit = m / Fraction(sum(shares))
    for r, (part, share) in enumerate(zip(parts(name, m, p), shares, strict=True)):
        assert abs(part - share * unit) <= 1, f"{name=} {p=} {m=} {r=}"
        assert part == 0 or share > 0


@each("p, m", list(product(SIZES, (0, 1, 2, 64, 1000, 10**7))))
def test_mod3_gives_multiples_and_the_rest_to_the_last(p: int, m: int) -> None:
    found = parts("mod3", m, p)
    assert list(found[:-1]) == [(r % 3) * (m // p) for r in range(p - 1)]
    assert found[-1] >= m // p


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_one_rank_has_everything(name: str) -> None:
    assert parts(name, 17, 1) == (17,)


def test_an_unknown_name_is_told_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"no distribution 'zipf'; known are regular, .*mod3"):
        parts("zipf", 1, 1)
