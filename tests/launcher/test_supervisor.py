"""The supervisor, by histories: what happened, when, and what it must lead to."""

import signal
from collections.abc import Iterable, Sequence
from itertools import permutations
from operator import itemgetter

import pytest

from ringcast.control.events import AllJoined, Joined, Lost, StartFailed, TooLate, Unread
from ringcast.procs.liveness import Hung
from ringcast.wire.control_messages import Failing, Finished
from ringcast.wire.failure import Failure
from ringcast.wire.unanswered import Unanswered
from ringcast_launcher.decide.supervisor import (
    AbortJob,
    Action,
    Declare,
    Event,
    Exited,
    Fence,
    Fenced,
    SendSignal,
    Signalled,
    Supervisor,
    Tick,
)
from ringcast_launcher.decide.verdict import EVERY_CALL, Verdict, missed

History = Iterable[tuple[float, Event]]


def replay(
    size: int,
    history: History,
    timeout: float | None = None,
    continue_on_failure: bool = False,
    killing: float | None = 0.0,
) -> list[tuple[float, Action]]:
    """Return the timed actions; between the events the supervisor is woken exactly when it wants to be.

    A rank is fenced `killing` seconds after that was asked for; None: never.
    """
    supervisor = Supervisor(size, start=0.0, timeout=timeout, continue_on_failure=continue_on_failure)
    found: list[tuple[float, Action]] = []
    events = sorted(history, key=itemgetter(0))
    while True:
        due = supervisor.due
        if events and (due is None or events[0][0] <= due):
            time, event = events.pop(0)
        elif due is not None:
            time, event = due, Tick()
        else:
            return found
        actions = supervisor.handle(event, time)
        found += [(time, action) for action in actions]
        if killing is not None:
            fenced = [(time + killing, Fenced(action.rank)) for action in actions if isinstance(action, Fence)]
            events = sorted([*fenced, *events], key=itemgetter(0))


def verdict(actions: list[tuple[float, Action]]) -> Verdict:
    found = [action for _, action in actions if isinstance(action, Verdict)]
    assert len(found) == 1
    assert actions[-1][1] is found[0]
    return found[0]


def all_join(size: int) -> list[tuple[float, Event]]:
    return [*((0.0, Joined(rank, 100 + rank, "host")) for rank in range(size)), (0.0, AllJoined())]


def finish(rank: int, time: float) -> list[tuple[float, Event]]:
    return [(time, Finished(rank, {})), (time, Exited(rank, 0))]


def report(rank: int, *blames: int) -> Failing:
    return Failing(rank, Failure(f"Error of {rank}", f"Traceback of {rank}", blames))


def test_all_well() -> None:
    assert replay(2, [*all_join(2), *finish(0, 1.0), *finish(1, 2.0)]) == [(2.0, Verdict(0))]


def test_programs_that_never_join_may_exit_as_they_like() -> None:
    actions = replay(2, [(1.0, Exited(0, 0)), (2.0, Exited(1, 0))])
    assert verdict(actions) == Verdict(0)


def test_first_failure_is_declared_then_the_others_are_asked_then_killed() -> None:
    actions = replay(3, [*all_join(3), (1.0, Exited(1, 3)), (5.5, Exited(0, -9)), (5.5, Exited(2, -9))])
    assert actions[:4] == [
        (1.0, Fence(1)),
        (1.0, Declare(1, Failure("exit code 3"))),
        (2.0, SendSignal(signal.SIGTERM)),
        (4.5, SendSignal(signal.SIGKILL)),
    ]
    assert verdict(actions) == Verdict(3, 1, "failed: exit code 3")


def test_the_time_to_raise_errors_begins_when_the_others_are_told() -> None:
    history = [*all_join(2), (1.0, Exited(1, 3)), (8.0, Exited(0, -9))]
    assert replay(2, history, killing=1.5)[:4] == [
        (1.0, Fence(1)),
        (2.5, Declare(1, Failure("exit code 3"))),
        (3.5, SendSignal(signal.SIGTERM)),
        (6.0, SendSignal(signal.SIGKILL)),
    ]


