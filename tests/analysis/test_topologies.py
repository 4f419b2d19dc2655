"""Routes go where they should, and algorithms made for a network have its links to themselves."""

from __future__ import annotations

import doctest
from collections.abc import Sequence

import pytest

from ringcast.algorithms import Params, build
from ringcast.analysis import topologies
from ringcast.analysis.rounds import Transfer, messages
from ringcast.analysis.topologies import Traffic, route_on, traffic
from ringcast.schedules import crossbar
from ringcast.schedules.grouptree import schedules_of
from ringcast.schedules.mesh import Mesh, mesh_tree
from ringcast.schedules.schedule import Schedule
from ringcast.schedules.shift import gray
from ringcast.wire.collective import COLLECTIVES

RINGS = [("allgather", "ring"), ("allgatherv", "pipelined_ring"), ("allreduce", "pipelined_ring"), ("shift", "ring")]
RINGS += [("alltoall", "ring"), ("alltoall", "ring_two_way"), ("bcast", "linear_pipeline"), ("bcast", "binomial")]
RINGS += [("reduce", "ring"), ("reduce_scatter", "ring")]
MESHES = ["bcast", "reduce", "allgather", "allgatherv", "reduce_scatter", "alltoall", "shift"]
CUBES = ["bcast", "reduce", "allreduce", "allgather", "allgatherv", "reduce_scatter", "scatter", "gather", "alltoall"]
CUBES += ["scan"]


def schedules(collective: str, algorithm: str, p: int, nblocks: int = 1) -> list[Schedule]:
    distance = p // 3 if collective == "shift" else 0
    params = Params(p, p // 2 if COLLECTIVES[collective].rooted else 0, nblocks, distance=distance)
    return [build(collective, algorithm, params, rank) for rank in range(p)]


def load(chosen: Sequence[Schedule], network: str) -> Traffic:
    return traffic(messages(chosen), route_on(network, len(chosen)), [1] * chosen[0].nslots)


def test_examples_in_docstrings() -> None:
    result = doctest.testmod(topologies)
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize("p", [1, 2, 3, 8, 33, 65])
def test_a_ring_is_gone_round_the_shorter_way(p: int) -> None:
    route = route_on("ring", p)
    for a in range(p):
        for b in range(p):
            links = list(route(a, b))
            assert len(links) == min((b - a) % p, (a - b) % p)
            check_way(links, a, b)
            assert all((to - source) % p in (1, p - 1) for source, to in links)


@pytest.mark.parametrize("p", [1, 2, 8, 64])
def test_a_hypercube_is_crossed_in_each_dimension_that_differs(p: int) -> None:
    route = route_on("hypercube", p)
    for a in range(p):
        for b in range(p):
            links = list(route(a, b))
            check_way(links, a, b)
            crossed = [source ^ to for source, to in links]
            assert crossed == sorted(crossed)
            assert sum(crossed) == a ^ b
            assert all(bit & (bit - 1) == 0 for bit in crossed)


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (1, 7), (5, 1), (3, 11)])
def test_a_mesh_has_no_links_round_its_ends(rows: int, columns: int) -> None:
    route = route_on(f"mesh:{rows}x{columns}", rows * columns)
    for a in range(rows * columns):
        for b in range(rows * columns):
            (y, x), (v, u) = divmod(a, columns), divmod(b, columns)
            links = list(route(a, b))
            check_way(links, a, b)
            assert len(links) == abs(y - v) + abs(x - u)


def check_way(links: list[tuple[int, int]], a: int, b: int) -> None:
    ranks = [a, *(to for _, to in links)]
    assert ranks[-1] == b
    assert [source for source, _ in links] == ranks[:-1]


def test_a_crossbar_has_a_channel_out_of_a_module_and_one_into_it() -> None:
    route = route_on("crossbar:3x4", 12)
    assert len(route(0, 3)) == 1
    assert len(route(3, 4)) == 2
    assert set(route(3, 4)) & set(route(0, 11))  # both leave module 0
    assert set(route(3, 4)) & set(route(9, 5))  # both enter module 1
    assert not set(route(3, 4)) & set(route(4, 3))


def test_what_messages_do_to_a_line_of_three() -> None:
    moved = [Transfer(0, 0, 2, (0, 1)), Transfer(0, 1, 2, (0,)), Transfer(3, 2, 0, ())]
    found = traffic(moved, route_on("mesh:1x3", 3), [10, 20], alpha=100.0, beta=1.0)
    assert found == Traffic(congestion=2, crossings=5, hops=2, time=2 * 100.0 + 40.0)
    assert traffic([], route_on("ring", 3), []) == Traffic(0, 0, 0, 0.0)


