"""Rounds between neighbours: a proper colouring with as few colours as possible, verified for all small graphs."""

from __future__ import annotations

import doctest
import time
from collections import Counter
from collections.abc import Sequence
from itertools import product
from math import prod
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringcast.analysis.postconditions import Postcondition
from ringcast.analysis.verify import verify
from ringcast.errors import ScheduleError
from ringcast.schedules import neighborhood
from ringcast.schedules.neighborhood import Neighborhood, coloured, of_graph, of_grid

Lists = tuple[tuple[int, ...], ...]
GRIDS = [(), (1,), (2,), (3,), (5,), (1, 1), (1, 2), (2, 2), (3, 2), (4, 3), (2, 1, 3), (2, 2, 2), (3, 3, 3)]


@st.composite
def multigraphs(draw: st.DrawFn) -> Lists:
    size = draw(st.sampled_from([1, 2, 3, 5, 7]))
    ranks = st.integers(0, size - 1)
    return tuple(tuple(draw(st.lists(ranks, max_size=7))) for _ in range(size))


def busiest(graph: Lists) -> int:
    """Return how many messages the busiest rank sends or receives, to and from others."""
    moved = [(s, d) for s, each in enumerate(graph) for d in each if s != d]
    return max([*Counter(s for s, _ in moved).values(), *Counter(d for _, d in moved).values()], default=0)


def arrivals(graph: Lists) -> list[list[tuple[int, int]]]:
    """Return for each rank from where messages come to it, by source and by place there."""
    ranks = range(len(graph))
    return [[(s, i) for s in ranks for i, dest in enumerate(graph[s]) if dest == rank] for rank in ranks]


def check(schedules: Sequence[Neighborhood], expected: Sequence[Sequence[tuple[int, int] | None]]) -> int:
    """Verify schedules, which bring to each place what is `expected` there; return the number of rounds."""
    d = schedules[0].degree
    start = tuple({i: (i, 1 << s.rank) for i in range(len(s.destinations))} for s in schedules)
    end = tuple(
        {d + j: (came[1], 1 << came[0]) for j, came in enumerate(each) if came is not None and came[0] != s.rank}
        for s, each in zip(schedules, expected, strict=True)
    )
    for s, each in zip(schedules, expected, strict=True):
        assert sorted(s.own) == sorted((c[1], j) for j, c in enumerate(each) if c is not None and c[0] == s.rank)
    return verify(schedules, Postcondition(start, end, alike=True))


def check_graph(graph: Lists) -> None:
    schedules = [of_graph(rank, graph) for rank in range(len(graph))]
    came = arrivals(graph)
    for schedule, each in zip(schedules, came, strict=True):
        assert schedule.destinations == graph[schedule.rank]
        assert schedule.sources == tuple(source for source, _ in each)
        assert len(schedule) == busiest(graph)
    assert check(schedules, came) <= busiest(graph)
    assert len({(s.name, s.degree) for s in schedules}) == 1


def test_the_examples_in_docstrings_are_true() -> None:
    results = doctest.testmod(neighborhood)
    assert results.attempted > 0
    assert results.failed == 0


def test_all_graphs_of_up_to_three_ranks() -> None:
    for size in 1, 2, 3:
        subsets = [tuple(r for r in range(size) if bits >> r & 1) for bits in range(1 << size)]
        for graph in product(subsets, repeat=size):
            check_graph(graph)


def test_all_multigraphs_of_two_ranks() -> None:
    lists = [each for n in range(4) for each in product((0, 1), repeat=n)]
    for graph in product(lists, repeat=2):
        check_graph(graph)


@given(multigraphs())
def test_multigraphs(graph: Lists) -> None:
    check_graph(graph)


def test_a_graph_of_33_ranks() -> None:
    rng = np.random.default_rng(33)
    check_graph(tuple(tuple(rng.integers(0, 33, rng.integers(0, 9)).tolist()) for _ in range(33)))


@given(multigraphs(), st.randoms(use_true_random=False))
def test_sources_that_are_given_order_the_results(graph: Lists, random: Random) -> None:
    sources: list[list[int] | None] = []
    expected: list[list[tuple[int, int] | None]] = []
    for each in arrivals(graph):
        order = [source for source, _ in each]
        random.shuffle(order)
        left = {source: [place for s, place in each if s == source] for source, _ in each}
        given = random.random() < 0.7
        sources.append(order if given else None)
        expected.append([(source, left[source].pop(0)) for source in (order if given else sorted(order))])
    schedules = [of_graph(rank, graph, sources) for rank in range(len(graph))]
    check(schedules, expected)
    assert {len(schedule) for schedule in schedules} == {busiest(graph)}


