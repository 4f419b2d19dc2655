"""A part of the live and long tests, which a seed chooses: with every seed another one, and some of each file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from hashlib import sha256
from math import ceil

import pytest

SHARES = {"long": 1 / 4, "live": 1 / 2}  # a test with both marks is a long one


def left_out(items: Sequence[pytest.Item], seed: str) -> list[pytest.Item]:
    """Return the tests that are not in the sample; where a file has tests of a mark, at least one of them is in it."""
    groups = defaultdict[tuple[str, str], list[pytest.Item]](list)
    for item in items:
        mark = next((mark for mark in SHARES if item.get_closest_marker(mark)), None)
        if mark is not None:
            groups[mark, str(item.path)].append(item)
    return [
        item for (mark, _), group in groups.items() for item in _ordered(group, seed)[ceil(len(group) * SHARES[mark]) :]
    ]


def _ordered(items: list[pytest.Item], seed: str) -> list[pytest.Item]:
    return sorted(items, key=lambda item: sha256(f"{seed} {item.nodeid}".encode()).digest())