@pytest.mark.parametrize(("collective", "algorithm"), RINGS)
@pytest.mark.parametrize("p", [2, 3, 16, 33])
def test_ring_algorithms_have_the_ring_to_themselves(collective: str, algorithm: str, p: int) -> None:
    chosen = schedules(collective, algorithm, p)
    found = load(chosen, "ring")
    assert found.congestion <= 1
    # Only recursive doubling goes further than to the neighbour.
    assert found.hops <= 1 or (collective, algorithm) in (("bcast", "binomial"), ("reduce", "ring"))


@pytest.mark.parametrize("collective", MESHES)
@pytest.mark.parametrize(("p", "shape"), [(16, "4x4"), (12, "3x4"), (33, "3x11"), (65, "5x13")])
def test_mesh_algorithms_have_their_mesh_to_themselves(collective: str, p: int, shape: str) -> None:
    assert load(schedules(collective, "mesh", p), f"mesh:{shape}").congestion == 1


@pytest.mark.parametrize("collective", CUBES)
@pytest.mark.parametrize("p", [2, 16, 64])
def test_hypercube_algorithms_have_the_hypercube_to_themselves(collective: str, p: int) -> None:
    found = load(schedules(collective, "hypercube", p), "hypercube")
    assert (found.congestion, found.hops) == (1, 1)


@pytest.mark.parametrize("p", [2, 16, 64])
def test_the_shift_on_a_hypercube_whose_nodes_the_ranks_are_at(p: int) -> None:
    chosen = [build("shift", "hypercube", Params(p, distance=5 % p), rank) for rank in range(p)]
    moved = [Transfer(one.round, gray(one.source), gray(one.dest), one.slots) for one in messages(chosen)]
    found = traffic(moved, route_on("hypercube", p), [1] * chosen[0].nslots)
    assert (found.congestion, found.hops) == (1, 1)


@pytest.mark.parametrize("collective", ["allgather", "allreduce", "alltoall", "scan"])
@pytest.mark.parametrize("p", [8, 16, 64])
def test_hypercube_algorithms_contend_on_a_ring(collective: str, p: int) -> None:
    found = load(schedules(collective, "hypercube", p), "ring")
    assert (found.congestion, found.hops) == (p // 2, p // 2)


@pytest.mark.parametrize("shape", [(4, 8, 1, 2), (8, 8, 1, 1), (4, 4, 2, 2)])
def test_fractional_trees_made_for_a_mesh_have_it_to_themselves(shape: tuple[int, int, int, int]) -> None:
    mesh = Mesh(*shape)
    made = schedules_of(mesh_tree(mesh), run=mesh.run, nblocks=4 * mesh.run)
    assert load(made, f"mesh:{mesh.rows}x{mesh.columns}").congestion == 1
    assert load(schedules("bcast", "circulant", 64, 16), "mesh:8x8").congestion > 1


@pytest.mark.parametrize("tree", [crossbar.one_group, crossbar.two_groups], ids=lambda tree: tree.__name__)
def test_fractional_trees_made_for_a_crossbar_need_two_channels(tree: object) -> None:
    assert callable(tree)
    made = schedules_of(tree(6, 5, 2), run=2, nblocks=9)
    assert load(made, "crossbar:6x5").congestion <= 2
    assert load(schedules("bcast", "circulant", 30, 9), "crossbar:6x5").congestion > 2


@pytest.mark.parametrize(
    ("network", "p", "words"),
    [
        ("star", 4, "there is no network 'star'; known are full, ring, mesh:AxB, hypercube, crossbar:AxB"),
        ("mesh", 4, "there is no network 'mesh'"),
        ("mesh:2x", 4, "there is no network 'mesh:2x'"),
        ("mesh:3x5", 16, "mesh:3x5 has 15 ranks, not 16; use mesh:4x4, or 15 ranks"),
        ("crossbar:0x4", 7, "crossbar:0x4 has 0 ranks, not 7; use crossbar:1x7$"),
        ("hypercube", 12, "a hypercube has a power of two ranks, not 12; use 8 or 16"),
    ],
)
def test_networks_that_cannot_be(network: str, p: int, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        route_on(network, p)
