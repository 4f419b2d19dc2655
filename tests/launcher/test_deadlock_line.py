"""The launcher's last line on a deadlock: both calls with their places, and before it what ends the cycle."""

from __future__ import annotations

import itertools

import pytest

from ringcast.errors import CollectiveTimeout, Where
from ringcast_launcher.decide.job_report import LONG, JobReport
from support.cases import each

CALLS = ("send with tag 0", "recv with any tag", "sendrecv with tag 0")


def error(*calls: str, size: int = 0) -> CollectiveTimeout:
    """The error of the first rank of a cycle, whose calls are these; more ranks than calls where `size` says so."""
    cycle = tuple(range(size or len(calls)))
    where = Where(calls[0].partition(" at ")[0])
    return CollectiveTimeout(0, (1,), 2.0, where, cycle=cycle, calls=calls)


@each("kinds", itertools.product(CALLS, repeat=2))
@pytest.mark.parametrize("lines", [(5, 5), (5, 107)])
def test_the_last_line_has_both_places(kinds: tuple[str, str], lines: tuple[int, int]) -> None:
    places = [f"prog.py:{line}" for line in lines]
    told = error(*(f"{kind} at {place}" for kind, place in zip(kinds, places, strict=True)))
    shown = f"Traceback\nringcast.errors.CollectiveTimeout: {told}\n"
    *_, last = JobReport(1, f"failed: CollectiveTimeout: {told}", 0, "h", 1).last_words(shown).splitlines()
    assert all(place in last for place in places)
    assert all(kind in last for kind in kinds)
    assert len(last.partition(") ")[2]) <= LONG + len(" …")


@pytest.mark.parametrize(
    ("calls", "size", "chain"),
    [
        (("send at a:1",) * 2, 2, "rank 0 -> 1 (both in send at a:1) -> rank 0"),
        (("send at a:1", "recv at a:2"), 2, "rank 0 (in send at a:1) -> rank 1 (in recv at a:2) -> rank 0"),
        (("recv at a:1",) * 3, 5, "rank 0 -> 1 -> 2 (all in recv at a:1) -> 2 more -> rank 0"),
        (("barrier()",), 1, "rank 0 (in barrier()) -> rank 0"),
    ],
)
def test_a_cycle_has_each_call_once(calls: tuple[str, ...], size: int, chain: str) -> None:
    assert f"deadlock: {chain}; each waits for the next" in str(error(*calls, size=size))


@each("kinds", itertools.product(CALLS, repeat=3))
def test_a_cycle_of_messages_in_one_direction_has_a_remedy(kinds: tuple[str, ...]) -> None:
    remedies = {CALLS[0]: "use sendrecv, or isend before recv", CALLS[1]: "use sendrecv, or let a rank send first"}
    expected = remedies.get(kinds[0], "") if len(set(kinds)) == 1 else ""
    assert str(error(*kinds)).partition("; each waits for the next")[2] == (expected and f"; {expected}")


def test_a_collective_keeps_its_number_and_how_far_it_came() -> None:
    where = Where("barrier", 3, 1)
    told = CollectiveTimeout(0, (1,), 2.0, where, progress=0.5, cycle=(0, 1), calls=("barrier()", "barrier()"))
    assert str(told).startswith("rank 0: deadlock in barrier #3, round 1 after 50 % of its rounds: rank 0 -> 1 (")
