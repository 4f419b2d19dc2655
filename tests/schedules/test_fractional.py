"""Fractional trees: shape, rounds and volume, against the paper and against recurrences written down anew."""

from functools import cache
from math import ceil
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ringcast
from ringcast.algorithms import ALGORITHMS, CallFacts, Params, build, find
from ringcast.algorithms.cost import choose
from ringcast.algorithms.load import Call
from ringcast.algorithms.network import NETWORKS
from ringcast.analysis import postconditions
from ringcast.analysis.simulate import Report, simulate
from ringcast.analysis.verify import verify
from ringcast.schedules import circulant, fractional
from ringcast.schedules.grouptree import TreeGroup, edges_of, schedules_of, tree_of
from ringcast.schedules.schedule import Schedule
from support.cases import each
from support.places import golden_collectives

GOLDEN = golden_collectives()["fractional_tree"]
RUNS = (1, 2, 3, 4, 5, 8)
SIZES = (1, 2, 3, 4, 5, 7, 8, 12, 13, 20, 33, 65)
VECTORS = [  # p, r, n, rounds
    (12, 1, 1, 4),
    (12, 1, 6, 14),
    (20, 1, 6, 15),
    (10, 2, 4, 9),
    (13, 2, 12, 22),
    (17, 3, 18, 30),
    (20, 4, 24, 38),
]


def trees(p: int, r: int, n: int, root: int = 0) -> list[Schedule]:
    return [fractional.fractional_tree(p, rank, nblocks=n, run=r, root=root) for rank in range(p)]


def checked(schedules: list[Schedule], root: int = 0, collective: str = "bcast") -> Report:
    """Verify the schedules, and return what they cost."""
    verify(schedules, postconditions.postcondition(collective, len(schedules), schedules[0].parts, root=root))
    return simulate(schedules)


@cache
def reachable(i: int, r: int) -> int:
    """The paper's recurrence: ranks reached within i rounds."""
    return i + 1 if i <= r else r + reachable(i - r, r) + reachable(i - r - 1, r)


@pytest.mark.parametrize(("p", "r", "n", "rounds"), VECTORS)
def test_known_rounds(p: int, r: int, n: int, rounds: int) -> None:
    assert checked(trees(p, r, n)).rounds == fractional.tree_rounds(p, r, n) == rounds


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda case: f"{case['P']}-{case['r']}")
def test_golden_places_and_rounds(golden: dict[str, Any]) -> None:
    p, r = golden["P"], golden["r"]
    assert fractional.depth(p, r) == golden["d"]
    places = [fractional.place_of(p, r, v) for v in range(p)]
    for name in "down", "right", "index":
        assert [getattr(place, name) for place in places] == golden[name], name
    for n, rounds in golden["steps"].items():
        assert fractional.tree_rounds(p, r, int(n)) == rounds, f"{n=}"


@pytest.mark.parametrize("r", RUNS)
@each("p", SIZES)
def test_rounds_volume_and_bytes_of_each_rank(p: int, r: int) -> None:
    for n in (1, 2, 3, 4, 5, 7, 12):
        root = p // 2
        report = checked(trees(p, r, n, root), root)
        assert report.rounds == fractional.tree_rounds(p, r, n) == len(trees(p, r, n)[0]), f"{n=}"
        assert report.received == tuple(0 if rank == root else n for rank in range(p))
        assert max(report.sent) <= n + ceil(n / r)  # a rank sends all blocks down, and its share to the right


@pytest.mark.long
@pytest.mark.parametrize("r", [1, 2, 3, 5])
@each("p", range(1, 71))
@pytest.mark.timeout(600)
def test_rounds_of_all_sizes(p: int, r: int) -> None:
    for n in (1, r, 2 * r + 1, 3 * r):
        assert checked(trees(p, r, n, p - 1), p - 1).rounds == fractional.tree_rounds(p, r, n), f"{n=}"


@given(p=st.integers(3, 5000), r=st.integers(1, 40), runs=st.integers(1, 50))
def test_rounds_are_those_of_the_paper_less_one(p: int, r: int, runs: int) -> None:
    d = min(i for i in range(p) if reachable(i, r) >= p) - 1
    assert fractional.depth(p, r) == d
    s = runs * r
    assert fractional.tree_rounds(p, r, s) == d + s * (r + 1) // r - 1


def test_the_binary_tree_is_skewed_as_in_the_paper() -> None:
    assert fractional.reached(20, 1) == (1, 2, 4, 7, 12, 20)  # its text has 18 for 20, against its own recurrence
    assert [reachable(i, 1) for i in range(6)] == [1, 2, 4, 7, 12, 20]
    assert fractional.split(20, 1) == (12, 7)


@pytest.mark.parametrize("n", [1, 2, 5, 8])
@pytest.mark.parametrize("p", SIZES)
def test_the_two_ends(p: int, n: int) -> None:
    root = p - 1
    pipeline = [fractional.linear_pipeline(p, rank, nblocks=n, root=root) for rank in range(p)]
    assert checked(pipeline, root).rounds == (p - 2 + n if p > 1 else 0)
    binary = [fractional.binary_tree(p, rank, nblocks=n, root=root) for rank in range(p)]
    assert checked(binary, root).rounds == fractional.tree_rounds(p, 1, n)


