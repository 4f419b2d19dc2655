"""The roster, by histories: no sockets, no processes, and a clock that is a number."""

import re

import pytest

from ringcast.control.events import (
    Action,
    AllJoined,
    Died,
    End,
    Event,
    Joined,
    Joining,
    Leaving,
    Lost,
    SendTo,
    StartFailed,
    Tick,
    TooLate,
    Unread,
)
from ringcast.control.membership import MOST_REVOKED, Membership
from ringcast.control.suspicions import SETTLE
from ringcast.wire.control_messages import (
    Abort,
    Accuse,
    Alive,
    Beat,
    Bye,
    Failed,
    Failing,
    Finished,
    Freed,
    Hello,
    Left,
    Made,
    Moving,
    Refused,
    Revoke,
    Roster,
    ToWorker,
    Waiting,
)
from ringcast.wire.endpoint_card import EndpointCard
from ringcast.wire.failure import Failure
from ringcast.wire.header import DERIVED
from ringcast.wire.reports import CallRecord, Deadlock, Mismatch, OperationReport, StallReport
from ringcast.wire.votes import AGREE, SHRINK, Decision, Vote


def hello(
    rank: int,
    size: int = 3,
    version: str = "1",
    connection: bytes = b"",
    *,
    key: str = "",
    near: str = "",
    **others: object,
) -> Joining:
    card = EndpointCard(f"addr{rank}", key, near)
    return Joining(connection or b"c%d" % rank, Hello(version, rank, size, card, 100 + rank, "host", **others))


def started(size: int = 3, **settings: object) -> Membership:
    roster = Membership(size, version="1", **settings)
    for rank in range(size):
        roster.handle(hello(rank, size), 0.0)
    return roster


def sent(actions: list[Action]) -> dict[str, list[ToWorker]]:
    """Return the messages by connection."""
    found: dict[str, list[ToWorker]] = {}
    for action in actions:
        if isinstance(action, SendTo):
            found.setdefault(action.connection.decode(), []).append(action.message)
    return found


@pytest.mark.parametrize(
    ("differs", "words"),
    [
        ({"key": "a key"}, "rank 0 encrypts, but rank 2 does not.*same RINGCAST_SECURITY and RINGCAST_TRANSPORT"),
        (
            {"pickle": False},
            "rank 0 has RINGCAST_NO_PICKLE=1, but rank 2 takes Python objects; give all ranks",
        ),
        (
            {"deterministic": True},
            "rank 0 is deterministic, but rank 2 is not: .* same RINGCAST_DETERMINISTIC, or the same to ringcast.init",
        ),
    ],
)
def test_ranks_that_differ_in_what_they_let_in_are_refused(differs: dict[str, object], words: str) -> None:
    roster = Membership(3, version="1")
    roster.handle(hello(2), 0.0)
    ((refusal,),) = sent(roster.handle(hello(0, **differs), 0.0)).values()
    assert re.match(words, refusal.reason)


def test_the_roster_has_the_keys_of_all_and_where_they_are_near() -> None:
    roster = Membership(2, version="1")
    roster.handle(hello(1, 2, key="one", near="here"), 0.0)
    told = sent(roster.handle(hello(0, 2, key="zero"), 0.0))
    cards = (EndpointCard("addr0", "zero"), EndpointCard("addr1", "one", "here"))
    assert [m for m in told["c1"] if isinstance(m, Roster)] == [Roster(cards, False)]


def failure(rank: int, cause: str, traceback: str = "") -> Failed:
    """The notices that the others get of a failed rank."""
    return Failed(rank, Failure(cause, traceback, (), "host", 100 + rank))


def notices(actions: list[Action]) -> list[Action]:
    return [action for action in actions if not isinstance(action, SendTo)]


def beatless(actions: list[Action]) -> list[Action]:
    return [a for a in actions if not (isinstance(a, SendTo) and isinstance(a.message, Beat))]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_the_roster_goes_out_when_the_last_rank_joins(order: tuple[int, ...]) -> None:
    roster = Membership(3, version="1")
    for rank in order[:-1]:
        assert beatless(roster.handle(hello(rank), 0.0)) == [Joined(rank, 100 + rank, "host", f"addr{rank}")]
    actions = beatless(roster.handle(hello(order[-1]), 1.0))
    cards = tuple(EndpointCard(f"addr{rank}") for rank in range(3))
    assert sent(actions) == {connection: [Roster(cards, False)] for connection in ("c0", "c1", "c2")}
    assert notices(actions) == [Joined(order[-1], 100 + order[-1], "host", f"addr{order[-1]}"), AllJoined(cards)]