@given(st.integers(1, 9), st.data())
def test_colourings_are_proper_and_need_as_few_colours_as_possible(size: int, data: st.DataObject) -> None:
    ranks = st.integers(0, size - 1)
    edges = data.draw(st.lists(st.tuples(ranks, ranks), max_size=60))
    found = coloured(edges, size)
    for end in 0, 1:
        assert len({(edge[end], colour) for edge, colour in zip(edges, found, strict=True)}) == len(edges)
        degrees = Counter(edge[end] for edge in edges)
        assert all(colour >= 0 for colour in found)
        assert max(degrees.values(), default=0) <= max(found, default=-1) + 1
    most = max((n for end in (0, 1) for n in Counter(edge[end] for edge in edges).values()), default=0)
    assert max(found, default=-1) + 1 == most
    assert coloured(edges, size) == found


@pytest.mark.parametrize("degree", [6, 40])
def test_a_thousand_ranks_are_coloured_in_a_moment(degree: int) -> None:
    """Colours are exchanged along paths, which could be long."""
    rng = np.random.default_rng(degree)
    edges = [(rank, int(to)) for rank in range(1000) for to in rng.integers(0, 1000, degree)]
    start = time.thread_time()
    found = coloured(edges, 1000)
    assert time.thread_time() - start < degree * 0.05  # seconds; it takes a fiftieth of that on a free machine
    assert max(found) + 1 == max(n for end in (0, 1) for n in Counter(edge[end] for edge in edges).values())


def test_the_rounds_of_a_circulant_graph_are_shifts() -> None:
    graph = tuple(tuple((r + d) % 9 for d in (1, 3, -1, -3)) for r in range(9))
    for schedules in zip(*(of_graph(rank, graph) for rank in range(9)), strict=True):
        assert sorted(step.send_to for step in schedules) == list(range(9))
        assert len({(step.send_to - rank) % 9 for rank, step in enumerate(schedules)}) == 1


def test_every_graph_has_a_name_of_its_own() -> None:
    subsets = [(), (0,), (1,), (0, 1), (1, 0), (1, 1)]
    graphs = list(product(subsets, repeat=2))
    assert len({of_graph(0, graph).name for graph in graphs}) == len(graphs)
    one, other = ([None, [0, 1]], [None, [1, 0]])
    assert (
        of_graph(0, ((1,), (1,)), one).name == of_graph(0, ((1,), (1,))).name != of_graph(0, ((1,), (1,)), other).name
    )


@pytest.mark.parametrize(
    ("sources", "said"),
    [
        ([[1], [0]], "rank 0 lists 2 edges to rank 1, and rank 1 lists 1 edge from rank 0"),
        ([[1], [0, 0, 1]], "rank 1 lists no edge to rank 1, and rank 1 lists 1 edge from rank 1"),
        ([[], None], "rank 1 lists 1 edge to rank 0, and rank 0 lists no edge from rank 1"),
    ],
)
def test_ends_that_disagree_are_named(sources: list[list[int] | None], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        of_graph(0, ((1, 1), (0,)), sources)


@pytest.mark.parametrize("dims", GRIDS)
def test_grids(dims: tuple[int, ...]) -> None:
    """A message along an axis comes to the next rank from the other direction."""
    table = np.arange(prod(dims)).reshape(dims)
    for periods in product([False, True], repeat=len(dims)):
        schedules = [of_grid(rank, dims, periods) for rank in range(prod(dims))]
        expected: list[list[tuple[int, int] | None]] = [[] for _ in schedules]
        for (axis, ring), step in product(enumerate(periods), (-1, 1)):
            behind = np.roll(table, -step, axis)
            for at in np.ndindex(*dims):
                inside = ring or 0 <= at[axis] + step < dims[axis]
                place = 2 * axis + (step == -1)  # there, of the way back
                expected[int(table[at])].append((int(behind[at]), place) if inside else None)
        for schedule, each in zip(schedules, expected, strict=True):
            neighbors = tuple(None if came is None else came[0] for came in each)
            assert schedule.sources == schedule.destinations == neighbors
        check(schedules, expected)
        moved = [[n for n in s.sources if n is not None and n != s.rank] for s in schedules]
        assert {len(schedule) for schedule in schedules} == {max(map(len, moved))}
        assert len({(s.name, s.degree) for s in schedules}) == 1


def test_a_wrong_neighborhood_is_found() -> None:
    """The laws above would see a round too few, and a message at the wrong place."""
    graph: Lists = ((1, 1), (0,))
    right = [of_graph(rank, graph) for rank in range(2)]
    expected = arrivals(graph)
    wrong = of_graph(1, graph, [None, [0, 0]])
    object.__setattr__(wrong, "rounds", wrong.rounds[::-1])
    with pytest.raises(ScheduleError):
        check([right[0], wrong], expected)
    short = of_graph(0, graph)
    object.__setattr__(short, "rounds", short.rounds[:-1])
    with pytest.raises(ScheduleError):
        check([short, right[1]], expected)