def test_the_last_rank_that_fails_is_declared_before_the_verdict() -> None:
    history = [*all_join(2), *finish(0, 1.0), (2.0, Exited(1, -9))]
    assert replay(2, history, killing=0.5) == [
        (2.0, Fence(1)),
        (2.5, Declare(1, Failure("killed by SIGKILL"))),
        (2.5, Verdict(137, 1, "failed: killed by SIGKILL")),
    ]


def test_a_job_ends_by_its_timeout_while_a_rank_is_not_fenced() -> None:
    actions = replay(2, [*all_join(2), (1.0, Exited(1, 3)), (9.0, Fenced(1)), (9.0, Exited(0, -9))], 3.0, killing=None)
    assert [time for time, action in actions if isinstance(action, SendSignal)] == [4.0, 6.5]
    assert verdict(actions).code == 124


def test_no_signal_when_the_others_end_within_the_grace() -> None:
    actions = replay(2, [*all_join(2), (1.0, Exited(1, 3)), (1.5, report(0, 1)), (1.6, Exited(0, 1))])
    assert not [action for _, action in actions if isinstance(action, SendSignal)]
    assert verdict(actions).code == 3


@pytest.mark.parametrize(("status", "code", "how"), [(-9, 137, "killed by SIGKILL"), (-11, 139, "killed by SIGSEGV")])
def test_killed_by_a_signal(status: int, code: int, how: str) -> None:
    assert verdict(replay(1, [(1.0, Exited(0, status))])) == Verdict(code, 0, f"failed: {how}")


def test_exit_0_without_finishing_is_a_failure_after_a_moment_for_last_words() -> None:
    actions = replay(2, [*all_join(2), (1.0, Exited(1, 0)), (1.7, report(0, 1)), (1.8, Exited(0, 1))])
    assert actions[:2] == [(1.5, Fence(1)), (1.5, Declare(1, Failure("it exited with code 0 without finishing")))]
    assert verdict(actions) == Verdict(1, 1, "failed: it exited with code 0 without finishing")


def test_exit_0_whose_last_words_come_late() -> None:
    history = [*all_join(2), (1.0, Exited(1, 0)), (1.2, Finished(1, {})), *finish(0, 3.0)]
    assert replay(2, history) == [(3.0, Verdict(0))]


def test_a_rank_that_reports_an_error_is_killed_when_it_does_not_end_and_then_declared() -> None:
    actions = replay(2, [*all_join(2), (1.0, report(1)), (9.0, Exited(1, -9)), (9.0, Exited(0, -15))])
    assert actions[:3] == [(1.5, Fence(1)), (1.5, Declare(1, Failure("Error of 1"))), (2.5, SendSignal(signal.SIGTERM))]
    assert verdict(actions) == Verdict(1, 1, "failed: Error of 1", "Traceback of 1")


@pytest.mark.parametrize("status", [0, 1, -6])
def test_a_rank_that_reports_an_error_is_declared_when_it_has_ended(status: int) -> None:
    actions = replay(2, [*all_join(2), (1.0, report(1)), (1.1, Exited(1, status)), (9.0, Exited(0, -15))])
    assert actions[:3] == [(1.1, Fence(1)), (1.1, Declare(1, Failure("Error of 1"))), (2.1, SendSignal(signal.SIGTERM))]


def test_a_report_that_comes_after_the_exit() -> None:
    actions = replay(2, [*all_join(2), (1.0, Exited(1, 0)), (1.1, report(1)), (1.2, Exited(0, 1))])
    assert actions[:2] == [(1.1, Fence(1)), (1.1, Declare(1, Failure("Error of 1")))]


def test_a_stuck_rank_is_killed_then_declared_once() -> None:
    actions = replay(2, [*all_join(2), (1.0, Hung(1, "it was stopped")), (1.1, Exited(1, -9)), (1.2, Exited(0, 1))])
    assert actions == [
        (1.0, Fence(1)),
        (1.0, Declare(1, Failure("it was stopped"))),
        (1.2, Fence(0)),
        (1.2, Declare(0, Failure("exit code 1"))),
        (1.2, Verdict(1, 1, "failed: it was stopped")),
    ]


