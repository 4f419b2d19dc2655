"""Describe the algorithms for whole values in rank order; their schedules are in `ringcast.schedules.doubling`."""

from __future__ import annotations

from ringcast.algorithms.algorithm import Algorithm, log_rounds
from ringcast.algorithms.load import values
from ringcast.algorithms.papers import GRAMA, RABENSEIFNER
from ringcast.schedules import doubling

TESTED = "tests/schedules/test_doubling.py"
ALGORITHMS = (
    Algorithm(
        name="binomial",
        collective="reduce",
        build=lambda p, rank: doubling.ordered_reduce(p.size, rank, root=p.root),
        rounds=log_rounds,
        load=values,
        paper=GRAMA,
        place="section 4.1, in rank order",
        rounds_formula="q",
        volume_formula="q*m",
    ),
    Algorithm(
        name="doubling",
        collective="allreduce",
        build=lambda p, rank: doubling.doubling(p.size, rank),
        rounds=lambda p: doubling.doubling_rounds(p.size),
        load=values,
        paper=RABENSEIFNER,
        place="folding, then recursive doubling: of 2^d ranks the all-reduce of Grama et al., section 4.3",
        rounds_formula="d + 2*(p > 2**d)",
        volume_formula="(d + 2*(p > 2**d))*m",
    ),
    Algorithm(
        name="whole",
        collective="reduce_scatter",
        build=lambda p, rank: doubling.doubling(p.size, rank),
        rounds=lambda p: doubling.doubling_rounds(p.size),
        load=values,
        paper=RABENSEIFNER,
        place="its allreduce",
        rounds_formula="d + 2*(p > 2**d)",
        volume_formula="(d + 2*(p > 2**d))*m",
        whole=True,
    ),
)
