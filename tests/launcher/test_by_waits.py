"""After a timeout of a call the rank is named that had not made it, whichever rank noticed the timeout."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from ringcast.errors import CollectiveTimeout, Where
from ringcast.monitoring.flight_record import Flights
from ringcast.wire.flight import Entry, Flight
from ringcast_launcher.decide.by_records import explained
from ringcast_launcher.decide.verdict import Verdict
from support.cases import each

CALL = Where("allreduce", 2, 1)
RECV = Where("recv with tag 5")


def entry(*waiting_for: int, number: int = 2, **facts: Any) -> Entry:
    """A call of the communicator 1 that has failed after 2 s, while it waited for these ranks."""
    made = {"context": 1, "collective": "allreduce", "shape": "(3,)", "state": "failed", "start": 1.0, "end": 3.0}
    made |= {"file": "dir/prog.py", "line": 7} | facts
    rest: dict[str, Any] = {"fingerprint": 1, "algorithm": "ring", "dtype": "int64", "op": "SUM", "root": None}
    rest |= {"nblocks": 1, "round": 0, "rounds": 1, "begun": 0.0, "sequence": 1, "stage": 0}
    return Entry(number=number, waiting=len(waiting_for), waiting_for=waiting_for, **rest, **made)


DONE = entry(number=1, state="done", start=0.0, end=0.5, line=3)


def records(*calls: tuple[Entry, ...] | None, hosts: str = "") -> Flights:
    """The records of ranks on one host, or on these: a letter for each rank."""
    return [
        None if made is None else Flight(rank, len(calls), 1, hosts[rank : rank + 1], 0.0, 0.0, None, made)
        for rank, made in enumerate(calls)
    ]


def noticed(rank: int, *waiting_for: int, where: Where = CALL, rest: str = "") -> Verdict:
    error = CollectiveTimeout(rank, waiting_for, 2.0, where, progress=0.5)
    return Verdict(1, rank, f"failed: CollectiveTimeout: {error}{rest}", "Traceback")


@each("here", [here for p in range(2, 8) for here in itertools.product((True, False), repeat=p) if len({*here}) > 1])
def test_each_rank_that_waits_names_the_next_one_that_is_absent(here: tuple[bool, ...]) -> None:
    """Each waits for the next one on a ring, so the oracle is the first absent rank after the one that noticed it."""
    ranks, p = range(len(here)), len(here)
    flights = records(*((DONE, entry((rank + 1) % p)) if here[rank] else (DONE,) for rank in ranks))
    waiting = [rank for rank in ranks if here[rank]]
    words = f"rank{'s' * (len(waiting) > 1)} {', '.join(map(str, waiting))}"
    for rank in waiting:
        found = explained(noticed(rank, (rank + 1) % p), flights)
        assert found.rank == next(other % p for other in itertools.count(rank) if not here[other % p])
        assert found.witness == rank
        assert (found.code, found.traceback) == (1, "Traceback")
        assert found.how == (
            f"made no call after #1 allreduce at prog.py:3, and {words} waited 2 s for it in #2 allreduce at prog.py:7"
        )


def test_a_rank_without_any_call_and_several_in_the_same_state() -> None:
    flights = records((entry(1, 2, 3),), (), (), (DONE,))
    found = explained(noticed(0, 1, 2, 3), flights)
    assert found.rank == 1
    assert found.how == "made no call, like rank 2, and rank 0 waited 2 s for them in #2 allreduce at prog.py:7"


def test_a_rank_in_another_call_is_named_only_where_none_is_in_no_call() -> None:
    receives = entry(0, number=0, collective="recv", shape="(from 0, tag 2)", state="running", line=9)
    found = explained(noticed(0, 1), records((entry(1),), (receives,)))
    assert found.rank == 1
    assert found.how.startswith("was in recv (from 0, tag 2) at prog.py:9, and rank 0 waited 2 s for it in #2")
    found = explained(noticed(0, 1), records((entry(1),), (replace(receives, waiting_for=(2,)),), ()))
    assert (found.rank, found.how.partition(",")[0]) == (2, "made no call")
    other = entry(0, number=7, context=2, collective="barrier", line=9)
    found = explained(noticed(0, 1), records((entry(1),), (other,)))
    assert (found.rank, found.how.partition(",")[0]) == (1, "was in #7 barrier at prog.py:9")


def test_a_rank_that_came_after_the_timeout_was_too_late_but_by_its_own_clock_only() -> None:
    late = entry(0, start=3.1, end=3.2)
    found = explained(noticed(0, 1), records((entry(1),), (late,)))
    assert (found.rank, found.how.partition(",")[0]) == (1, "came too late")
    assert explained(noticed(0, 1), records((entry(1),), (late,), hosts="ab")) == noticed(0, 1)


def test_the_first_of_several_timeouts_counts() -> None:
    calls = (entry(1, end=3.5),), (entry(2),), (entry(0, start=3.1, end=3.2),)
    assert explained(noticed(0, 1), records(*calls)).rank == 2


def test_a_message_that_did_not_come() -> None:
    receives = entry(1, number=0, collective="recv", shape="(from 1, tag 5)", line=9)
    sent = replace(DONE, number=0, collective="send", shape="(to 0, tag 4)")
    found = explained(noticed(0, 1, where=RECV), records((receives,), (sent,)))
    assert found.rank == 1
    assert found.how == (
        "made no call after send (to 0, tag 4) at prog.py:3, and rank 0 waited 2 s for it "
        "in recv (from 1, tag 5) at prog.py:9"
    )


def test_what_stands_behind_the_error_stays_there() -> None:
    rest = " (raised in #2 allreduce at prog.py:7 and caught; neither shrink nor agree followed)"
    assert explained(noticed(0, 1, rest=rest), records((entry(1),), ())).how.endswith(f"at prog.py:7{rest}")


@pytest.mark.parametrize(
    "flights",
    [
        records((entry(1),), (entry(0),)),  # all are in the call: it is slow
        records((entry(1),), (entry(0, state="running"),), ()),  # rank 2 is on no way, as it is no member
        records(
            (entry(1),), (entry(number=3, state="done"), entry(number=2, state="done"))
        ),  # the message is under way
        records((entry(1),), (entry(0, number=1, state="running"),)),  # in an earlier call, which is slow
        records((entry(1),), None),
        records((entry(7),), ()),
        records((DONE,), ()),
        records(None, ()),
        [],
    ],
)
def test_where_no_rank_is_elsewhere_the_one_that_noticed_it_stays_named(flights: Flights) -> None:
    assert explained(noticed(0, 1), flights) == noticed(0, 1)


def test_other_errors_stay_as_they_are() -> None:
    cycle = CollectiveTimeout(0, (1,), 2.0, CALL, cycle=(0, 1), calls=("recv", "recv"))
    for how in (f"failed: CollectiveTimeout: {cycle}", "failed: ValueError: it did not finish within 2 s"):
        verdict = Verdict(1, 0, how)
        assert explained(verdict, records((entry(1),), ())) == verdict
