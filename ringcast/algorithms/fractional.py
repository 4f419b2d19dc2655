"""Describe the trees of Sanders and Sibeyn; their schedules are in `ringcast.schedules.fractional`.

depth(p, r) = the last round in which a rank gets its first block; run(p, n) = the chosen length of chains.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from ringcast.algorithms.algorithm import Algorithm, one_at_a_time, reduction
from ringcast.algorithms.load import Call, Load, even
from ringcast.algorithms.papers import SANDERS
from ringcast.algorithms.params import Params
from ringcast.schedules import fractional
from ringcast.schedules.placement import chain
from ringcast.schedules.schedule import Schedule, relabel

_PIPELINE = "n+p-2"
_BINARY = "n if p == 2 else depth(p, 1)+2*n-1"
_FRACTIONAL = "depth(p, run(p, n))+n+-(-n//run(p, n))-1"


def _linear(p: Params) -> int:
    return p.nblocks + p.size - 2 if p.size > 1 else 0


def _binary(p: Params) -> int:
    return fractional.tree_rounds(p.size, 1, p.nblocks)


def _fractional(p: Params) -> int:
    return fractional.tree_rounds(p.size, fractional.run_for(p.size, p.nblocks), p.nblocks)


@lru_cache(maxsize=64)
def with_run(entry: Algorithm, run: int) -> Algorithm:
    """Return the fractional tree `entry` with chains of `run` ranks, instead of a chosen length."""
    schedule = fractional.fractional_tree if entry.collective == "bcast" else fractional.fractional_reduce
    rounds = f"n if p == 2 else depth(p, {run})+n+-(-n//{run})-1"
    return replace(
        entry,
        name=f"{entry.name}_{run}",
        build=lambda p, rank: schedule(p.size, rank, nblocks=p.nblocks, run=run, root=p.root),
        rounds=lambda p: fractional.tree_rounds(p.size, run, p.nblocks),
        rounds_formula=rounds,
        volume_formula=f"({rounds})*m/n",
    )


def _in_a_row(p: Params, rank: int) -> Schedule:
    """Return the linear pipeline, which passes the ranks of a host one after the other."""
    if not p.hosts:
        return fractional.linear_pipeline(p.size, rank, nblocks=p.nblocks, root=p.root)
    order = chain(p.hosts, p.root)
    return relabel(fractional.linear_pipeline(p.size, order.index(rank), nblocks=p.nblocks), order, p.size)


def _pipeline(call: Call) -> Load:
    return even(call.rounds, call.block)


TESTED = "tests/schedules/test_fractional.py"
_TREES = (
    Algorithm(
        name="linear_pipeline",
        collective="bcast",
        build=_in_a_row,
        rounds=_linear,
        load=_pipeline,
        paper=SANDERS,
        place="section 2",
        rounds_formula=_PIPELINE,
        volume_formula=f"({_PIPELINE})*m/n",
        blocks=True,
        leaving=one_at_a_time,
    ),
    Algorithm(
        name="binary_tree",
        collective="bcast",
        build=lambda p, rank: fractional.binary_tree(p.size, rank, nblocks=p.nblocks, root=p.root),
        rounds=_binary,
        load=_pipeline,
        paper=SANDERS,
        place="section 2",
        rounds_formula=_BINARY,
        volume_formula=f"({_BINARY})*m/n",
        blocks=True,
    ),
    Algorithm(
        name="fractional_tree",
        collective="bcast",
        build=lambda p, rank: fractional.fractional_tree(
            p.size, rank, nblocks=p.nblocks, run=fractional.run_for(p.size, p.nblocks), root=p.root
        ),
        rounds=_fractional,
        load=_pipeline,
        paper=SANDERS,
        place="section 3",
        rounds_formula=_FRACTIONAL,
        volume_formula=f"({_FRACTIONAL})*m/n",
        blocks=True,
    ),
)
ALGORITHMS = (*_TREES, *map(reduction, _TREES))