class Compared(str):
    """A text that counts how often it is compared with others."""

    count = 0
    __hash__ = str.__hash__

    def __ne__(self, other: object) -> bool:
        Compared.count += 1
        return str.__ne__(self, other)


def test_4096_ranks_meet_in_a_number_of_steps_that_grows_with_them_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Compared, "count", 0)
    p = 4096
    roster, seen = Membership(p, version="1"), 0
    for rank in reversed(range(p)):
        actions = roster.handle(hello(rank, p, network=Compared("constants")), 0.0)
        seen += len(actions)
    assert seen == 2 * p + p + 1  # a notice and a beat for each hello, the roster for each, the start
    assert Compared.count <= p
    rosters = [action.message for action in actions if isinstance(action, SendTo)]
    rosters = [message for message in rosters if isinstance(message, Roster)]
    assert [card.address for card in rosters[0].cards] == [f"addr{rank}" for rank in range(p)]
    assert all(message is rosters[0] for message in rosters)  # so that it is encoded once


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (hello(1, size=4, connection=b"x"), "believes in 4 ranks, but this job has 3"),
        (hello(1, version="2", connection=b"x"), "runs ringcast 2, but this job runs 1"),
        (hello(0, connection=b"x"), "rank 0 has joined already, as pid 100 on host"),
        (hello(3, connection=b"x"), "rank 3 is not in 0..2"),
    ],
)
def test_a_worker_that_does_not_fit_is_refused_and_disturbs_nobody(wrong: Joining, words: str) -> None:
    roster = Membership(3, version="1")
    roster.handle(hello(0), 0.0)
    actions = roster.handle(wrong, 0.0)
    assert [*sent(actions)] == ["x"]
    (refusal,) = sent(actions)["x"]
    assert words in refusal.reason
    roster.handle(hello(1), 0.0)
    assert AllJoined in map(type, roster.handle(hello(2), 0.0))


def test_ranks_that_would_choose_differently_are_kept_apart() -> None:
    roster = Membership(3, version="1")
    roster.handle(hello(2, network="Network(1)"), 0.0)
    refused = sent(roster.handle(hello(0, network="Network(2)"), 0.0))
    assert [*refused] == ["c0"]
    (refusal,) = refused["c0"]
    assert "rank 0 has Network(2), but rank 2 has Network(1)" in refusal.reason
    roster.handle(hello(0, network="Network(1)"), 0.0)  # another worker in its place
    assert AllJoined in map(type, roster.handle(hello(1, network="Network(1)"), 0.0))


def test_the_same_hello_again_is_not_a_second_worker() -> None:
    roster = Membership(3, version="1")
    roster.handle(hello(0), 0.0)
    assert roster.handle(hello(0), 0.0) == []


def test_missing_ranks_are_named_to_all_when_the_time_is_over() -> None:
    roster = Membership(4, version="1", start_timeout=60)
    roster.handle(Tick(), 500.0)  # nobody hurries a program that has not begun to communicate
    roster.handle(hello(1, 4), 1000.0)
    assert beatless(roster.handle(Tick(), 1059.9)) == []
    actions = beatless(roster.handle(Tick(), 1060.0))
    assert [a.missing for a in actions if isinstance(a, StartFailed)] == [(0, 2, 3)]
    assert "ranks 0, 2, 3 of 4 did not join within 60 s" in sent(actions)["c1"][0].reason
    late = roster.handle(hello(0, 4), 1061.0)
    assert "did not join" in sent(late)["c0"][0].reason
    assert beatless(roster.handle(Tick(), 1070.0)) == []


def test_the_next_tick_is_due_no_later_than_the_end_of_the_start() -> None:
    roster = Membership(2, version="1", start_timeout=0.5, beat=1.0)
    roster.handle(hello(0, 2), 10.0)
    roster.handle(Tick(), 10.0)
    assert roster.due == 10.5
    roster.handle(hello(1, 2), 10.1)
    assert roster.due == 11.0


