"""A fixed part of what `tests/fuzz.py` can say, and strangers at the sockets of a job that works."""

from __future__ import annotations

import fuzz
import pytest


@pytest.mark.parametrize(
    ("name", "count"), [("lie", 150), ("flood", 10), ("shout", 20), ("petition", 60), ("proclaim", 60)]
)
def test_nonsense_is_borne(name: str, count: int) -> None:
    for seed in range(count):
        try:
            fuzz.CASES[name](seed)
        except BaseException as error:
            error.add_note(f"python tests/fuzz.py --case {name} --seed {seed} --seconds 0.1")
            raise


@pytest.mark.long
@pytest.mark.parametrize("part", range(8))
def test_much_nonsense_is_borne(part: int) -> None:
    for seed in range(10_000 + 500 * part, 10_500 + 500 * part):
        fuzz.lie(seed)