def test_no_rank_is_declared_before_it_was_fenced() -> None:
    causes = [Exited(1, 3), Exited(1, -9), Exited(1, 0), report(1), Lost(1, "it left"), Hung(1, "stopped")]
    for cause in causes:
        actions = [action for _, action in replay(2, [*all_join(2), (1.0, cause)])]
        assert actions[:2] == [Fence(1), Declare(1, actions[1].failure)], cause


def test_what_a_rank_leaves_that_was_asked_to_end_is_asked_too() -> None:
    actions = replay(1, [*all_join(1), (1.0, Signalled(signal.SIGINT)), (1.1, Exited(0, -2))])
    assert not any(isinstance(action, Fence) for _, action in actions)


def test_the_verdict_follows_the_blame_of_a_rank_that_caught_the_error() -> None:
    history = [(1.0, Finished(0, {}, failure=Failure("", blames=(1,)))), (1.1, Exited(0, 4)), (1.2, Exited(1, -11))]
    assert verdict(replay(2, [*all_join(2), *history])) == Verdict(139, 1, "failed: killed by SIGSEGV")


def test_blame_leads_to_the_root_cause_that_was_seen_later() -> None:
    history = [(1.0, report(0, 2)), (1.1, Exited(0, 1)), (1.2, Exited(2, -11)), (1.3, Exited(1, 1))]
    assert verdict(replay(3, [*all_join(3), *history])) == Verdict(139, 2, "failed: killed by SIGSEGV")


def test_blame_is_followed_through_several_ranks() -> None:
    history = [(1.0, report(0, 1)), (1.1, report(1, 2)), (1.2, report(2)), *((1.3, Exited(r, 1)) for r in range(3))]
    assert verdict(replay(3, [*all_join(3), *history])) == Verdict(1, 2, "failed: Error of 2", "Traceback of 2")


@pytest.mark.parametrize(
    ("errors", "named"),
    [
        (("ValueError: 2", "ValueError: 1", "ValueError: 0"), 0),
        (("ValueError: 2", "KeyError: 1", "ValueError: 0"), 0),
        (("ValueError: 2", "ValueError: 1", "KeyError: 0"), 1),
        (("KeyError: 2", "ValueError: 1", "ValueError: 0"), 2),
    ],
)
def test_of_ranks_with_the_same_error_the_lowest_is_named(errors: tuple[str, ...], named: int) -> None:
    """They fail in the order 2, 1, 0; which came first tells something only where the errors differ."""
    at = 'Traceback\n  File "prog.py", line 3'
    told = [(1.0 + i / 10, Failing(2 - i, Failure(error, at))) for i, error in enumerate(errors)]
    ends = [(2.0, Exited(rank, 1)) for rank in range(3)]
    assert verdict(replay(3, [*all_join(3), *told, *ends])).rank == named


def test_a_rank_that_was_too_late_because_of_another_one_does_not_take_its_place() -> None:
    """Rank 1 ends before it has joined; rank 0 wants to join after that, is refused, and exits with the same code."""
    history = [(1.0, Exited(1, 1)), (1.1, TooLate(0)), (1.2, Exited(0, 1))]
    assert verdict(replay(2, history)).rank == 1


def test_the_same_error_at_another_place_is_another_error() -> None:
    lines = [(1.0, Failing(1, Failure("E: 1", '  File "a.py", line 3'))), (1.1, Failing(0, Failure("E: 0", "")))]
    assert verdict(replay(2, [*all_join(2), *lines, *((2.0, Exited(r, 1)) for r in range(2))])).rank == 1


def test_of_a_mismatch_the_lowest_rank_is_named() -> None:
    told = [
        (1.0 + i / 10, Failing(r, Failure(f"CollectiveMismatch: {r}", f'  File "{r}"'))) for i, r in ((0, 1), (1, 0))
    ]
    assert verdict(replay(2, [*all_join(2), *told, *((2.0, Exited(r, 1)) for r in range(2))])).rank == 0


def test_of_a_mismatch_a_rank_that_knows_both_calls_is_named() -> None:
    texts = {0: "root differs; mine is", 1: "root differs: mine 1, theirs 0", 2: "root differs: mine 2, theirs 0"}
    told = [(1.0 + r / 10, Failing(r, Failure(f"CollectiveMismatch: {text}", ""))) for r, text in texts.items()]
    assert verdict(replay(3, [*all_join(3), *told, *((2.0, Exited(r, 1)) for r in range(3))])).rank == 1


