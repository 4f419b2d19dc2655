"""The algorithms around a ring; their schedules are in `ringcast.schedules.ring`."""

from __future__ import annotations

from dataclasses import replace

from ringcast.algorithms.algorithm import Algorithm
from ringcast.algorithms.load import Call, Load, combining, even, twice
from ringcast.schedule import reverse
from ringcast.schedules import ring

_RING = "Träff et al., A pipelined algorithm for large, irregular all-gather problems, 2010"
_FOLKLORE = "folklore; Grama et al., Introduction to Parallel Computing, 2003"


def _ring(call: Call) -> Load:
    return even(call.rounds, max(call.parts))


def _pipelined_ring(call: Call) -> Load:
    """A link carries all parts but one; in the rounds beyond these it waits for a first block to come along."""
    blocks = ring.blocks_of(call.params.contributions, call.params.nblocks)
    message = -(-max(call.parts) // max(*blocks, 1))
    load = even(call.rounds, message)
    pauses = call.rounds - (sum(blocks) - min(blocks))
    return replace(load, link=min(load.volume, call.nbytes - min(call.parts) + pauses * message))


ALGORITHMS = (
    Algorithm(
        "pipelined_ring",
        "allreduce",
        lambda p, rank: ring.allreduce(p.size, rank, nblocks=p.nblocks),
        lambda p: 2 * (p.size - 1) * p.nblocks,
        f"{_RING}: backwards, then forwards",
        commutative=True,
        elementwise=True,
        blocks=True,
        load=twice(_pipelined_ring),
    ),
    Algorithm(
        "ring",
        "allgather",
        lambda p, rank: ring.ring(p.size, rank),
        lambda p: p.size - 1,
        _FOLKLORE,
        equal_counts=True,
        load=_ring,
    ),
    Algorithm(
        "pipelined_ring",
        "allgather",
        lambda p, rank: ring.pipelined_ring(p.size, rank, nblocks=p.nblocks, counts=p.contributions),
        lambda p: ring.ring_rounds(p.contributions, p.nblocks),
        _RING,
        equal_counts=True,
        blocks=True,
        load=_pipelined_ring,
    ),
    Algorithm(
        "ring",
        "allgatherv",
        lambda p, rank: ring.ring(p.size, rank),
        lambda p: p.size - 1,
        _FOLKLORE,
        load=_ring,
    ),
    Algorithm(
        "pipelined_ring",
        "allgatherv",
        lambda p, rank: ring.pipelined_ring(p.size, rank, nblocks=p.nblocks, counts=p.contributions),
        lambda p: ring.ring_rounds(p.contributions, p.nblocks),
        _RING,
        blocks=True,
        load=_pipelined_ring,
    ),
    Algorithm(
        "pipelined_ring",
        "reduce_scatter",
        lambda p, rank: reverse(ring.pipelined_ring(p.size, rank, nblocks=p.nblocks, counts=p.contributions)),
        lambda p: ring.ring_rounds(p.contributions, p.nblocks),
        f"{_RING}: backwards",
        commutative=True,
        elementwise=True,
        blocks=True,
        load=combining(_pipelined_ring),
    ),
)
