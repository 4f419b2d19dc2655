"""Allreduces in rank order: for operators that do not commute, live, and with the same bits on all ranks."""

from __future__ import annotations

import functools
import gc
import operator
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from ringcast import SUM, ArgumentError, Communicator, Op
from ringcast.algorithms import ALGORITHMS, CallFacts, Params, build
from ringcast.algorithms.cost import choose
from ringcast.algorithms.load import Call
from ringcast.algorithms.network import NETWORKS
from ringcast.analysis.simulate import simulate
from ringcast.schedules.dualroot import dual_root, dual_root_rounds
from support.cases import crossed, each
from support.jobs import KINDS, Job, Jobs

Array = np.ndarray[Any, Any]
LIVE = [*(("threads", p) for p in (1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 33, 65)), *crossed(KINDS[1:], (2, 3, 5, 8))]

JOIN = Op(operator.add, name="join", exact_always=True)
# A complex number a + bi stands for the function x -> ax + b, and the operator for doing one after the other.
COMPOSE = Op(
    lambda f, g: f.real * g.real + 1j * (f.imag * g.real + g.imag), commutative=False, elementwise=True, name="compose"
)
PRODUCT = Op(np.matmul, name="product", exact_always=True)


@pytest.fixture(scope="module")
def jobs() -> Iterator[Jobs]:
    made = Jobs()
    yield made
    made.close()


def check(job: Job, arrays: list[Array], op: Op, algorithm: str | None, **how: Any) -> None:
    want = functools.reduce(op.fn, arrays)
    for result in job.ask(lambda c: c.allreduce(arrays[c.rank], op, algorithm=algorithm, **how)):
        assert (result.dtype, result.shape) == (want.dtype, want.shape)
        assert np.array_equal(result, want)


def functions(p: int, size: int) -> list[Array]:
    """Functions whose compositions are all whole numbers that a float can hold."""
    rngs = [np.random.default_rng(r) for r in range(p)]
    return [rng.choice((-1, 1), size) + 1j * rng.integers(-9, 10, size) for rng in rngs]


# The ordered census.


@pytest.mark.parametrize(("kind", "p"), LIVE)
def test_texts_are_joined_in_q_rounds(jobs: Jobs, kind: str, p: int) -> None:
    words = [f"{r}," * (r % 3) for r in range(p)]
    for algorithm in "ordered_census", None:
        got = jobs(kind, p).ask(lambda c, a=algorithm: c.allreduce(words[c.rank], JOIN, algorithm=a))
        assert got == ["".join(words)] * p


@pytest.mark.parametrize(("kind", "p"), LIVE)
def test_matrices_of_whole_numbers_are_multiplied_in_q_rounds(jobs: Jobs, kind: str, p: int) -> None:
    for count in 0, 1, 3000:
        arrays = [np.random.default_rng(r).integers(0, 5, (count, 2, 2)) for r in range(p)]
        check(jobs(kind, p), arrays, PRODUCT, "ordered_census")


def test_the_ordered_census_is_refused_unless_the_operator_is_exact(jobs: Jobs) -> None:
    def work(c: Communicator) -> int:
        for value, op in (np.ones(3), SUM), ("a", operator.add), (np.ones(3, int), np.matmul), (1, SUM):
            with pytest.raises(ArgumentError, match="'ordered_census': it needs an operator that is exact"):
                c.allreduce(value, op, algorithm="ordered_census")
        assert c.explain("allreduce", "a", op=JOIN).chosen.algorithm == "ordered_census"
        assert c.explain("allreduce", "a", op=operator.add).chosen.algorithm == "doubling"
        return int(c.allreduce(1))

    assert jobs("threads", 5).ask(work) == [5] * 5


def test_no_message_of_the_ordered_census_is_larger_than_declared() -> None:
    entry = ALGORITHMS["allreduce"]["ordered_census"]
    for p in range(2, 200):
        schedules = [build("allreduce", "ordered_census", Params(p), r) for r in range(p)]
        rounds = (p - 1).bit_length()
        largest = [max(len(s[i].send) for s in schedules) for i in range(rounds)]
        assert sum(largest) == entry.load(Call(Params(p), 1, rounds)).volume
        assert max(largest) <= 2