def test_ranks_that_blame_each_other_end_with_one_of_them() -> None:
    history = [(1.0, report(0, 1)), (1.1, report(1, 0)), (2.0, Exited(0, 1)), (2.0, Exited(1, 1))]
    assert verdict(replay(2, [*all_join(2), *history])).code == 1


def test_a_blamed_rank_that_was_only_ended_by_us_is_not_the_cause() -> None:
    history = [(1.0, report(0, 1)), (1.1, Exited(0, 4)), (2.5, Exited(1, -15))]
    assert verdict(replay(2, [*all_join(2), *history])) == Verdict(4, 0, "failed: exit code 4", "Traceback of 0")


def test_a_blamed_rank_that_left_early_is_named_also_if_it_was_ended_while_it_closed_its_sockets() -> None:
    history = [
        (1.0, Finished(2, {})),
        (2.0, report(0, 2)),
        (2.1, Exited(0, 5)),
        (2.2, Exited(1, 1)),
        (4.0, Exited(2, -15)),
    ]
    assert verdict(replay(3, [*all_join(3), *history])) == Verdict(
        1,
        2,
        f"exited with code 0 while rank 0 still communicated with it; {EVERY_CALL}",
        "Traceback of 0",
        0,
    )


def test_a_blamed_rank_that_left_early_is_named_with_exit_code_1() -> None:
    history = [*finish(2, 1.0), (2.0, report(0, 2)), (2.1, Exited(0, 5)), (2.2, Exited(1, 1))]
    assert verdict(replay(3, [*all_join(3), *history])) == Verdict(
        1,
        2,
        f"exited with code 0 while rank 0 still communicated with it; {EVERY_CALL}",
        "Traceback of 0",
        0,
    )


@pytest.mark.parametrize("attempt", [(0.5, Joined(0, 100, "host")), (1.5, TooLate(0))])
def test_a_rank_that_never_joins_is_named_when_the_others_fail_for_it(attempt: tuple[float, Event]) -> None:
    history = [
        *sorted([attempt, (1.0, Exited(1, 0))], key=lambda timed: timed[0]),
        (2.1, report(0)),
        (2.2, Exited(0, 1)),
    ]
    actions = replay(2, history)
    assert actions[:2] == [(1.0, Fence(1)), (1.0, Declare(1, Failure("it exited with code 0 without joining")))]
    assert verdict(actions) == Verdict(1, 1, "exited with code 0 without joining", "Traceback of 0", 0)


def test_who_never_wanted_to_join_is_not_blamed() -> None:
    assert verdict(replay(2, [(1.0, Exited(1, 0)), (2.0, Exited(0, 4))])) == Verdict(4, 0, "failed: exit code 4")


def test_ranks_that_do_not_join_in_time() -> None:
    history = [(0.0, Joined(0, 100, "host")), (60.0, StartFailed("rank 1 did not join", (1,))), (60.1, Exited(0, 1))]
    actions = replay(2, [*history, (61.5, Exited(1, -15))])
    assert (61.0, SendSignal(signal.SIGTERM)) in actions
    assert verdict(actions) == Verdict(1, how="the job could not start: rank 1 did not join")


def test_a_rank_that_leaves_without_finishing() -> None:
    actions = replay(2, [*all_join(2), (1.0, Lost(0, "it left")), (1.1, Exited(0, 0)), (1.2, Exited(1, 1))])
    assert verdict(actions).rank == 0


LINK = "the link from rank 1 to rank 2 is lost: it was reset"


@pytest.mark.parametrize("order", [*permutations(range(4))])
def test_of_a_lost_link_an_end_is_named_whoever_ends_first_and_whoever_passed_it_on(order: Sequence[int]) -> None:
    for teller in 0, 1, 3:  # of whom rank 2 has heard that it counts as failed
        history: list[tuple[float, Event]] = [*all_join(4), (1.0, Lost(2, LINK))]
        for i, rank in enumerate(order):
            history += [(1.1 + i / 100, report(rank, 2 if rank != 2 else teller)), (1.2 + i / 100, Exited(rank, 1))]
        assert verdict(replay(4, history)) == Verdict(1, 2, f"failed: {LINK}", "Traceback of 2")


