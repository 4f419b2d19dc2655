"""Describe the allreduces in rank order; schedules: `ringcast.schedules.ordered` and `ringcast.schedules.dualroot`.

p ranks; q = ceil(log2 p); d = floor(log2 p); s = skips(p).
"""

from __future__ import annotations

from itertools import pairwise

from ringcast.algorithms.algorithm import Algorithm, log_rounds
from ringcast.algorithms.load import Call, Load, combining, even, uneven
from ringcast.algorithms.papers import DUAL_ROOT, RABENSEIFNER, RINGCAST
from ringcast.algorithms.params import Params
from ringcast.schedules.blocks import skips
from ringcast.schedules.dualroot import dual_root, dual_root_rounds
from ringcast.schedules.ordered import halving, ordered_census


def _two_sums(call: Call) -> Load:
    """Return the load: a message has two values once any rank has counted beyond the last rank, and has both sums."""
    s = skips(call.params.size)
    numbers = [1 if k == 0 or (k == 1 and s[k + 1] == 3) else 2 for k in range(len(s) - 1)]
    load = uneven([n * call.nbytes for n in numbers], sum(numbers))
    with_own = sum(2 * a == b for a, b in pairwise(s))
    return load._replace(combined=(call.rounds + with_own) * call.nbytes)


def _halves(call: Call) -> Load:
    """Return the load: halves, quarters, ... are combined on the way there, not back; a fold moves the whole value."""
    p, m = call.params.size, call.nbytes
    d = p.bit_length() - 1
    fold = [m] * (p > 1 << d)
    halves = [(m >> k) - (m >> k + 1) for k in range(d)]
    load = uneven(2 * (fold + halves), call.rounds)
    return load._replace(combined=load.volume // 2)


def _pipeline(call: Call) -> Load:
    return even(call.rounds, call.block)


def _halving_rounds(p: Params) -> int:
    d = p.size.bit_length() - 1
    return 2 * d + 2 * (p.size > 1 << d)


_LATENCY = "sum(k.bit_length() for k in ((p+1)//2, (p+3)//2, (p+1)//6, (p+3)//6)) - 2"
_DUAL_ROOT_ROUNDS = f"min((p+1)//2, 3)*(n-1) + {_LATENCY}"

TESTED = "tests/collectives/test_rank_order.py"
ALGORITHMS = (
    Algorithm(
        name="ordered_census",
        collective="allreduce",
        build=lambda p, rank: ordered_census(p.size, rank),
        rounds=log_rounds,
        load=_two_sums,
        paper=RINGCAST,
        place="Algorithm 8 of Träff 2022 with two sums",
        rounds_formula="q",
        volume_formula="(2*q - 1 - (4*p <= 3*2**q))*m",
        exact=True,
    ),
    Algorithm(
        name="dual_root",
        collective="allreduce",
        build=lambda p, rank: dual_root(p.size, rank, nblocks=p.nblocks),
        rounds=lambda p: dual_root_rounds(p.size, p.nblocks),
        load=combining(_pipeline),
        paper=DUAL_ROOT,
        place="with post-order trees",
        rounds_formula=_DUAL_ROOT_ROUNDS,
        volume_formula=f"({_DUAL_ROOT_ROUNDS})*m/n",
        elementwise=True,
        blocks=True,
    ),
    Algorithm(
        name="rabenseifner",
        collective="allreduce",
        build=lambda p, rank: halving(p.size, rank),
        rounds=_halving_rounds,
        load=_halves,
        paper=RABENSEIFNER,
        place="halving and doubling, in rank order",
        rounds_formula="2*d + 2*(p > 2**d)",
        volume_formula="2*(m - m//2**d) + 2*m*(p > 2**d)",
        elementwise=True,
    ),
)