# Two trees with a pipeline; halving and doubling.


@pytest.mark.parametrize(("kind", "p"), LIVE)
def test_functions_are_composed_element_by_element_in_rank_order(jobs: Jobs, kind: str, p: int) -> None:
    for size, nblocks in (0, 1), (1, 1), (1, 3), (7, 2), (100, 40), (20_000 if p < 65 else 2_000, 5):
        arrays = functions(p, size)
        check(jobs(kind, p), arrays, COMPOSE, "dual_root", nblocks=nblocks)
        if nblocks == 1 or size > 100:
            check(jobs(kind, p), arrays, COMPOSE, "rabenseifner")
            check(jobs(kind, p), arrays, COMPOSE, None)


@pytest.mark.parametrize("p", [*range(1, 14), 33])
@pytest.mark.parametrize("algorithm", ["dual_root", "rabenseifner"])
def test_all_ranks_have_the_same_bits(jobs: Jobs, p: int, algorithm: str) -> None:
    arrays = [np.random.default_rng(r).standard_normal(999) * 10.0 ** np.arange(-12, 15)[r % 27] for r in range(p)]
    hypot = Op(np.hypot, elementwise=True)
    for op in SUM, hypot:
        results = jobs("threads", p).ask(lambda c, op=op: c.allreduce(arrays[c.rank], op, algorithm=algorithm))
        assert len({result.tobytes() for result in results}) == 1
        assert np.allclose(results[0], functools.reduce(op.fn, arrays))


@each("p", [*range(2, 70), 129, 130, 257])
def test_a_rank_of_the_two_trees_has_a_parent_and_at_most_two_children(p: int) -> None:
    schedules = [dual_root(p, r, nblocks=2) for r in range(p)]
    assert {len(s) for s in schedules} == {dual_root_rounds(p, 2)}
    for rank, schedule in enumerate(schedules):
        peers = {peer for step in schedule for peer in (step.send_to, step.recv_from)} - {None}
        assert len(peers) <= 3
        half = (p + 1) // 2
        across = {peer for peer in peers if peer is not None and (peer < half) != (rank < half)}
        assert across == ({half - 1, p - 1} - {rank} if rank in (half - 1, p - 1) else set())
    report = simulate(schedules)
    assert report.rounds == dual_root_rounds(p, 2)
    assert max(report.sent) <= 3 * 2


@pytest.mark.parametrize("p", [3, 5, 8, 30, 33])
def test_the_two_trees_take_three_rounds_for_each_further_block(p: int) -> None:
    each = dual_root_rounds(p, 2) - dual_root_rounds(p, 1)
    assert each == (3 if p > 4 else 2)
    assert dual_root_rounds(p, 50) == dual_root_rounds(p, 1) + 49 * each
    assert dual_root_rounds(p, 1) <= 4 * (p - 1).bit_length()


def test_they_are_never_chosen_where_the_operator_commutes() -> None:
    """Reduce-scatter and allgather move less, and the census has fewer rounds."""
    for network in NETWORKS.values():
        for p in range(2, 41):
            for nbytes in (8 * 4**k for k in range(14)):
                for exact in False, True:
                    chosen = choose("allreduce", CallFacts(size=p, nbytes=nbytes, itemsize=8, exact=exact), network)[0]
                    assert chosen not in ("ordered_census", "dual_root", "rabenseifner"), (p, nbytes)


def test_an_operator_that_is_made_for_a_call_is_not_kept() -> None:
    """Its function may hold arrays of the program."""
    job = Job("threads", 2)

    def work(comm: Communicator) -> int:
        made = []
        for scale in range(20):

            def add(left: Any, right: Any, scale: int = scale) -> Any:
                return left + right + 0 * scale

            made.append(weakref.ref(add))
            comm.allreduce(np.ones(3), add)
            comm.reduce(np.ones(3), Op(add, commutative=True))
            del add
        gc.collect()
        return sum(one() is not None for one in made)

    assert job.ask(work) == [0, 0]
    job.close()