@pytest.mark.parametrize("teller", [0, 1, 3])
@pytest.mark.parametrize("order", [*permutations(range(4))])
def test_a_rank_that_hears_of_its_lost_link_from_others_is_named_without_the_control_plane(
    order: Sequence[int], teller: int
) -> None:
    """By a refusal it may hear of that, and end, before the control plane knows of the link."""
    history: list[tuple[float, Event]] = all_join(4)
    told = f"Revoked: rank 2: the communicator was revoked: rank {teller}: peer rank 2 failed: {LINK}"
    for i, rank in enumerate(order):
        cause, blamed = (told, teller) if rank == 2 else (f"PeerFailed: rank {rank}: peer rank 2 failed: {LINK}", 2)
        failing = Failing(rank, Failure(cause, f"Traceback of {rank}", (blamed,)))
        history += [(1.1 + i / 100, failing), (1.2 + i / 100, Exited(rank, 1))]
    assert verdict(replay(4, history)) == Verdict(1, 2, f"failed: {told}", "Traceback of 2")


@pytest.mark.parametrize("end", [report(2), Exited(2, -11)])
def test_a_rank_whose_link_is_lost_as_it_has_failed_is_named_with_its_own_failure(end: Event) -> None:
    history: History = [*all_join(3), (1.0, Lost(2, LINK)), (1.1, end), (1.2, report(0, 2)), (1.3, Exited(0, 1))]
    ends = [(1.4, Exited(2, 1))] if isinstance(end, Failing) else []
    how = verdict(replay(3, [*history, *ends, (1.5, Exited(1, 1))])).how
    assert how == ("failed: Error of 2" if ends else "failed: killed by SIGSEGV")


def test_a_failure_after_finishing_is_still_the_jobs_failure() -> None:
    actions = replay(2, [*all_join(2), (1.0, Finished(1, {})), (1.1, Exited(1, 9)), *finish(0, 1.5)])
    assert verdict(actions) == Verdict(9, 1, "failed: exit code 9")


def test_timeout() -> None:
    actions = replay(2, [*all_join(2), *finish(0, 1.0), (12.5, Exited(1, -15))], timeout=10.0)
    text = "timeout: the job did not end within 10 s"
    assert actions[:2] == [(10.0, AbortJob(text)), (11.0, SendSignal(signal.SIGTERM))]
    assert verdict(actions) == Verdict(124, how=f"{text}; still running: rank 1")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_is_passed_on_and_decides_the_exit_code(number: signal.Signals, code: int) -> None:
    history = [*all_join(2), (1.0, Signalled(number)), (1.1, report(0)), (1.2, Exited(0, 1)), (27.0, Exited(1, -9))]
    actions = replay(2, history)
    assert actions[0] == (1.0, SendSignal(number))
    assert (26.0 if number == signal.SIGTERM else 6.0, SendSignal(signal.SIGKILL)) in actions
    assert verdict(actions) == Verdict(code, how=f"ended by {number.name}")


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGRTMIN + 3])
def test_other_signals_are_passed_on_and_change_nothing(number: int) -> None:
    history = [*all_join(2), (1.0, Signalled(number)), (2.0, Signalled(number)), *finish(0, 50.0), *finish(1, 60.0)]
    sent = SendSignal(number)
    assert replay(2, history) == [(1.0, sent), (2.0, sent), (60.0, Verdict(0))]


def test_who_dies_by_a_signal_that_was_passed_on_has_failed_by_it() -> None:
    history = [*all_join(2), (1.0, Signalled(signal.SIGUSR1)), (1.1, Exited(1, -10)), (1.2, Exited(0, 1))]
    text = "killed by SIGUSR1, passed on by the launcher"
    actions = replay(2, history)
    assert (1.1, Declare(1, Failure(text))) in actions
    assert verdict(actions) == Verdict(138, 1, f"failed: {text}")
    history = [*all_join(2), (1.0, Signalled(signal.SIGUSR2)), (1.1, Exited(1, -10)), (1.2, Exited(0, 1))]
    assert verdict(replay(2, history)) == Verdict(138, 1, "failed: killed by SIGUSR1")