@pytest.mark.parametrize("r", RUNS)
@each("p", SIZES)
def test_reductions_are_broadcasts_backwards(p: int, r: int) -> None:
    for n in (1, 4, 7):
        schedules = [fractional.fractional_reduce(p, rank, nblocks=n, run=r, root=p // 3) for rank in range(p)]
        assert checked(schedules, p // 3, "reduce").rounds == fractional.tree_rounds(p, r, n)


@given(p=st.integers(2, 4000), n=st.integers(1, 10**6))
def test_the_chosen_run_is_nearly_the_best(p: int, n: int) -> None:
    run = fractional.run_for(p, n)
    least = min(fractional.tree_rounds(p, r, n) for r in {1, max(run // 2, 1), run, 2 * run, max(p, n)})
    assert fractional.tree_rounds(p, run, n) <= 1.3 * least + 2


@given(p=st.integers(2, 3000), r=st.integers(1, 20), n=st.integers(1, 1000))
def test_circulant_schedules_take_no_more_rounds(p: int, r: int, n: int) -> None:
    assert len(circulant.bcast(p, 0, nblocks=n)) <= fractional.tree_rounds(p, r, n)


@pytest.mark.parametrize("r", RUNS)
@pytest.mark.parametrize("p", [3, 4, 12, 33, 65])
def test_a_rank_finds_its_place_without_the_tree(p: int, r: int) -> None:
    tree = tree_of(range(p), r)
    assert tree is not None
    assert list(schedules_of(tree, run=r, nblocks=6)) == trees(p, r, 6)


def test_edges_are_those_of_the_schedules() -> None:
    tree = tree_of(range(33), 3)
    assert tree is not None
    schedules = schedules_of(tree, run=3, nblocks=6)
    used = {(s.rank, step.send_to) for s in schedules for step in s if step.send_to is not None}
    assert used == set(edges_of(tree))


def test_a_tree_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="a group has 1 ranks; those with successors must have 2"):
        schedules_of(TreeGroup((0,), TreeGroup((1, 2))), run=2, nblocks=1)
    with pytest.raises(ValueError, match="a group has 3 ranks"):
        schedules_of(TreeGroup((0, 1, 2)), run=2, nblocks=1)
    with pytest.raises(ValueError, match="the groups have 2 ranks, which must be 0 to 1"):
        schedules_of(TreeGroup((0, 2)), run=2, nblocks=1)


@pytest.mark.parametrize("collective", ["bcast", "reduce"])
@pytest.mark.parametrize("p", [1, 2, 3, 13, 33, 65])
def test_a_tree_is_named_with_its_r(p: int, collective: str) -> None:
    for r in (1, 2, 5, 8, 100):
        name = f"fractional_tree_{r}"
        params = Params(p, p // 2, 12)
        schedules = [build(collective, name, params, rank) for rank in range(p)]
        rounds = checked(schedules, p // 2, collective).rounds
        entry = find(collective, name)
        assert rounds == entry.rounds(params) == fractional.tree_rounds(p, r, 12)
        letters = {"p": p, "n": 12, "m": 24, "depth": fractional.depth}
        assert rounds == (eval(entry.rounds_formula, letters) if p > 1 else 0)
        assert entry.load(Call(params, 24, rounds)).volume == 2 * rounds
        assert choose(collective, CallFacts(size=p, nbytes=10**7), NETWORKS["tcp"], algorithm=name)[0] == name


def test_r_and_the_number_of_blocks_make_the_worked_example() -> None:
    rounds = find("bcast", "fractional_tree_8").rounds(Params(1024, nblocks=456))
    assert rounds == 57 + 456 + 57 - 1


@pytest.mark.parametrize("name", ["fractional_tree_0", "fractional_tree_", "fractional_tree_-1", "binary_tree_2"])
def test_what_is_no_name_of_a_tree(name: str) -> None:
    with pytest.raises(ValueError, match=f"there is no algorithm '{name}' for bcast; known are circulant"):
        build("bcast", name, Params(4), 0)
    with pytest.raises(ValueError, match=f"bcast by '{name}': there is no such algorithm; known are circulant"):
        choose("bcast", CallFacts(size=4, nbytes=8), NETWORKS["tcp"], algorithm=name)
    assert "fractional_tree_8" not in ALGORITHMS["bcast"]
    with pytest.raises(ValueError, match="allgather by 'fractional_tree_8': there is no such algorithm"):
        choose("allgather", CallFacts(size=4, nbytes=8), NETWORKS["tcp"], algorithm="fractional_tree_8")


@pytest.mark.parametrize("nbytes", [0, 1, 100_000])
def test_a_tree_with_its_r_runs_and_is_explained(nbytes: int) -> None:
    def program(comm: ringcast.Communicator) -> None:
        mine = np.arange(nbytes, dtype=np.uint8) if comm.rank == 3 else None
        got = comm.bcast(mine, root=3, algorithm="fractional_tree_2", nblocks=5)
        np.testing.assert_array_equal(got, np.arange(nbytes, dtype=np.uint8))
        total = comm.reduce(np.ones(nbytes, dtype=np.int64), root=2, algorithm="fractional_tree_3")
        assert comm.rank != 2 or (total == comm.size).all()
        told = comm.explain("bcast", nbytes=nbytes, dtype="uint8", algorithm="fractional_tree_2")
        assert told.chosen.algorithm == "fractional_tree_2"

    ringcast.run(program, 5, backend="threads")
