"""The paragraph of a profile: a link is named where it carries more than the others."""

from __future__ import annotations

from typing import Any

import pytest

from ringcast.profiling.words import summary


def report(nbytes: list[int]) -> dict[str, Any]:
    pairs = [(0, 1), (1, 2), (2, 0), (1, 0)]
    return {
        "ranks": [],
        "sites": [],
        "hosts": [{"name": "h", "ranks": [0, 1, 2]}],
        "bytes": [[*pair, carried] for pair, carried in zip(pairs, nbytes, strict=True)],
    }


@pytest.mark.parametrize(
    ("nbytes", "named"),
    [
        ([1000, 1000, 1000, 8], False),
        ([1001, 1000, 1000, 8], False),
        ([2000, 1000, 1000, 8], True),
        ([8, 8, 8, 8], False),
    ],
)
def test_a_link_is_named_only_where_it_carries_more_than_each_other(nbytes: list[int], named: bool) -> None:
    words = summary(report(nbytes) | {"ranks": [dict.fromkeys(PHASES, 0.0)]})
    assert ("of all bytes go from rank 0 to rank 1" in words) is named


PHASES = ("span", "program", "late", "moving", "link", "combining", "python", "awaited")
