"""Ranks in words."""

from __future__ import annotations

import doctest

from ringcast._util import rank_words


def test_the_examples_are_true() -> None:
    result = doctest.testmod(rank_words)
    assert result.attempted > 0
    assert result.failed == 0
