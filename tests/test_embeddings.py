"""Fractional trees on sparse networks: they broadcast, and no channel or link has two messages in one round."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest

from ringcast import spec
from ringcast.schedule import Schedule
from ringcast.schedules import crossbar
from ringcast.schedules.grouptree import Group, edges_of, groups_of, schedules_of
from ringcast.schedules.mesh import Mesh, h_tree, mesh_tree
from ringcast.simulate import simulate
from ringcast.verify import verify

CROSSBARS = [(a, b, r) for a in (1, 2, 3, 4, 7, 8) for b in (2, 3, 4, 6, 8) for r in (1, 2, 3) if a * b < 60]
MESHES = [
    (1, 2, 1, 2),
    (2, 2, 1, 1),
    (4, 4, 1, 1),
    (8, 8, 1, 1),
    (2, 4, 1, 2),
    (4, 8, 1, 2),
    (8, 16, 1, 2),
    (4, 4, 2, 2),
    (16, 32, 1, 2),
    (6, 6, 3, 3),
    (4, 12, 1, 3),
    (4, 16, 1, 4),
    (8, 4, 2, 1),
]


def broadcasts(root: Group, run: int, nblocks: int) -> Sequence[Schedule]:
    """Return the schedules of the tree, which are verified and take as many rounds as they have steps, or fewer."""
    schedules = schedules_of(root, run=run, nblocks=nblocks)
    verify(schedules, spec.promise("bcast", len(schedules), (nblocks,), root=root.head))
    assert simulate(schedules).rounds <= len(schedules[0])
    return schedules


def most_in_one_round(schedules: Sequence[Schedule], route: Mapping[tuple[int, int], Iterable[Any]]) -> int:
    """Return the most messages that any channel or link has in any round."""
    most = 0
    for i in range(len(schedules[0])):
        edges = [(s.rank, to) for s in schedules if (to := s[i].send_to) is not None]
        load = Counter(link for edge in edges for link in route[edge])
        most = max([most, *load.values()])
    return most


@pytest.mark.parametrize(("a", "b", "r"), [(a, b, r) for a, b, r in CROSSBARS if b >= r])
def test_crossbar_with_one_group_of_each_module_in_the_global_tree(a: int, b: int, r: int) -> None:
    root = crossbar.one_group(a, b, r)
    check_crossbar(root, a, b, r, ins=2)


@pytest.mark.parametrize(("a", "b", "r"), [(a, b, r) for a, b, r in CROSSBARS if b >= 2 * r])
def test_crossbar_with_two_groups_of_each_module_needs_one_channel_less(a: int, b: int, r: int) -> None:
    root = crossbar.two_groups(a, b, r)
    check_crossbar(root, a, b, r, ins=1)


def check_crossbar(root: Group, a: int, b: int, r: int, ins: int) -> None:
    channels = crossbar.channels(root, b)
    assert set(channels) == set(edges_of(root))
    for (source, target), taken in channels.items():
        assert [c.module for c in taken] == ([] if source // b == target // b else [source // b, target // b])
    numbers = Counter((c.module, c.out) for c in {c for taken in channels.values() for c in taken})
    assert all(number <= (2 if out else ins) for (_, out), number in numbers.items())
    for n in (1, 2 * r + 1, 3 * r):
        schedules = broadcasts(root, r, n)
        assert len(schedules) == a * b
        assert most_in_one_round(schedules, channels) <= 1


def test_crossbar_as_large_as_in_the_paper() -> None:
    root = crossbar.one_group(256, 64, 8)
    assert sorted(rank for group in groups_of(root) for rank in group.members) == list(range(16384))
    assert {c.number for taken in crossbar.channels(root, 64).values() for c in taken} <= {0, 1}


def test_a_module_without_room_for_a_group() -> None:
    with pytest.raises(ValueError, match="a module of 3 ranks has no room for 2 groups of 2; use a smaller run"):
        crossbar.two_groups(4, 3, 2)
    with pytest.raises(ValueError, match="modules and run must be positive, not 0 and 2"):
        crossbar.one_group(0, 3, 2)


@pytest.mark.parametrize("shape", MESHES)
def test_mesh_has_congestion_one(shape: tuple[int, int, int, int]) -> None:
    mesh = Mesh(*shape)
    root = mesh_tree(mesh)
    routes = {edge: mesh.route(*edge) for edge in edges_of(root)}
    for n in (1, mesh.run + 1, 4 * mesh.run):
        schedules = broadcasts(root, mesh.run, n)
        assert len(schedules) == mesh.rows * mesh.columns
        assert most_in_one_round(schedules, routes) <= 1


def test_routes_go_along_the_row_then_along_the_column() -> None:
    mesh = Mesh(8, 16, 1, 2)
    for source in range(128):
        for target in range(0, 128, 7):
            route = mesh.route(source, target)
            ranks = [source, *(b for _, b in route)]
            assert ranks[-1] == target
            assert [a for a, _ in route] == ranks[:-1]
            steps = [abs(b - a) for a, b in route]
            assert steps == sorted(steps)
            assert set(steps) <= {1, 16}


@pytest.mark.parametrize("side", [1, 2, 4, 8, 16])
def test_h_tree_has_a_leaf_in_each_square(side: int) -> None:
    edges = h_tree(side)
    spots = {spot for edge in edges for spot in edge} or {(0, 0)}
    leaves = spots - {parent for parent, _ in edges}
    assert len({(y // 2, x // 2) for y, x in leaves}) == len(leaves) == ((side + 1) // 2) ** 2
    assert len(spots) == 2 * len(leaves) - 1 == len(edges) + 1


def test_a_mesh_that_cannot_be_cut() -> None:
    with pytest.raises(ValueError, match="6 x 12 ranks in groups of 1 x 2: there must be as many groups in a row"):
        Mesh(6, 12, 1, 2)
    with pytest.raises(ValueError, match="4 x 8 ranks in groups of 1 x 4"):
        Mesh(4, 8, 1, 4)
    with pytest.raises(ValueError, match="8 x 24 ranks in groups of 1 x 3: found no embedding with congestion one"):
        mesh_tree(Mesh(8, 24, 1, 3))
