"""The algorithms for whole values in rank order; their schedules are in `ringcast.schedules.doubling`."""

from __future__ import annotations

from ringcast.algorithms.algorithm import Algorithm, log_rounds
from ringcast.algorithms.load import values
from ringcast.schedules import doubling

_FOLKLORE = "folklore; Grama et al., Introduction to Parallel Computing, 2003"


ALGORITHMS = (
    Algorithm(
        "binomial",
        "reduce",
        lambda p, rank: doubling.ordered_reduce(p.size, rank, root=p.root),
        log_rounds,
        _FOLKLORE,
        load=values,
    ),
    Algorithm(
        "doubling",
        "allreduce",
        lambda p, rank: doubling.doubling(p.size, rank),
        lambda p: doubling.doubling_rounds(p.size),
        _FOLKLORE,
        load=values,
    ),
    Algorithm(
        "whole",
        "reduce_scatter",
        lambda p, rank: doubling.doubling(p.size, rank),
        lambda p: doubling.doubling_rounds(p.size),
        _FOLKLORE,
        whole=True,
        load=values,
    ),
)