def test_a_rank_that_dies_before_the_start_ends_the_start_for_those_before_and_after() -> None:
    roster = Membership(3, version="1")
    roster.handle(hello(0), 0.0)
    told = sent(roster.handle(Died(2, Failure("exit code 1")), 1.0))
    assert told == {"c0": [Refused("rank 2 ended before all ranks had joined: exit code 1")]}
    actions = roster.handle(hello(1), 2.0)
    assert isinstance(sent(actions)["c1"][0], Refused)
    assert notices(actions) == [TooLate(1)]


def test_a_death_is_told_once_to_all_that_still_listen() -> None:
    roster = started(4)
    roster.handle(Finished(3, {}), 1.0)
    failed = [failure(1, "killed")]
    assert sent(roster.handle(Died(1, Failure("killed")), 2.0)) == {"c0": failed, "c2": failed}
    assert roster.handle(Died(1, Failure("killed again")), 3.0) == []


def test_who_finished_does_not_fail_any_more() -> None:
    roster = started()
    roster.handle(Finished(1, {}), 1.0)
    assert roster.handle(Died(1, Failure("exit code 3")), 2.0) == []


def test_bye_tells_each_rank_how_many_messages_it_was_sent() -> None:
    roster = started()
    last = Finished(1, {0: 7}, failure=Failure("KeyError: 'a'", "Traceback ..."))
    actions = roster.handle(last, 1.0)
    why = Failure("KeyError: 'a'", "Traceback ...", (), "host", 101)
    assert sent(actions) == {"c0": [Bye(1, 7, why)], "c2": [Bye(1, 0, why)]}
    assert notices(actions) == [last]
    assert roster.handle(Finished(1, {0: 7}), 1.0) == []


def test_what_a_failing_rank_reported_is_told_when_it_is_known_to_be_gone() -> None:
    roster = started()
    report = Failing(0, Failure("ValueError: bad", "Traceback ..."))
    assert roster.handle(report, 1.0) == [report]
    assert roster.handle(Finished(0, {}), 1.1) == []  # whatever its last acts are, it has failed
    assert roster.handle(Leaving(b"c0"), 1.2) == [SendTo(b"c0", Left())]
    failed = [failure(0, "ValueError: bad", "Traceback ...")]
    assert sent(roster.handle(Died(0, Failure("exit code 1")), 1.3)) == {"c1": failed, "c2": failed}


def test_without_a_launcher_a_failing_rank_is_failed_for_the_others_at_once() -> None:
    roster = started(hosted=False)
    report = Failing(0, Failure("ValueError: bad", "Traceback ..."))
    actions = roster.handle(report, 1.0)
    failed = [failure(0, "ValueError: bad", "Traceback ...")]
    assert sent(actions) == {"c1": failed, "c2": failed}
    assert notices(actions) == [report]


def test_a_revocation_reaches_all_others() -> None:
    told = sent(started().handle(Revoke(2, 5, "timeout"), 1.0))
    message = [Revoke(2, 5, "timeout")]
    assert told == {"c0": message, "c1": message}


def waiting(rank: int, peer: int, fingerprint: int = 7) -> Waiting:
    return stalled(rank, CallRecord(5, 16, fingerprint, f"call {fingerprint}", "prog.py:1"), peer)


def stalled(rank: int, call: CallRecord, *peers: int) -> Waiting:
    """Return the report of a rank that waits for others in one operation, and has made no other calls."""
    return Waiting(StallReport(rank, (OperationReport(call, 0, peers, peers, ()),), 1, True, {}, {}, {}, times=2))


def findings(actions: list[Action]) -> dict[str, object]:
    found = sent(actions)
    assert all(m.context == 5 for (m,) in found.values())
    assert notices(actions) == []
    return {connection: m for connection, (m,) in found.items()}


def test_ranks_that_wait_for_each_other_are_told() -> None:
    roster = started()
    assert roster.handle(waiting(0, 1), 1.0) == []
    found = findings(roster.handle(waiting(1, 0), 2.0))
    assert {c: type(each) for c, each in found.items()} == {"c0": Deadlock, "c1": Deadlock}
    roster.handle(waiting(0, 1, fingerprint=7), 3.0)
    found = findings(roster.handle(waiting(1, 0, fingerprint=8), 4.0))
    assert {c: type(each) for c, each in found.items()} == {"c0": Mismatch, "c1": Mismatch}