def test_a_signal_reaches_ranks_that_save_their_state_and_does_not_shorten_the_grace_period() -> None:
    history = [(1.0, Signalled(signal.SIGTERM)), (2.0, Signalled(signal.SIGUSR1)), (27.0, Exited(0, -9))]
    signals = [(time, action.number) for time, action in replay(1, history) if isinstance(action, SendSignal)]
    assert signals == [(1.0, signal.SIGTERM), (2.0, signal.SIGUSR1), (26.0, signal.SIGKILL)]


def leaves(rank: int, time: float, *blames: int) -> list[tuple[float, Event]]:
    """A rank that finishes well, and knows that others have failed."""
    return [(time, Finished(rank, {}, failure=Failure("", blames=blames))), (time, Exited(rank, 0))]


def dies(rank: int, time: float, *blames: int) -> list[tuple[float, Event]]:
    return [(time, report(rank, *blames)), (time, Exited(rank, 1))]


@pytest.mark.parametrize(
    ("history", "named"),
    [
        ([*dies(3, 1), *leaves(0, 2), *leaves(1, 2), *leaves(2, 2)], None),
        ([*leaves(0, 1), *dies(1, 2), *dies(2, 3), *dies(3, 4)], 1),  # rank 0 left before, so all others are lost
        ([*leaves(0, 1), *leaves(1, 1), *leaves(2, 1), *dies(3, 2)], 3),
        ([*leaves(0, 1), *dies(1, 2, 0), *dies(2, 3, 0), *dies(3, 4, 0)], 0),  # they needed it
        ([*leaves(0, 1), *dies(1, 2, 0), *dies(2, 3, 1), *leaves(3, 4, 1)], None),
        ([*leaves(0, 1), *dies(3, 2), *dies(2, 3), *leaves(1, 4)], None),
        ([*leaves(0, 1), *dies(3, 2), *leaves(1, 3), *dies(2, 4)], 3),  # rank 1 has not outlived rank 2
        ([*dies(3, 1), *leaves(0, 2), *dies(2, 3, 3), *dies(1, 4, 2)], None),  # one failure, and what follows
        ([*leaves(0, 1, 3), *dies(3, 1.1), *dies(2, 3, 3), *dies(1, 4, 3)], None),  # it knew before the launcher
        ([*dies(2, 1, 3), *dies(3, 1, 2), *leaves(0, 2), *leaves(1, 2)], None),
        ([*dies(0, 1), *dies(1, 1, 0), *dies(2, 1, 0), *dies(3, 1, 0)], 0),
    ],
)
def test_a_job_that_goes_on_succeeds_if_a_rank_outlives_its_failures(
    history: list[tuple[float, Event]], named: int | None
) -> None:
    found = verdict(replay(4, [*all_join(4), *history], continue_on_failure=True))
    assert (found.code, found.rank) == (0 if named is None else 1, named)
    if named and any(isinstance(event, Finished) for _, event in history):
        assert found.how.endswith("; no rank that finished has outlived it"), found


def test_where_others_go_on_a_failure_that_is_caught_and_not_answered_says_so() -> None:
    caught = Unanswered("PeerFailed", "rank 0: peer rank 1 failed", "recv at prog.py:3", (1,))
    history = [*all_join(2), *dies(1, 1), (2, Finished(0, {}, unanswered=caught)), (2, Exited(0, 0))]
    text = f"failed: Error of 1; rank 0 went on without an answer to it: PeerFailed {caught.how}"
    assert verdict(replay(2, history, continue_on_failure=True)) == Verdict(1, 1, text, "Traceback of 1")
    assert verdict(replay(2, history)).how == "failed: Error of 1"


def test_who_fails_because_of_another_is_declared_so_and_shown_as_a_consequence() -> None:
    history = [*all_join(3), *dies(2, 1), *dies(1, 2, 2), *leaves(0, 3)]
    actions = [action for _, action in replay(3, history, continue_on_failure=True)]
    assert [missed(action.failure) for action in actions if isinstance(action, Declare)] == [
        "failed: Error of 2",
        "has ended because of rank 2: it did not catch Error of 1",
    ]


