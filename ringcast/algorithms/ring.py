"""The algorithms around a ring; their schedules are in `ringcast.schedules.ring`."""

from __future__ import annotations

from dataclasses import replace

from ringcast.algorithms.algorithm import Algorithm
from ringcast.algorithms.load import Call, Load, combining, even, twice
from ringcast.algorithms.papers import GRAMA, RING_2010
from ringcast.schedule import reverse
from ringcast.schedules import ring


def linear(call: Call) -> Load:
    """Every part goes around; in each round the largest counts."""
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
        twice(_pipelined_ring),
        RING_2010,
        "section 2 backwards, then forwards; n = 1 is the ring of Grama et al., section 4.7",
        "2*(p-1)*n",
        "2*m*(p-1)/p",
        commutative=True,
        elementwise=True,
        blocks=True,
    ),
    Algorithm(
        "ring",
        "allgather",
        lambda p, rank: ring.ring(p.size, rank),
        lambda p: p.size - 1,
        linear,
        GRAMA,
        "section 4.2.1",
        "p-1",
        "m*(p-1)/p",
        equal_counts=True,
    ),
    Algorithm(
        "pipelined_ring",
        "allgather",
        lambda p, rank: ring.pipelined_ring(p.size, rank, nblocks=p.nblocks, counts=p.contributions),
        lambda p: ring.ring_rounds(p.contributions, p.nblocks),
        _pipelined_ring,
        RING_2010,
        "section 2.2",
        "(p-1)*n",
        "m*(p-1)/p",
        equal_counts=True,
        blocks=True,
    ),
    Algorithm(
        "ring",
        "allgatherv",
        lambda p, rank: ring.ring(p.size, rank),
        lambda p: p.size - 1,
        linear,
        RING_2010,
        "section 2.1",
        "p-1",
        "m*(p-1)/p",
    ),
    Algorithm(
        "pipelined_ring",
        "allgatherv",
        lambda p, rank: ring.pipelined_ring(p.size, rank, nblocks=p.nblocks, counts=p.contributions),
        lambda p: ring.ring_rounds(p.contributions, p.nblocks),
        _pipelined_ring,
        RING_2010,
        "section 2.2",
        "(p-1)*n",
        "m*(p-1)/p",
        blocks=True,
    ),
    Algorithm(
        "pipelined_ring_full",
        "allgatherv",
        lambda p, rank: ring.pipelined_ring(p.size, rank, nblocks=p.nblocks, counts=p.contributions, full_blocks=True),
        lambda p: ring.ring_rounds(p.contributions, p.nblocks),
        _pipelined_ring,
        RING_2010,
        "section 2.3, blocks of size B but the last of a part",
        "(p-1)*n",
        "m*(p-1)/p",
        blocks=True,
    ),
    Algorithm(
        "pipelined_ring",
        "reduce_scatter",
        lambda p, rank: reverse(ring.pipelined_ring(p.size, rank, nblocks=p.nblocks, counts=p.contributions)),
        lambda p: ring.ring_rounds(p.contributions, p.nblocks),
        combining(_pipelined_ring),
        RING_2010,
        "section 2.2, backwards",
        "(p-1)*n",
        "m*(p-1)/p",
        commutative=True,
        elementwise=True,
        blocks=True,
    ),
)
