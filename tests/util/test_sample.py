"""The sample of `make test-live test-long SAMPLE=seed`: all that is said of it holds for any tests and seeds."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support.sample import SHARES, left_out

SEEDS = [f"{n:040x}" for n in range(100)]


def made(file: str, name: int, *marks: str) -> Any:
    """Return what a sample asks of a test."""
    return SimpleNamespace(
        path=Path(file), nodeid=f"{file}::test[{name}]", get_closest_marker=lambda mark: mark in marks or None
    )


def played(tests: list[Any], seed: str) -> list[Any]:
    without = {test.nodeid for test in left_out(tests, seed)}
    return [test for test in tests if test.nodeid not in without]


@pytest.mark.parametrize("marks", [("live",), ("long",), ("live", "long")])
@pytest.mark.parametrize("count", [1, 2, 3, 10, 100])
def test_a_share_of_each_file_is_played(marks: tuple[str, ...], count: int) -> None:
    tests = [made(file, name, *marks) for file in "ab" for name in range(count)]
    share = SHARES["long" if "long" in marks else "live"]
    for seed in SEEDS:
        for file in "ab":
            part = [test for test in played(tests, seed) if str(test.path) == file]
            assert len(part) >= 1
            assert share * count <= len(part) < share * count + 1


def test_every_test_is_played_for_some_seed_and_the_same_ones_for_the_same() -> None:
    tests = [made(file, name, mark) for file in "ab" for mark in SHARES for name in range(10)]
    samples = [{test.nodeid for test in played(tests, seed)} for seed in SEEDS]
    assert set().union(*samples) == {test.nodeid for test in tests}
    assert samples == [{test.nodeid for test in played(tests[::-1], seed)} for seed in SEEDS]


def test_others_are_all_played() -> None:
    tests = [made("a", name, *marks) for name, marks in enumerate([(), ("smoke",), ("thorough",)])]
    assert not left_out(tests, SEEDS[0])
