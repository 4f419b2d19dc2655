"""Agreements, by histories: in any order of votes, deaths and departures all living ranks get the same decision."""

from __future__ import annotations

import functools
import operator
from itertools import permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringcast.control.agreement import Agreements
from ringcast.wire.votes import AGREE, SHRINK, Decision, Vote

WORLD = 1


def replay(p: int, history: list[Vote | int]) -> list[tuple[int, Decision]]:
    """Return the decisions, with the number of events before each; a number is the rank that is gone."""
    agreements, found = Agreements(p), []
    for i, event in enumerate(history):
        answer = agreements.vote(event) if isinstance(event, Vote) else agreements.lose(event)
        found += [(i + 1, decision) for decision in answer]
    return found


@pytest.mark.parametrize("p", range(1, 5))
def test_every_order_of_votes_and_one_death(p: int) -> None:
    for victim, order in product(range(p), permutations(range(p + 1))):
        history: list[Vote | int] = [victim if i == p else Vote(i, WORLD, 1, SHRINK) for i in order]
        decisions = replay(p, history)
        voters = set(order[: order.index(p)])
        if voters == set(range(p)):  # it died after all had voted: they go on with it
            assert [d.members for _, d in decisions] == [tuple(range(p))]
        else:
            assert [d.members for _, d in decisions] == [tuple(r for r in range(p) if r != victim)] * (p > 1)


@given(p=st.integers(1, 7), data=st.data())
def test_those_that_live_hear_one_thing_as_soon_as_all_of_them_have_voted(p: int, data: st.DataObject) -> None:
    """Every rank votes a few times and may go at any time; the oracle looks at the whole history at once."""
    turns = data.draw(st.lists(st.integers(0, p - 1), max_size=4 * p))
    flags = st.integers(-(2**63), 2**63 - 1)
    history: list[Vote | int] = []
    gone: dict[int, int] = {}  # when
    votes: dict[int, list[tuple[int, Vote]]] = {rank: [] for rank in range(p)}
    for rank in turns:
        if rank in gone:
            continue
        if data.draw(st.booleans()) and data.draw(st.booleans()):
            history.append(rank)
            gone[rank] = len(history)
            continue
        known = tuple(r for r in gone if data.draw(st.booleans()))
        vote = Vote(rank, WORLD, len(votes[rank]) + 1, AGREE, data.draw(flags), known)
        history.append(vote)
        votes[rank].append((len(history), vote))
    decisions = replay(p, history)
    for number in range(1, max(map(len, votes.values()), default=0) + 1):
        times = range(1, len(history) + 1)
        ready = next((time for time in times if is_ready(p, number, time, votes, gone)), None)
        found = [(time, d) for time, d in decisions if d.number == number]
        if ready is None:
            assert found == []
            continue
        living = tuple(rank for rank in range(p) if gone.get(rank, len(history) + 1) > ready)
        cast = [votes[rank][number - 1][1] for rank in living]
        assert len(found) == bool(living)
        for time, decision in found:
            assert (time, decision.members, set(decision.verbs)) == (ready, living, {AGREE})
            assert decision.flag == functools.reduce(operator.and_, (vote.flag for vote in cast))
            unknown = {r for r in range(p) if r not in living and not all(r in vote.acknowledged for vote in cast)}
            assert set(decision.unacknowledged) == unknown
    assert len(decisions) == len({d.number for _, d in decisions})


def is_ready(p: int, number: int, time: int, votes: dict[int, list[tuple[int, Vote]]], gone: dict[int, int]) -> bool:
    """Whether each rank has voted or is gone by then, and at least one has voted."""
    cast = {rank for rank in range(p) if len(votes[rank]) >= number and votes[rank][number - 1][0] <= time}
    return bool(cast) and all(rank in cast or gone.get(rank, time + 1) <= time for rank in range(p))


@pytest.mark.parametrize(
    "wrong",
    [Vote(0, WORLD, 1, AGREE), Vote(1, WORLD, 3, AGREE), Vote(1, WORLD, 0, AGREE), Vote(3, WORLD, 1, AGREE)],
    ids=["again", "too early", "too late", "stranger"],
)
def test_a_vote_out_of_turn_or_of_a_stranger_is_none(wrong: Vote) -> None:
    rounds = [[Vote(rank, WORLD, number, AGREE, 7) for rank in (0, 2, 1)] for number in (1, 2)]
    history = [vote for votes in rounds for vote in (votes[0], wrong, votes[1], wrong, votes[2])]
    assert [(time, d.flag) for time, d in replay(3, history)] == [(5, 7), (10, 7)]


@pytest.mark.parametrize("number", [0, 2])
def test_whoever_is_alone_votes_in_turn_too(number: int) -> None:
    assert replay(1, [Vote(0, WORLD, number, AGREE)]) == []


def test_who_wants_something_else_is_told_to_all_and_makes_no_communicator() -> None:
    ((_, decision),) = replay(3, [Vote(0, WORLD, 1, AGREE), Vote(1, WORLD, 1, SHRINK), Vote(2, WORLD, 1, AGREE)])
    assert (decision.verbs, decision.fresh) == ((AGREE, SHRINK, AGREE), 0)


def test_a_shrunk_communicator_waits_for_its_members_only_and_its_number_is_new() -> None:
    agreements = Agreements(4)
    agreements.lose(1)
    numbers, members, context = set(), (0, 2, 3), WORLD
    for last in 3, 2, 0:
        decisions = [d for rank in members for d in agreements.vote(Vote(rank, context, 1, SHRINK))]
        assert [d.members for d in decisions] == [members]
        context = decisions[0].fresh
        assert tuple(agreements.members(context)) == members
        numbers.add(context)
        agreements.lose(last)
        members = tuple(rank for rank in members if rank != last)
    assert len(numbers) == 3
    assert WORLD not in numbers
    assert tuple(agreements.members(WORLD)) == (0, 1, 2, 3)
