"""The rules by which a link is dead: over all cases, and for the numbers that docs/operate/failures.md names."""

from __future__ import annotations

from itertools import product

import pytest

from ringcast.control.dead_link import DOUBT, ENOUGH, HOPELESS, ROUND_TRIPS, STALL, Trial, due, verdict

NONE, SMOOTH, SOME = Trial(), Trial(made=True, smoothly=True), Trial(made=True)
REFUSED = Trial(error="Connection refused")
TIMES = (0.0, DOUBT, STALL - 0.1, STALL, STALL + 5, HOPELESS - 0.1, HOPELESS, 1000.0)


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("there", [False, True])
def test_nothing_is_dead_before_its_time_or_without_trials(closed: bool, there: bool) -> None:
    for stalled, trial, count in product(TIMES, (NONE, SMOOTH, SOME, REFUSED), range(2 * ENOUGH)):
        why = verdict(stalled, [trial] * count, closed=closed, there=there)
        assert not why or (stalled >= STALL and count >= ENOUGH)


def test_a_link_is_cut_if_no_new_connection_is_made_also_where_the_window_is_closed() -> None:
    for closed in False, True:
        assert "none of 10 new connections was made (no answer)" in verdict(STALL, [NONE] * 10, closed=closed)
    assert "(Connection refused)" in verdict(STALL, [NONE, *[REFUSED] * 9])


def test_a_connection_is_dead_that_does_not_move_where_new_ones_do() -> None:
    assert verdict(STALL, [SMOOTH] * 10).startswith("no acknowledgement for 8 s, though new connections are made")
    assert verdict(STALL, [SMOOTH] * 10, there=False).startswith("no connection came up for 8 s, though")


def test_a_connection_that_has_sent_nothing_again_meanwhile_is_waited_for() -> None:
    assert not verdict(HOPELESS - 0.1, [SMOOTH] * 10, resent=False)
    assert "new connections are made" in verdict(HOPELESS, [SMOOTH] * 10, resent=False)


def test_who_answers_for_a_closed_window_is_alive() -> None:
    for stalled in TIMES:
        assert not verdict(stalled, [SMOOTH] * 10, closed=True)


@pytest.mark.parametrize("some", [NONE, SOME, REFUSED])
def test_a_link_that_lets_some_pass_is_borne_for_a_minute(some: Trial) -> None:
    trials = [SMOOTH] * 9 + [some]
    assert not verdict(HOPELESS - 0.1, trials)
    assert verdict(HOPELESS, trials).endswith("few new connections are made")


@pytest.mark.parametrize("rtt", [0.0, 0.5, 12.0])
def test_behind_a_long_queue_all_of_this_takes_longer(rtt: float) -> None:
    longer = ROUND_TRIPS * rtt
    assert [due(DOUBT + longer + d, rtt) for d in (-0.1, 0.0)] == [False, True]
    assert [bool(verdict(STALL + longer + d, [NONE] * 10, rtt=rtt)) for d in (-0.1, 0.0)] == [False, True]


def test_there_is_time_for_enough_trials_with_one_look_per_second() -> None:
    assert 2 * (STALL - DOUBT - 1) >= ENOUGH
