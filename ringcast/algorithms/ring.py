"""Describe the algorithms around a ring; their schedules are in `ringcast.schedules.ring`."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from ringcast.algorithms.algorithm import Algorithm, one_at_a_time, reduction, regular
from ringcast.algorithms.load import Call, Load, even, twice
from ringcast.algorithms.papers import GRAMA, RING_2010
from ringcast.algorithms.params import Params
from ringcast.schedules import ring
from ringcast.schedules.placement import Hosts, leaving
from ringcast.schedules.ringorder import node_order
from ringcast.schedules.schedule import Schedule


def linear(call: Call) -> Load:
    """Return the load: every part goes around; in each round the largest counts."""
    return even(call.rounds, max(call.parts))


def _neighbours(p: Params) -> int:
    """Return the number of messages that leave a host at a time, when ranks send around the ring in rank order."""
    return leaving(p.hosts, 1)


@lru_cache(maxsize=64)
def _order(hosts: Hosts, counts: tuple[int, ...]) -> tuple[int, ...]:
    return node_order(hosts, counts) if hosts else ()


def _pipelined(p: Params, rank: int, *, full_blocks: bool = False) -> Schedule:
    counts, order = p.contributions, _order(p.hosts, p.contributions)
    return ring.pipelined_ring(p.size, rank, nblocks=p.nblocks, counts=counts, full_blocks=full_blocks, order=order)


def _pipelined_rounds(p: Params) -> int:
    return ring.ring_rounds(p.contributions, p.nblocks, _order(p.hosts, p.contributions))


def _pipelined_ring(call: Call) -> Load:
    """Return the load: a link carries all parts but one; in its other rounds it waits for the first block of a part."""
    blocks = ring.blocks_of(call.params.contributions, call.params.nblocks)
    message = -(-max(call.parts) // max(*blocks, 1))
    load = even(call.rounds, message)
    pauses = call.rounds - (sum(blocks) - min(blocks))
    return load._replace(link=min(load.volume, call.nbytes - min(call.parts) + pauses * message))


TESTED = "tests/schedules/test_ring.py"

RING = Algorithm(
    name="ring",
    collective="allgatherv",
    build=lambda p, rank: ring.ring(p.size, rank),
    rounds=lambda p: p.size - 1,
    load=linear,
    paper=RING_2010,
    place="section 2.1",
    rounds_formula="p-1",
    volume_formula="m*(p-1)/p",
    leaving=_neighbours,
)
PIPELINED = Algorithm(
    name="pipelined_ring",
    collective="allgatherv",
    build=_pipelined,
    rounds=_pipelined_rounds,
    load=_pipelined_ring,
    paper=RING_2010,
    place="section 2.2",
    rounds_formula="(p-1)*n",
    volume_formula="m*(p-1)/p",
    blocks=True,
    leaving=one_at_a_time,
)
ALGORITHMS = (
    Algorithm(
        name="pipelined_ring",
        collective="allreduce",
        build=lambda p, rank: ring.allreduce(p.size, rank, nblocks=p.nblocks, order=_order(p.hosts, p.contributions)),
        rounds=lambda p: 2 * (p.size - 1) * p.nblocks,
        load=twice(_pipelined_ring),
        paper=RING_2010,
        place="section 2 backwards, then forwards; n = 1 is the ring of Grama et al., section 4.7",
        rounds_formula="2*(p-1)*n",
        volume_formula="2*m*(p-1)/p",
        commutative=True,
        elementwise=True,
        blocks=True,
        leaving=one_at_a_time,
    ),
    replace(regular(RING), paper=GRAMA, place="section 4.2.1"),
    regular(PIPELINED),
    RING,
    PIPELINED,
    replace(
        PIPELINED,
        name="pipelined_ring_full",
        build=lambda p, rank: _pipelined(p, rank, full_blocks=True),
        place="section 2.3, blocks of size B but the last of a part",
    ),
    reduction(PIPELINED),
)
