"""Messages of two ranks: their ends find each other, so that it is known for how long a receive waits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from ringcast.engine.profiler import is_kept
from ringcast.profiling.clocks import compared
from ringcast.profiling.lateness import calls_of, late, matched, waits

TAG = 7


def part(rank: int, ends: tuple[str, str, str], moments: Sequence[tuple[Any, ...]], stride: int = 1) -> Any:
    """Return what is needed of a rank's part with one call site; `ends` are destination, source and tag there."""
    tally = {"context": 1, "collective": "recv", "root": None, "messages": [], "ends": ends}
    return {
        "rank": rank, "size": 4, "stride": stride, "contexts": {},
        "moments": [(0, sent, received, began, ended, began, *met) for sent, received, began, ended, *met in moments],
        "tallies": [tally],
    }  # fmt: skip


def lateness(parts: Sequence[Any], rank: int) -> list[tuple[float, int | None]]:
    """Return for how long a rank waits for which, in the order of its calls."""
    found = [
        (moment.began, late(moment, wait), None if wait is None else wait.rank)
        for call in calls_of(parts, [0.0] * len(parts))
        for moment, wait in zip(call.moments, waits(call, call.moments, [*call.moments, *call.others]), strict=True)
        if moment.rank == rank
    ]
    return [(seconds, other) for _, seconds, other in sorted(found)]


@pytest.mark.parametrize("source", ["0", ""], ids=["a source", "any source"])
@pytest.mark.parametrize("tag", [str(TAG), ""], ids=["a tag", "any tag"])
def test_a_receive_waits_until_its_message_is_sent(source: str, tag: str) -> None:
    sends = [(1, 0, 3.0, 3.1), (2, 0, 5.0, 5.1)]
    receives = [(0, 1, 1.0, 4.0, 0, TAG), (0, 2, 4.0, 7.0, 0, TAG)]
    assert lateness([part(0, ("1", "", str(TAG)), sends), part(1, ("", source, tag), receives)], 1) == [(2, 0), (1, 0)]


def test_a_receive_from_any_rank_waits_for_the_one_that_has_sent() -> None:
    receives = [(0, 1, 1.0, 4.0, 2, TAG), (0, 1, 4.0, 8.0, 0, TAG)]
    senders = [part(rank, ("1", "", str(TAG)), [(1, 0, began, began)]) for rank, began in ((0, 7.0), (2, 3.0))]
    assert lateness([senders[0], part(1, ("", "", ""), receives), senders[1]], 1) == [(2, 2), (3, 0)]


@pytest.mark.parametrize("size", [2, 3, 5])
def test_in_an_exchange_a_rank_waits_for_the_one_that_it_receives_from(size: int) -> None:
    """All send to the next rank; rank r makes the call at time r."""
    parts = [
        part(rank, (str((rank + 1) % size), str((rank - 1) % size), str(TAG)),
             [(1, 1, float(rank), size + 1.0, (rank - 1) % size, TAG)])
        for rank in range(size)
    ]  # fmt: skip
    assert lateness(parts, 0) == [(size - 1, size - 1)]
    for rank in range(1, size):
        assert lateness(parts, rank) == [(0, rank - 1)]


def test_of_a_call_that_was_not_kept_nothing_is_known() -> None:
    kept, other = (next(n for n in range(1, 9) if is_kept(n, 2) == yes) for yes in (True, False))
    parts = [
        part(0, ("1", "", str(TAG)), [(kept, 0, 5.0, 5.0)], 2),
        part(1, ("0", "0", str(TAG)), [(kept, other, 1.0, 9.0, 0, TAG)], 2),
    ]
    assert lateness(parts, 1) == []


@pytest.mark.parametrize("apart", [-100.0, 0.0, 100.0])
def test_messages_bound_the_clocks_of_hosts(apart: float) -> None:
    """A receive ends after its message was sent; a send, which is over at once, tells nothing."""
    there = [(0, 1, 1.0, 1.1, 1, TAG), (1, 0, 3.0, 3.0), (0, 2, 9.0, 9.1, 1, TAG)]
    here = [(1, 0, 1.05, 1.06), (0, 1, 2.0, 3.1, 0, TAG), (2, 0, 4.0, 4.1)]
    moved = [(sent, received, began + apart, ended + apart, *met) for sent, received, began, ended, *met in here]
    parts = [
        part(rank, (str(1 - rank), "any", str(TAG)), moments) | {"host": f"h{rank}", "start": 0.0, "began": 0.0}
        for rank, moments in enumerate((there, moved))
    ]
    (zero, found), contradictions = compared(parts, list(calls_of(parts, [0.0, 0.0])))
    assert zero == 0
    assert contradictions == {}
    assert found == pytest.approx(-apart, abs=0.1)


@pytest.mark.parametrize("under_way", [0, 1])
def test_messages_whose_ends_do_not_match_are_left_out(under_way: int) -> None:
    """One message was under way when the profile began: its receiver alone has counted it."""
    sends = [(n, 0, 10.0 * n, 10.0 * n) for n in range(1, 5)]
    receives = [(0, n + under_way, 10.0 * n - 3, 10.0 * n + 1, 0, TAG) for n in range(1 - under_way, 5)]
    calls = matched([*calls_of([part(0, ("1", "", str(TAG)), sends), part(1, ("", "0", ""), receives)], [0.0, 0.0])])
    assert len(calls) == (0 if under_way else 4)


def test_a_send_that_is_noted_late_does_not_undo_the_others() -> None:
    """Its rank lost its processor when the message was on its way, and before it took note."""
    sends = [(n, 0, 10.0 * n + 3 * (n == 2), 10.0 * n + 4) for n in range(1, 5)]
    receives = [(0, n, 10.0 * n - 3, 10.0 * n + 1, 0, TAG) for n in range(1, 5)]
    calls = matched([*calls_of([part(0, ("1", "", str(TAG)), sends), part(1, ("", "0", ""), receives)], [0.0, 0.0])])
    assert len(calls) == 4
