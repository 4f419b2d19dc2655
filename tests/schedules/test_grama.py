"""The textbook's algorithms: messages go only where its networks have links, and each is had by its name."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod

import pytest

from ringcast.algorithms import CallFacts, Params, build, grama, grama_all
from ringcast.algorithms.cost import choose
from ringcast.algorithms.network import NETWORKS, Network
from ringcast.analysis.postconditions import postcondition
from ringcast.analysis.simulate import simulate
from ringcast.analysis.verify import verify
from ringcast.schedules import grid, hypercube, one_to_all
from ringcast.schedules.schedule import Schedule
from support.cases import each

POWERS = (1, 2, 4, 8, 16, 32, 64)
SIZES = (*range(1, 20), 33, 36, 64, 65)


def of_all(collective: str, name: str, p: int, root: int = 0) -> list[Schedule]:
    return [build(collective, name, Params(p, root), r) for r in range(p)]


def of_mesh(shape: tuple[int, ...], root: int = 0) -> list[Schedule]:
    p = prod(shape)
    return [grid.Broadcast(p, r, shape, root) for r in range(p)]


def messages(schedules: list[Schedule]) -> Iterator[tuple[int, int, int]]:
    """Yield round, sender and receiver of each message."""
    for schedule in schedules:
        for i, step in enumerate(schedule):
            if step.send_to is not None:
                yield i, schedule.rank, step.send_to


def test_broadcast_on_a_ring_of_eight_as_the_book_draws_it() -> None:
    drawn = [(0, 0, 4), (1, 0, 2), (1, 4, 6), (2, 0, 1), (2, 2, 3), (2, 4, 5), (2, 6, 7)]
    assert sorted(messages(of_all("bcast", "binomial", 8))) == drawn
    assert sorted(messages(of_all("bcast", "hypercube", 8))) == drawn
    backwards = sorted((2 - i, b, a) for i, a, b in drawn)
    for name in "ring", "hypercube", "binomial":
        assert sorted(messages(of_all("reduce", name, 8))) == backwards


def test_broadcast_on_a_mesh_of_sixteen_as_the_book_draws_it() -> None:
    row = [(0, 0, 2), (1, 0, 1), (1, 2, 3)]
    columns = [(i, a + x, b + x) for x in range(4) for i, a, b in ((2, 0, 8), (3, 0, 4), (3, 8, 12))]
    assert sorted(messages(of_all("bcast", "mesh", 16))) == sorted(row + columns)


def test_broadcast_on_a_mesh_of_three_dimensions_goes_along_rows_then_columns_then_through_planes() -> None:
    row = [(0, 0, 1)]
    columns = [(1, x, 2 + x) for x in range(2)]
    planes = [(i, a + x, b + x) for x in range(4) for i, a, b in ((2, 0, 8), (3, 0, 4), (3, 8, 12))]
    assert sorted(messages(of_mesh((4, 2, 2)))) == sorted(row + columns + planes)


@pytest.mark.parametrize("shape", [(5,), (3, 4), (2, 3, 5), (3, 1, 4), (2, 3, 2, 3), (2,) * 5, (1, 1), ()])
def test_broadcast_on_a_mesh_of_any_dimension_doubles_along_one_after_the_other(shape: tuple[int, ...]) -> None:
    p = prod(shape)
    place = list(product(*map(range, shape)))
    dimension_of = [d for d, side in reversed([*enumerate(shape)]) for _ in range((side - 1).bit_length())]
    for root in {0, p // 3, p - 1}:
        schedules = of_mesh(shape, root)
        assert verify(schedules, postcondition("bcast", p, schedules[0].parts, root=root)) == len(dimension_of)
        for i, a, b in messages(schedules):
            assert {d for d in range(len(shape)) if place[a][d] != place[b][d]} == {dimension_of[i]}


@pytest.mark.parametrize("p", [1, 2, 5, 8, 33])
def test_a_mesh_of_one_dimension_is_a_ring(p: int) -> None:
    for root in {0, p // 3, p - 1}:
        assert [*messages(of_mesh((p,), root))] == [*messages(of_all("bcast", "binomial", p, root))]


def test_scatter_on_eight_ranks_as_the_book_draws_it() -> None:
    sent = [(list(step.send), step.send_to) for step in of_all("scatter", "hypercube", 8)[0]]
    assert sent == [([4, 5, 6, 7], 4), ([2, 3], 2), ([1], 1)]


@pytest.mark.parametrize("p", POWERS)
@pytest.mark.parametrize("collective", ["bcast", "reduce", "scatter", "gather"])
def test_on_a_hypercube_messages_cross_one_dimension_whatever_the_root(collective: str, p: int) -> None:
    for root in {0, 1 % p, p // 2, p - 1}:
        for i, a, b in messages(of_all(collective, "hypercube", p, root)):
            left = i if collective in ("reduce", "gather") else p.bit_length() - 2 - i
            assert a ^ b == 1 << left


@pytest.mark.parametrize("p", POWERS)
@pytest.mark.parametrize("collective", ["allgather", "allgatherv", "reduce_scatter", "allreduce"])
def test_all_to_all_on_a_hypercube_crosses_one_dimension_a_round(collective: str, p: int) -> None:
    up = range(p.bit_length() - 1)
    down = up[::-1]
    order = {"reduce_scatter": [*down], "allreduce": [*down, *up]}.get(collective, [*up])
    sent = sorted((i, a, a ^ b) for i, a, b in messages(of_all(collective, "hypercube", p)))
    assert sent == [(i, a, 1 << k) for i, k in enumerate(order) for a in range(p)]


@each("p", SIZES)
@pytest.mark.parametrize("collective", ["bcast", "reduce", "allgather", "allgatherv", "reduce_scatter"])
def test_on_a_mesh_messages_stay_in_a_row_or_a_column(collective: str, p: int) -> None:
    a, b = grid.mesh_shape(p)
    assert a * b == p
    assert a <= b
    for _, x, y in messages(of_all(collective, "mesh", p, p // 2)):
        assert x // b == y // b or x % b == y % b
        if collective not in ("bcast", "reduce"):  # neighbours, around
            assert (y - x) % p in (b, p - b) or (y % b - x % b) % b in (1, b - 1)


@pytest.mark.parametrize("p", SIZES)
@pytest.mark.parametrize("collective", ["bcast", "reduce"])
def test_on_a_mesh_of_three_dimensions_messages_stay_in_a_line(collective: str, p: int) -> None:
    u, v, w = grid.mesh_3d_shape(p)
    assert u * v * w == p
    assert u <= v <= w
    place = list(product(range(u), range(v), range(w)))
    for _, a, b in messages(of_all(collective, "mesh_3d", p, p // 2)):
        assert sum(x != y for x, y in zip(place[a], place[b], strict=True)) == 1


@pytest.mark.parametrize("p", SIZES)
def test_a_scatter_leaves_each_rank_with_the_parts_of_its_subtree(p: int) -> None:
    for root in {0, p // 2, p - 1}:
        trees = [one_to_all.Scatter(p, r, root) for r in range(p)]
        assert sorted(trees[root].held_by(root)) == list(range(p))
        for tree in trees:
            received = [slot for step in tree for slot in step.recv]
            assert sorted(tree.held_by(tree.rank)) == sorted(received) or tree.rank == root


@pytest.mark.parametrize("p", SIZES[1:])
def test_a_broadcast_by_scatter_and_allgather_sends_no_piece_twice_to_anyone(p: int) -> None:
    for root in {0, p // 2, p - 1}:
        report = simulate(of_all("bcast", "scatter_allgather", p, root))
        assert report.received == tuple(p * (r != root) for r in range(p))


@pytest.mark.parametrize("p", SIZES)
def test_folded_ranks_of_a_hypercube_send_and_receive_once(p: int) -> None:
    for r in range(1, 2 * hypercube.folded(p), 2):
        steps = [step for step in hypercube.AllGather(p, r) if step.send_to is not None or step.recv_from is not None]
        assert [(step.send_to, len(step.send), len(step.recv)) for step in steps] == [(r - 1, 1, 0), (None, 0, p - 1)]


@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
@pytest.mark.parametrize("p", [2, 3, 8, 36])
def test_all_of_them_are_had_by_name(p: int, network: Network) -> None:
    for entry in (*grama.ALGORITHMS, *grama_all.ALGORITHMS):
        for nbytes in (0, 8 * p, 10**5 * p, 10**7 * p):
            wanted = entry.name, 1
            assert choose(entry.collective, CallFacts(size=p, nbytes=nbytes), network, algorithm=entry.name) == wanted
