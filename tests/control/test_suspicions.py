"""The choice of the ranks that are given up for dead links between live ranks: all sets of dead links of five ranks."""

from __future__ import annotations

from itertools import combinations, permutations

import pytest

from ringcast.control.suspicions import PATIENCE, SETTLE, Accusations

LINKS = list(combinations(range(5), 2))


def everybody(rank: int) -> bool:
    return True


def nobody(rank: int) -> bool:
    return False


def given_up(links: list[tuple[int, int]], silent: frozenset[int] = frozenset()) -> list[int]:
    accusations = Accusations()
    for rank, peer in links:
        accusations.accuse(rank, peer, "why", 0.0)
    return [found.given_up for found in accusations.decide(everybody, silent.__contains__, SETTLE)]


def test_of_the_survivors_every_two_have_a_link_and_nobody_goes_for_nothing() -> None:
    for bits in range(1 << len(LINKS)):
        links = [link for i, link in enumerate(LINKS) if bits >> i & 1]
        gone = given_up(links)
        assert all(set(link) & set(gone) for link in links)
        assert len(gone) == len(set(gone))
        for victim in gone:  # it had a dead link to one that stays, or to one that went after it
            assert any(victim in link for link in links)


@pytest.mark.parametrize("p", [2, 3, 5, 8])
def test_of_a_single_link_the_higher_rank_goes_whoever_tells(p: int) -> None:
    for rank, peer in permutations(range(p), 2):
        assert given_up([(rank, peer)]) == [max(rank, peer)]
        assert given_up([(rank, peer), (peer, rank)]) == [max(rank, peer)]


@pytest.mark.parametrize("p", [3, 5, 8])
def test_who_has_lost_all_others_goes_alone(p: int) -> None:
    for victim in range(p):
        others = [rank for rank in range(p) if rank != victim]
        assert given_up([(victim, rank) for rank in others]) == [victim]
        assert given_up([(rank, victim) for rank in others]) == [victim]


def test_of_two_hosts_without_a_way_between_them_one_goes() -> None:
    links = [(a, b) for a in (0, 1, 2) for b in (3, 4, 5)]
    assert sorted(given_up(links)) == [3, 4, 5]


def test_who_is_silent_goes_before_all_others() -> None:
    assert given_up([(1, 2)], frozenset({1})) == [1]
    assert given_up([(1, 2), (2, 3), (2, 4)], frozenset({1})) == [1, 2]


def test_it_is_decided_when_more_could_be_heard_and_then_anew() -> None:
    accusations = Accusations()
    assert accusations.due is None
    accusations.accuse(2, 1, "first", 10.0)
    accusations.accuse(1, 2, "second", 10.5)
    accusations.accuse(1, 1, "itself", 10.5)
    assert accusations.due == 10.0 + SETTLE
    assert accusations.decide(everybody, nobody, 10.9) == []
    (found,) = accusations.decide(everybody, nobody, 11.0)
    assert (found.given_up, found.reporter, found.peer, found.cause) == (2, 2, 1, "first")
    assert accusations.due is None
    assert accusations.decide(everybody, nobody, 99.0) == []


def test_a_silent_rank_is_left_to_the_launcher_for_a_while() -> None:
    accusations = Accusations(patience=PATIENCE)
    accusations.accuse(1, 2, "why", 0.0)
    for now in range(1, int(SETTLE + PATIENCE)):
        assert accusations.decide(everybody, {1}.__contains__, float(now)) == []
        assert accusations.due is not None
        assert now < accusations.due <= SETTLE + PATIENCE
    (found,) = accusations.decide(everybody, {1}.__contains__, SETTLE + PATIENCE)
    assert found.given_up == 1
    accusations.accuse(1, 2, "why", 20.0)
    assert accusations.decide(everybody, {1}.__contains__, 21.0) == []
    assert accusations.decide({2}.__contains__, nobody, 22.0) == []  # the launcher has found out
    assert accusations.due is None


def test_links_of_ranks_that_are_gone_are_of_no_interest() -> None:
    accusations = Accusations()
    accusations.accuse(0, 3, "why", 0.0)
    accusations.accuse(1, 2, "why", 0.0)
    found = accusations.decide({0, 1, 2}.__contains__, nobody, SETTLE)
    assert [each.given_up for each in found] == [2]
