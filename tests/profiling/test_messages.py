"""Messages of two ranks: their ends find each other, with a tag or with any."""

from __future__ import annotations

from typing import Any

import pytest

from ringcast.profiling.lateness import calls_of, late, waits


def part(rank: int, tallies: list[tuple[str, str, str]], moments: list[tuple[int, int, int, float, float]]) -> Any:
    """Return what is needed of a rank's part; a tally is destination, source and tag of its messages."""
    facts = {"context": 1, "collective": "recv", "algorithm": "", "nblocks": 1, "dtype": "", "shape": "", "op": ""}
    return {
        "rank": rank, "stride": 1, "contexts": {"1": [0, 1]}, "moments": moments,
        "tallies": [{**facts, "root": None, "messages": [], "ends": ends} for ends in tallies],
    }  # fmt: skip


def lateness(receives: list[tuple[str, str, str]], sends: list[tuple[str, str, str]]) -> list[float]:
    """Return for how long rank 1 waits for rank 0, which sends at 3 and 5; rank 1 receives at 1 and 4."""
    counts = [1, 2 if sends[0] == sends[-1] else 1]
    sent = [(i % len(sends), counts[i], 0, began, began + 0.1) for i, began in enumerate((3.0, 5.0))]
    received = [(i % len(receives), 0, i + 1, began, began + 3) for i, began in enumerate((1.0, 4.0))]
    calls = list(calls_of([part(0, sends, sent), part(1, receives, received)], [0.0, 0.0]))
    found = [
        (moment.began, late(moment, wait))
        for call in calls
        for moment, wait in zip(call.moments, waits(call, call.moments, call.moments), strict=True)
        if moment.rank == 1
    ]
    return [seconds for _, seconds in sorted(found)]


@pytest.mark.parametrize("tag", ["7", ""], ids=["a tag", "any tag"])
def test_a_receive_waits_until_its_message_is_sent(tag: str) -> None:
    assert lateness([("", "0", tag)], [("1", "", "7")]) == [2.0, 1.0]


def test_of_a_receive_with_any_tag_nothing_is_known_where_there_are_several() -> None:
    assert lateness([("", "0", "")], [("1", "", "7"), ("1", "", "8")]) == [0.0, 0.0]