def test_a_second_signal_kills_at_once() -> None:
    history = [(1.0, Signalled(signal.SIGINT)), (1.5, Signalled(signal.SIGINT)), (1.6, Exited(0, -9))]
    actions = replay(1, history)
    assert actions[:2] == [(1.0, SendSignal(signal.SIGINT)), (1.5, SendSignal(signal.SIGKILL))]
    assert verdict(actions).code == 130


def test_a_signal_while_a_failure_is_being_handled_keeps_the_first_cause() -> None:
    actions = replay(2, [(1.0, Exited(0, 3)), (1.1, Signalled(signal.SIGTERM)), (1.2, Exited(1, -9))])
    assert verdict(actions) == Verdict(3, 0, "failed: exit code 3")


@pytest.mark.parametrize("size", range(1, 6))
def test_whatever_fails_first_everything_is_over_within_five_seconds(size: int) -> None:
    for first in range(size):
        others = [(5.0, Exited(rank, -9)) for rank in range(size) if rank != first]
        actions = replay(size, [*all_join(size), (1.0, Exited(first, 2)), *others])
        assert verdict(actions).rank == first
        assert all(time <= 6.0 for time, _ in actions)


@pytest.mark.parametrize(("count", "words"), [(1, "a message"), (3, "3 messages")])
def test_a_rank_that_left_messages_behind_fails_the_job(count: int, words: str) -> None:
    history = [*all_join(2), *finish(1, 1.0), (2.0, Finished(0, {})), (2.0, Unread(1, 0, count)), (2.5, Exited(0, 0))]
    assert verdict(replay(2, history)) == Verdict(
        1, 1, f"failed: it finished without taking {words} of rank 0; {EVERY_CALL}"
    )


def continue_on_failure(size: int, history: History) -> list[tuple[float, Action]]:
    """As `replay`, with a supervisor that lets the others go on."""
    return replay(size, history, 60.0, continue_on_failure=True)


@pytest.mark.parametrize("lost", [(0,), (2,), (0, 1)])
def test_those_that_live_go_on_and_the_job_is_well(lost: tuple[int, ...]) -> None:
    deaths = [(1.0 + rank, Exited(rank, -9)) for rank in lost]
    rest = [event for rank in range(3) if rank not in lost for event in finish(rank, 30.0)]
    actions = continue_on_failure(3, [*all_join(3), *deaths, *rest])
    told = [
        (1.0 + rank, action) for rank in lost for action in (Fence(rank), Declare(rank, Failure("killed by SIGKILL")))
    ]
    assert actions == [*told, (30.0, Verdict(0))]


def test_the_job_is_not_well_if_nobody_finished() -> None:
    history = [(1.0, Exited(0, -9)), (1.5, report(1, 0)), (1.6, Exited(1, 1))]
    assert verdict(continue_on_failure(2, [*all_join(2), *history])) == Verdict(137, 0, "failed: killed by SIGKILL")


def test_the_job_is_not_well_if_a_rank_that_finished_says_so() -> None:
    history = [(1.0, Exited(0, -9)), *finish(1, 2.0), (3.0, Finished(2, {})), (3.0, Exited(2, 4))]
    assert verdict(continue_on_failure(3, [*all_join(3), *history])).code != 0


def test_a_job_that_has_not_started_does_not_go_on() -> None:
    actions = continue_on_failure(2, [(1.0, Exited(0, 3)), (2.6, Exited(1, -15))])
    assert (2.0, SendSignal(signal.SIGTERM)) in actions
    assert verdict(actions) == Verdict(3, 0, "failed: exit code 3")


@pytest.mark.parametrize(("event", "code"), [(Signalled(signal.SIGINT), 130), (Tick(), 124)])
def test_who_goes_on_is_ended_as_ever(event: Event, code: int) -> None:
    time = 60.0 if isinstance(event, Tick) else 2.0
    actions = continue_on_failure(2, [*all_join(2), (1.0, Exited(0, -9)), (time, event), (time + 2, Exited(1, -9))])
    assert verdict(actions).code == code