@pytest.mark.parametrize(
    "event", [Moving(0), Finished(0, {}), Died(0, Failure("killed")), Failing(0, Failure("error"))]
)
def test_who_moved_on_or_is_gone_does_not_wait(event: Event) -> None:
    roster = started()
    roster.handle(waiting(0, 1), 1.0)
    roster.handle(event, 2.0)
    assert roster.handle(waiting(1, 0), 3.0) == []


def test_abort_reaches_all_and_ends_a_start() -> None:
    assert sent(started().handle(End("enough"), 1.0)) == {f"c{rank}": [Abort("enough")] for rank in range(3)}
    roster = Membership(3, version="1")
    roster.handle(hello(0), 0.0)
    assert sent(roster.handle(End("enough"), 1.0)) == {"c0": [Refused("enough")]}


def test_leaving_is_confirmed_to_everybody_and_without_finishing_it_is_for_the_owner_to_judge() -> None:
    roster = started()
    assert roster.handle(Leaving(b"stranger"), 1.0) == [SendTo(b"stranger", Left())]
    roster.handle(Finished(0, {}), 1.0)
    assert roster.handle(Leaving(b"c0"), 1.0) == [SendTo(b"c0", Left())]
    cause = "it closed its connection without finishing"
    assert roster.handle(Leaving(b"c1"), 1.0) == [SendTo(b"c1", Left()), Lost(1, cause)]
    assert sent(roster.handle(Died(1, Failure(cause)), 1.1)) == {"c2": [failure(1, cause)]}


def test_beats_go_to_members_once_a_period() -> None:
    roster = started(2)
    assert sent(roster.handle(Tick(), 5.0)) == {"c0": [Beat()], "c1": [Beat()]}
    assert roster.handle(Tick(), 5.9) == []
    assert len(roster.handle(Tick(), 6.0)) == 2


GONE = "there is no connection to it, and nothing was heard of it for 10 s"


def silent_history(roster: Membership, until: int, unreachable: frozenset[int] = frozenset({1})) -> list[Action]:
    """Let all ranks but rank 1 be alive every second."""
    found: list[Action] = []
    for second in range(1, until + 1):
        for rank in (0, 2):
            roster.handle(Alive(rank), float(second))
        found += beatless(roster.handle(Tick(unreachable), float(second)))
        if found and isinstance(found[-1], Lost):  # as the owner does
            found += roster.handle(Died(found[-1].rank, Failure(found[-1].cause)), float(second))
    return found


def test_silence_is_failure_only_where_nobody_watches_the_processes_and_the_connection_is_gone() -> None:
    assert silent_history(started(hosted=True), 30) == []
    assert silent_history(started(hosted=False), 30, unreachable=frozenset()) == []
    assert silent_history(started(hosted=False), 9) == []
    actions = silent_history(started(hosted=False), 30)
    assert notices(actions) == [Lost(1, GONE)]
    failed = [failure(1, GONE)]
    told = Abort(f"rank 1 was declared failed: {GONE}")  # it may live
    assert sent(actions) == {"c0": failed, "c1": [told], "c2": failed}


def test_a_rank_that_comes_back_after_it_was_given_up_is_told_so() -> None:
    roster = started(hosted=False)
    silent_history(roster, 12)
    told = sent(roster.handle(Alive(1), 13.0))
    assert told == {"c1": [Abort(f"rank 1 was declared failed: {GONE}")]}


def test_who_was_stopped_itself_blames_nobody() -> None:
    roster = started(hosted=False)
    roster.handle(Tick(), 1.0)
    assert beatless(roster.handle(Tick(), 100.0)) == []
    roster.handle(Alive(0), 101.0)
    assert beatless(roster.handle(Tick(), 101.0)) == []


def test_it_is_over_when_all_have_left_or_failed() -> None:
    roster = started()
    roster.handle(Finished(0, {}), 1.0)
    roster.handle(Leaving(b"c0"), 1.0)
    roster.handle(Died(1, Failure("killed")), 1.0)
    roster.handle(Finished(2, {}), 1.0)
    assert not roster.over  # rank 2 still waits for the confirmation
    roster.handle(Leaving(b"c2"), 1.0)
    assert roster.over


