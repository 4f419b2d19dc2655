"""Sets of ranks as people write them."""

import doctest
from itertools import combinations

import pytest

from ringcast_launcher.plan import ranklist
from ringcast_launcher.plan.ranklist import compact, shown


def test_the_examples_in_docstrings_are_true() -> None:
    result = doctest.testmod(ranklist)
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize("size", range(1, 9))
def test_what_is_written_is_read(size: int) -> None:
    for k in range(1, size + 1):
        for ranks in combinations(range(size), k):
            text = compact(reversed(ranks))
            assert shown(text, size) == frozenset(ranks)
            runs = sum(rank - 1 not in ranks for rank in ranks)
            assert len(text.split(",")) == runs


def test_nothing_said_is_all() -> None:
    assert shown("", 3) == {0, 1, 2}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("x", "'x': 'x' is no rank; expected are ranks and ranges such as 0,2-3"),
        ("0,,1", "'0,,1': '' is no rank"),
        (",", "',': '' is no rank"),
        ("-1", "'-1' is no rank"),
        ("1-", "'1-' is no rank"),
        ("1-2-3", "'1-2-3' is no rank"),
        ("٣", "'٣' is no rank"),
        ("3-1", "'3-1' ends before it begins; expected is 1-3"),
        ("0,4", "there is no rank 4 in a job of 4; the last one is 3"),
        ("0-999999999", "there is no rank 999999999"),
    ],
)
def test_errors(spec: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        shown(spec, 4)
