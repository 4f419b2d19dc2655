"""The algorithms for whole values in rank order; their schedules are in `ringcast.schedules.doubling`."""

from __future__ import annotations

from ringcast.algorithms.algorithm import Algorithm, log_rounds
from ringcast.algorithms.load import values
from ringcast.algorithms.papers import GRAMA, RABENSEIFNER
from ringcast.schedules import doubling

TESTED = "tests/schedules/test_doubling.py"
ALGORITHMS = (
    Algorithm(
        "binomial",
        "reduce",
        lambda p, rank: doubling.ordered_reduce(p.size, rank, root=p.root),
        log_rounds,
        values,
        GRAMA,
        "section 4.1, in rank order",
        "q",
        "q*m",
    ),
    Algorithm(
        "doubling",
        "allreduce",
        lambda p, rank: doubling.doubling(p.size, rank),
        lambda p: doubling.doubling_rounds(p.size),
        values,
        RABENSEIFNER,
        "folding, then recursive doubling: of 2^d ranks the all-reduce of Grama et al., section 4.3",
        "d + 2*(p > 2**d)",
        "(d + 2*(p > 2**d))*m",
    ),
    Algorithm(
        "whole",
        "reduce_scatter",
        lambda p, rank: doubling.doubling(p.size, rank),
        lambda p: doubling.doubling_rounds(p.size),
        values,
        RABENSEIFNER,
        "its allreduce",
        "d + 2*(p > 2**d)",
        "(d + 2*(p > 2**d))*m",
        whole=True,
    ),
)