def test_a_finished_rank_that_never_leaves_does_not_keep_the_job_alive() -> None:
    roster = started(1, hosted=False)
    roster.handle(Finished(0, {}), 1.0)
    for second in range(1, 12):
        roster.handle(Tick(), float(second))
    assert roster.over


def test_what_a_stranger_says_in_the_name_of_a_rank_is_ignored() -> None:
    roster = Membership(3, version="1")
    assert roster.handle(Finished(1, {}), 0.0) == []


def test_a_message_that_nobody_took_is_noticed_when_both_ends_have_left() -> None:
    roster = started(2)
    assert notices(roster.handle(Finished(0, {1: 5}, {1: 3}, {1: 2}), 1.0)) == [Finished(0, {1: 5}, {1: 3}, {1: 2})]
    last = Finished(1, {0: 4}, {0: 2}, {0: 1})
    assert notices(roster.handle(last, 2.0)) == [last, Unread(1, 0, 2)]


def test_what_a_rank_has_sent_to_itself_is_noticed_once() -> None:
    roster = started(2)
    left = Finished(1, {}, {1: 3}, {1: 1})
    assert notices(roster.handle(left, 1.0)) == [left, Unread(1, 1, 2)]
    assert notices(roster.handle(Finished(0, {}), 2.0)) == [Finished(0, {})]


def test_what_was_taken_to_the_end_is_no_notice() -> None:
    roster = started(3)
    for rank in range(3):
        event = Finished(rank, {}, {(rank + 1) % 3: 7}, {(rank - 1) % 3: 7})
        assert notices(roster.handle(event, 1.0)) == [event]


@pytest.mark.parametrize("error", [Revoke(0, 1, "gave up"), Died(2, Failure("killed"))])
def test_after_an_error_messages_under_way_do_not_count(error: Revoke | Died) -> None:
    roster = started(3)
    roster.handle(error, 1.0)
    roster.handle(Finished(0, {}, {1: 1}, {}), 1.0)
    assert not any(isinstance(action, Unread) for action in roster.handle(Finished(1, {}, {}, {}), 2.0))


def test_a_communicator_is_given_up_once_however_many_say_so() -> None:
    roster = started(3)
    assert len(roster.handle(Revoke(0, 7, "first"), 1.0)) == 2
    assert roster.handle(Revoke(1, 7, "second"), 1.0) == []
    assert len(roster.handle(Revoke(1, 8, "another"), 1.0)) == 2


def test_a_rank_that_gives_up_communicators_without_end_is_lost() -> None:
    roster = started()
    for context in range(MOST_REVOKED):
        assert not notices(roster.handle(Revoke(1, context, "why not"), 1.0))
    actions = roster.handle(Revoke(1, MOST_REVOKED, "why not"), 1.0)
    assert [(action.rank, action.cause) for action in notices(actions)] == [
        (1, "it gave up more than 65536 communicators")
    ]
    assert roster.handle(Revoke(2, MOST_REVOKED, "a rank of its own"), 1.0)


WORLD = 1


def agreed(actions: list[Action]) -> dict[str, Decision]:
    """Return the decisions, by the connection that gets them."""
    return {
        connection: message
        for connection, messages in sent(actions).items()
        for message in messages
        if isinstance(message, Decision)
    }


@pytest.mark.parametrize("end", [Died(1, Failure("killed")), Failing(1, Failure("Error")), Finished(1, {})])
def test_an_agreement_waits_for_those_that_live_and_the_end_of_a_rank_is_heard_first(end: object) -> None:
    roster = started(hosted=False)
    assert roster.handle(Vote(0, WORLD, 1, AGREE, 6), 1.0) == []
    assert roster.handle(Vote(2, WORLD, 1, AGREE, 3, (1,)), 1.0) == []
    actions = roster.handle(end, 2.0)
    assert agreed(actions) == dict.fromkeys(("c0", "c2"), Decision(WORLD, 1, (0, 2), (AGREE, AGREE), 2, (1,)))
    for connection in "c0", "c2":
        kinds = [type(message) for message in sent(actions)[connection]]
        assert kinds in ([Failed, Decision], [Bye, Decision])


