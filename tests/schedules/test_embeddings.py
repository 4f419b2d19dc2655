"""Fractional trees on sparse networks: they broadcast, and no channel or link has two messages in one round."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise, product
from typing import Any

import pytest

from ringcast.analysis import postconditions
from ringcast.analysis.simulate import simulate
from ringcast.analysis.verify import verify
from ringcast.schedules import crossbar
from ringcast.schedules.grouptree import TreeGroup, edges_of, groups_of, schedules_of
from ringcast.schedules.mesh import Mesh, h_tree, mesh_tree
from ringcast.schedules.schedule import Schedule
from support.cases import each

CROSSBARS = [(a, b, r) for a in (1, 2, 3, 4, 7, 8) for b in (2, 3, 4, 6, 8) for r in (1, 2, 3) if a * b < 60]
GROUPS = [*product(range(1, 5), repeat=2), (5, 5), (6, 6), (2, 7), (7, 2), (1, 9), (9, 1)]
SIDES = (1, 2, 4)
LARGE = [*product((8,), GROUPS), *product((16,), [(1, 1), (2, 3), (5, 5), (1, 9)]), *product((32,), [(3, 3), (1, 9)])]


def broadcasts(root: TreeGroup, run: int, nblocks: int) -> Sequence[Schedule]:
    """Return the schedules of the tree, which are verified and take as many rounds as they have steps, or fewer."""
    schedules = schedules_of(root, run=run, nblocks=nblocks)
    verify(schedules, postconditions.postcondition("bcast", len(schedules), (nblocks,), root=root.head))
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


@each("a, b, r", [(a, b, r) for a, b, r in CROSSBARS if b >= r])
def test_crossbar_with_one_group_of_each_module_in_the_global_tree(a: int, b: int, r: int) -> None:
    root = crossbar.one_group(a, b, r)
    check_crossbar(root, a, b, r, ins=2)


@each("a, b, r", [(a, b, r) for a, b, r in CROSSBARS if b >= 2 * r])
def test_crossbar_with_two_groups_of_each_module_needs_one_channel_less(a: int, b: int, r: int) -> None:
    root = crossbar.two_groups(a, b, r)
    check_crossbar(root, a, b, r, ins=1)


def check_crossbar(root: TreeGroup, a: int, b: int, r: int, ins: int) -> None:
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


def mesh_of(side: int, group: tuple[int, int]) -> Mesh:
    return Mesh(side * group[0], side * group[1], *group)


@pytest.mark.parametrize("group", [group for group in GROUPS if max(group) <= 4])
@pytest.mark.parametrize("side", [1, 2, 4])
def test_mesh_has_congestion_one(side: int, group: tuple[int, int]) -> None:
    mesh = mesh_of(side, group)
    root = mesh_tree(mesh)
    routes = {edge: mesh.route(*edge) for edge in edges_of(root)}
    schedules = broadcasts(root, mesh.run, 2 * mesh.run + 1)
    assert len(schedules) == mesh.rows * mesh.columns
    assert most_in_one_round(schedules, routes) <= 1


@pytest.mark.parametrize("n", [1, 3, 8])
def test_the_mesh_of_figure_4(n: int) -> None:
    mesh = Mesh(8, 16, 1, 2)
    root = mesh_tree(mesh)
    schedules = broadcasts(root, 2, n)
    assert most_in_one_round(schedules, {edge: mesh.route(*edge) for edge in edges_of(root)}) <= 1


@pytest.mark.parametrize(
    ("side", "group"),
    [*product(SIDES, GROUPS), *(pytest.param(*shape, marks=pytest.mark.long) for shape in LARGE)],
)
def test_no_link_is_used_twice_in_the_rounds_after_which_all_repeats(side: int, group: tuple[int, int]) -> None:
    mesh = mesh_of(side, group)
    root = mesh_tree(mesh)
    members = [rank for group in groups_of(root) for rank in group.members]
    assert sorted(members) == list(range(mesh.rows * mesh.columns))
    used: defaultdict[object, int] = defaultdict(int)  # by link the rounds, as bits
    for a, b, rounds in uses(root, mesh.run):
        for link in mesh.route(a, b):
            assert not used[link] & rounds
            used[link] |= rounds


def uses(root: TreeGroup, r: int) -> Iterator[tuple[int, int, int]]:
    """Return who sends to whom in which rounds modulo r+1, as bits, if there are many blocks: as section 3 tells it."""

    def bits(rounds: Iterable[int]) -> int:
        return sum(1 << i for i in {i % (r + 1) for i in rounds})

    waiting = [(root, 0)]  # with the round in which the head passes on its first block
    while waiting:
        group, first = waiting.pop()
        for i, (a, b) in enumerate(pairwise(group.members)):
            yield a, b, bits(range(first + i, first + i + r))
        if group.down is not None:
            yield group.members[-1], group.down.head, bits(range(first + r - 1, first + 2 * r - 1))
            waiting.append((group.down, first + r))
        if group.right is not None:
            yield from ((a, group.right.head, bits([first + r + i])) for i, a in enumerate(group.members))
            waiting.append((group.right, first + r + 1))


@pytest.mark.parametrize("group", [(1, 1), (1, 2), (3, 3), (2, 4)])
def test_depth_grows_with_the_logarithm_of_the_side(group: tuple[int, int]) -> None:
    for g, side in enumerate((1, 2, 4, 8)):
        mesh = mesh_of(side, group)
        rounds = len(schedules_of(mesh_tree(mesh), run=mesh.run, nblocks=mesh.run)[0])
        assert rounds <= (4 * g + 3) * (mesh.run + 1)


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


@pytest.mark.parametrize("group", [(1, 1), (3, 4), (4, 3)])
@pytest.mark.parametrize("side", [1, 2, 4, 8, 16, 32, 64])
def test_h_tree_has_a_leaf_in_each_square(side: int, group: tuple[int, int]) -> None:
    nodes = h_tree(mesh_of(side, group)).nodes
    leaves = nodes.keys() - {node.parent for node in nodes.values()}
    assert len({(y // 4, x // 4) for y, x in leaves}) == len(leaves) == ((side + 3) // 4) ** 2
    successors = Counter(node.parent for node in nodes.values() if node.parent is not None)
    two = sum(number == 2 for number in successors.values())
    assert two == len(leaves) - 1
    assert len(nodes) - two - len(leaves) == (len(leaves) - 1) // 3  # helpers: one for each that sends to both sides


def test_a_mesh_that_cannot_be_cut() -> None:
    with pytest.raises(ValueError, match="6 x 12 ranks in groups of 1 x 2: there must be as many groups in a row"):
        Mesh(6, 12, 1, 2)
    with pytest.raises(ValueError, match="4 x 8 ranks in groups of 1 x 4"):
        Mesh(4, 8, 1, 4)
