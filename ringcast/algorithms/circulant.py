"""Describe the algorithms on the circulant graph; their schedules are in `ringcast.schedules.circulant`.

q = ceil(log2 p); s = skips(p); R = the receive schedules.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import accumulate, pairwise

import numpy as np

from ringcast.algorithms.algorithm import Algorithm, log_rounds, regular
from ringcast.algorithms.load import Call, Load, combining, even, in_a_row, twice, uneven, values
from ringcast.algorithms.papers import REDUCE_SCATTER, REVERSAL, TRAEFF_2022
from ringcast.algorithms.params import Params
from ringcast.schedules import circulant
from ringcast.schedules.blocks import schedule_tables, skips
from ringcast.schedules.placement import leaving


def _pipelined(p: Params) -> int:
    """Return the rounds of n blocks on the circulant graph; nothing moves where there is no data at all."""
    return p.nblocks - 1 + log_rounds(p) if p.size > 1 and any(p.contributions) else 0


def _leaving(p: Params) -> int:
    """Return how many messages leave a host in a round, averaged over q rounds: small skips stay within it."""
    q = log_rounds(p)
    return -(-sum(leaving(p.hosts, skip) for skip in skips(p.size)[:q]) // q)


def _pipeline(call: Call) -> Load:
    load = even(call.rounds, call.block)._replace(work=(call.params.size - 1) * call.nbytes)
    return _filling(call, load, call.nbytes)


def _filling(call: Call, load: Load, nbytes: int) -> Load:
    """Return the load of ranks that receive `nbytes`: while the pipeline fills, few ranks of a host have data."""
    return load._replace(link=min(load.link, nbytes)) if call.params.hosts else load


def _pipeline_of_all(call: Call) -> Load:
    """Return the load: in each round a rank receives one block of each contributor whose turn has come.

    Two bounds hold for the bytes of a round: one block of every other contributor, and as many blocks of the largest
    size as it is contributors' turn. They are exact for equal parts and for a single contributor. From round 2q on it
    is every contributor's turn.
    """
    p, n = call.params.size, call.params.nblocks
    if p == 1:
        return uneven([], 0)
    others, largest = (-(-m // n) for m in (call.nbytes - min(call.parts), max(call.parts)))
    turns = _turns(p)
    q = len(turns)
    messages = []
    for i in range(min(call.rounds, 2 * q)):
        k = (i + 1 - n) % q
        messages.append(min(others, turns[k][max(q - (i - k), 0)] * largest))
    first, steady = uneven(messages, 0), even(max(call.rounds - 2 * q, 0), others, 0)
    volume = first.volume + steady.volume
    load = Load(
        volume,
        volume,
        call.rounds * call.contributors,
        first.excess + steady.excess,
        max(first.largest, others if call.rounds > 2 * q else 0),
    )
    return _filling(call, load, call.nbytes - min(call.parts))


@lru_cache(maxsize=64)
def _turns(p: int) -> tuple[tuple[int, ...], ...]:
    """Return for each k and v = 0, ..., 2q the number of ranks but the root whose R[k] is v - q or more."""
    recv = schedule_tables(p)[0][:, 1:]
    q = len(recv)
    each = [np.bincount(row.astype(np.intp) + q, minlength=2 * q + 1) for row in recv]
    return tuple(tuple(count[::-1].cumsum()[::-1].tolist()) for count in each)


def windows(call: Call) -> Load:
    """Return the load: round k moves the parts of s[k+1] - s[k] ranks in a row; the heaviest row is one frame."""
    messages = in_a_row(call, [b - a for a, b in pairwise(skips(call.params.size))])
    return uneven(messages, len(messages))


def _tree(call: Call) -> Load:
    """Return the load: the root moves all parts but its own, with skip s[k] the parts s[k] to s[k+1] - 1 behind it."""
    root = call.params.root
    ends = tuple(accumulate(call.parts[root:] + call.parts[:root], initial=0))
    return uneven([ends[b] - ends[a] for a, b in pairwise(skips(call.params.size))], call.rounds)


TESTED = "tests/schedules/test_circulant.py"

ALLGATHERV = Algorithm(
    name="circulant",
    collective="allgatherv",
    build=lambda p, rank: circulant.allgather(p.size, rank),
    rounds=log_rounds,
    load=windows,
    paper=TRAEFF_2022,
    place="Algorithm 7",
    rounds_formula="q",
    volume_formula="m*(p-1)/p",
)
ALGORITHMS = (
    Algorithm(
        name="circulant",
        collective="bcast",
        build=lambda p, rank: circulant.bcast(p.size, rank, nblocks=p.nblocks, root=p.root),
        rounds=_pipelined,
        load=_pipeline,
        paper=TRAEFF_2022,
        place="Algorithm 6",
        rounds_formula="n-1+q",
        volume_formula="(n-1+q)*m/n",
        blocks=True,
        leaving=_leaving,
    ),
    Algorithm(
        name="circulant",
        collective="reduce",
        build=lambda p, rank: circulant.reduce(p.size, rank, nblocks=p.nblocks, root=p.root),
        rounds=_pipelined,
        load=combining(_pipeline),
        paper=REVERSAL,
        place="Algorithm 6 of 2022 backwards",
        rounds_formula="n-1+q",
        volume_formula="(n-1+q)*m/n",
        commutative=True,
        elementwise=True,
        blocks=True,
        leaving=_leaving,
    ),
    Algorithm(
        name="census",
        collective="allreduce",
        build=lambda p, rank: circulant.census(p.size, rank),
        rounds=log_rounds,
        load=values,
        paper=TRAEFF_2022,
        place="Algorithm 8",
        rounds_formula="q",
        volume_formula="q*m",
        commutative=True,
        exact=True,
    ),
    Algorithm(
        name="circulant",
        collective="allreduce",
        build=lambda p, rank: circulant.allreduce(p.size, rank),
        rounds=lambda p: 2 * log_rounds(p),
        load=twice(windows),
        paper=REDUCE_SCATTER,
        place="Algorithm 2",
        rounds_formula="2*q",
        volume_formula="2*m*(p-1)/p",
        commutative=True,
        elementwise=True,
    ),
    regular(ALLGATHERV),
    ALLGATHERV,
    Algorithm(
        name="circulant_blocks",
        collective="allgatherv",
        build=lambda p, rank: circulant.allgatherv(p.size, rank, nblocks=p.nblocks, counts=p.contributions),
        rounds=_pipelined,
        load=_pipeline_of_all,
        paper=TRAEFF_2022,
        place="Algorithm 9",
        rounds_formula="n-1+q",
        volume_formula="m*(p-1)/p",
        blocks=True,
        leaving=_leaving,
    ),
    Algorithm(
        name="circulant",
        collective="reduce_scatter",
        build=lambda p, rank: circulant.reduce_scatter(p.size, rank),
        rounds=log_rounds,
        load=combining(windows),
        paper=REDUCE_SCATTER,
        place="Algorithm 1",
        rounds_formula="q",
        volume_formula="m*(p-1)/p",
        commutative=True,
        elementwise=True,
    ),
    Algorithm(
        name="circulant_blocks",
        collective="reduce_scatter",
        build=lambda p, rank: circulant.reduce_scatter_v(p.size, rank, nblocks=p.nblocks, counts=p.contributions),
        rounds=_pipelined,
        load=combining(_pipeline_of_all),
        paper=REVERSAL,
        place="Algorithm 9 of 2022 backwards",
        rounds_formula="n-1+q",
        volume_formula="m*(p-1)/p",
        commutative=True,
        elementwise=True,
        blocks=True,
        leaving=_leaving,
    ),
    Algorithm(
        name="circulant",
        collective="scatter",
        build=lambda p, rank: circulant.scatter(p.size, rank, root=p.root),
        rounds=log_rounds,
        load=_tree,
        paper=TRAEFF_2022,
        place="a tree on its graph",
        rounds_formula="q",
        volume_formula="m*(p-1)/p",
    ),
    Algorithm(
        name="circulant",
        collective="gather",
        build=lambda p, rank: circulant.gather(p.size, rank, root=p.root),
        rounds=log_rounds,
        load=_tree,
        paper=TRAEFF_2022,
        place="a tree on its graph, backwards",
        rounds_formula="q",
        volume_formula="m*(p-1)/p",
    ),
    Algorithm(
        name="census",
        collective="barrier",
        build=lambda p, rank: circulant.barrier(p.size, rank),
        rounds=log_rounds,
        load=values,
        paper=TRAEFF_2022,
        place="Algorithm 8",
        rounds_formula="q",
        volume_formula="q*m",
    ),
)