def test_who_votes_after_it_was_declared_failed_hears_that_it_was_given_up() -> None:
    roster = started()
    roster.handle(Died(1, Failure("killed")), 1.0)
    (told,) = sent(roster.handle(Vote(1, WORLD, 1, AGREE), 1.0))["c1"]
    assert isinstance(told, Abort)


def test_only_a_member_revokes_a_shrunk_communicator() -> None:
    roster = started()
    roster.handle(Finished(1, {}), 1.0)
    roster.handle(Vote(0, WORLD, 1, SHRINK), 1.0)
    context = agreed(roster.handle(Vote(2, WORLD, 1, SHRINK), 1.0))["c0"].fresh
    assert roster.handle(Revoke(1, context, "not mine"), 1.0) == []
    assert [*sent(roster.handle(Revoke(2, context, "mine"), 1.0))] == ["c0"]


def test_nobody_votes_before_the_start() -> None:
    roster = Membership(2, version="1")
    roster.handle(hello(0, 2), 0.0)
    assert roster.handle(Vote(0, WORLD, 1, AGREE), 0.0) == []


def votes(rank: int, *peers: int) -> Waiting:
    return stalled(rank, CallRecord(WORLD, -1, 0, "agree()", ""), *peers)


def calls(rank: int, peer: int, context: int = WORLD) -> Waiting:
    return stalled(rank, CallRecord(context, 3 * 16, 77, "barrier()", ""), peer)


PART = DERIVED + 5


def with_part(*members: int) -> Membership:
    """Return a job of three ranks; `members` have made a communicator of their own."""
    roster = started()
    for rank in members:
        assert roster.handle(Made(rank, PART, members), 1.0) == []
    return roster


def test_an_agreement_of_a_part_waits_for_its_members_only() -> None:
    roster = with_part(2, 0)
    assert roster.handle(Vote(0, PART, 1, AGREE, 6), 2.0) == []
    told = sent(roster.handle(Vote(2, PART, 1, AGREE, 3), 3.0))
    assert told == {f"c{rank}": [Decision(PART, 1, (2, 0), (AGREE, AGREE), 2)] for rank in (0, 2)}


def test_a_part_that_is_revoked_concerns_its_members_only() -> None:
    assert [*sent(with_part(2, 0).handle(Revoke(2, PART, "timeout"), 2.0))] == ["c0"]
    assert sent(with_part(2, 0).handle(Revoke(1, PART, "not mine"), 2.0)) == {}


def test_a_member_that_fails_is_not_waited_for_in_a_part_and_another_rank_is_of_no_account() -> None:
    roster = with_part(2, 0)
    roster.handle(Died(1, Failure("killed")), 2.0)
    roster.handle(Vote(0, PART, 1, SHRINK), 2.0)
    told = sent(roster.handle(Died(2, Failure("killed")), 3.0))
    (decision,) = [message for message in told["c0"] if isinstance(message, Decision)]
    assert (decision.members, decision.unacknowledged) == ((0,), (2,))


def test_nobody_makes_a_communicator_out_of_the_world_or_of_others() -> None:
    roster = started()
    roster.handle(Made(0, WORLD, (0,)), 1.0)
    roster.handle(Made(0, PART, (1, 2)), 1.0)
    for context in WORLD, PART:
        assert [*sent(roster.handle(Revoke(0, context, "timeout"), 1.0))] == ["c1", "c2"]


def test_a_rank_makes_a_bounded_number_of_communicators(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringcast.control.membership.MOST_MADE", 3)
    roster = started()
    for i in range(10):
        assert roster.handle(Made(0, PART + i, (0,)), 1.0) == []
        roster.handle(Freed(0, PART + i), 1.0)
    found = [roster.handle(Made(0, PART + i, (0,)), 1.0) for i in range(10, 14)]
    assert found[:3] == [[]] * 3
    assert notices(found[3]) == [Lost(0, "it has more than 3 communicators")]


def test_only_who_has_not_voted_is_waited_for() -> None:
    roster = started()
    roster.handle(Vote(0, WORLD, 1, AGREE), 1.0)
    roster.handle(votes(0, 1, 2), 2.0)
    roster.handle(Vote(1, WORLD, 1, AGREE), 2.0)
    for event in votes(0, 1, 2), votes(1, 0, 2), votes(0, 1, 2):
        assert roster.handle(event, 3.0) == []
    found = sent(roster.handle(calls(2, 1), 4.0))
    assert {*found} == {"c1", "c2"}
    for message in (message for messages in found.values() for message in messages):
        assert isinstance(message, Deadlock)
        assert message.cycle == (1, 2)


@pytest.mark.parametrize("end", [Revoke(0, 9, "why not"), Died(1, Failure("killed"))])
def test_a_call_that_is_about_to_end_is_in_no_cycle(end: Event) -> None:
    roster = started()
    assert roster.handle(calls(2, 0, 9), 1.0) == []
    roster.handle(end, 1.0)
    roster.handle(Vote(0, WORLD, 1, SHRINK), 1.0)
    for event in calls(2, 0, 9), votes(0, 2), calls(2, 0, 9), votes(0, 2):
        assert roster.handle(event, 3.0) == []


def test_whom_another_rank_has_lost_is_lost_for_all() -> None:
    roster = started()
    assert notices(roster.handle(Revoke(0, 7, "the link is lost", failed=2), 1.0)) == [Lost(2, "the link is lost")]
    assert notices(roster.handle(Revoke(1, 7, "it is", failed=2), 1.0)) == [Lost(2, "it is")]  # the owner knows
    roster.handle(Died(2, Failure("killed")), 2.0)
    assert roster.handle(Revoke(1, 7, "the link is lost", failed=2), 3.0) == []


@pytest.mark.parametrize("gone", [Finished(2, {}), Died(2, Failure("killed"))])
def test_who_is_gone_is_not_lost(gone: Event) -> None:
    roster = started()
    roster.handle(gone, 1.0)
    assert not notices(roster.handle(Revoke(0, 7, "it finished", failed=2), 2.0))


def test_nobody_accuses_itself_or_a_stranger() -> None:
    roster = started()
    for rank in 0, 3, 99:
        assert not notices(roster.handle(Revoke(0, rank, "why not", failed=rank), 1.0))


@pytest.mark.parametrize(("rank", "peer"), [(0, 2), (2, 0), (1, 2)])
def test_of_two_ranks_with_a_dead_link_one_is_lost_a_second_later_and_both_ends_are_named(rank: int, peer: int) -> None:
    roster = started()
    assert roster.handle(Accuse(rank, peer, "no answer"), 1.0) == []
    assert roster.due <= 1.0 + SETTLE
    roster.handle(Alive(2), 1.5)
    assert not notices(roster.handle(Tick(), 1.9))
    (lost,) = notices(roster.handle(Tick(), 2.0))
    cause = f"the link between rank {rank} (addr{rank}) and rank {peer} (addr{peer}) is dead: no answer"
    assert lost == Lost(2, cause)
    assert not notices(roster.handle(Tick(), 3.0))


def test_who_is_gone_accuses_nobody_and_is_not_accused() -> None:
    for gone in Finished(2, {}), Died(2, Failure("killed")), Leaving(b"c2"):
        roster = started()
        roster.handle(gone, 1.0)
        roster.handle(Accuse(2, 1, "no answer"), 1.5)
        roster.handle(Accuse(0, 2, "no answer"), 1.5)
        roster.handle(Accuse(0, 99, "no answer"), 1.5)
        assert not notices(roster.handle(Tick(), 3.0))


def test_two_that_have_lost_each_other_do_not_both_go() -> None:
    roster = started()
    assert notices(roster.handle(Revoke(0, 7, "reset", failed=2), 1.0)) == [Lost(2, "reset")]
    assert not notices(roster.handle(Revoke(2, 7, "reset", failed=0), 1.1))
    roster.handle(Accuse(2, 1, "no answer"), 1.2)
    roster.handle(Accuse(1, 2, "no answer"), 1.2)
    assert not notices(roster.handle(Tick(), 3.0))


def test_without_a_launcher_who_is_given_up_hears_of_it_at_once() -> None:
    roster = started(hosted=False)
    told = sent(roster.handle(Died(1, Failure("the link is dead")), 1.0))
    assert told["c1"] == [Abort("rank 1 was declared failed: the link is dead")]
