"""Describe the textbook's algorithms from all ranks to all; schedules: `ringcast.schedules.grid` and `hypercube`.

The ring is in `ringcast.algorithms.ring`.
p ranks; q = ceil(log2 p); d = floor(log2 p); p = a*b, the mesh.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

from ringcast.algorithms.algorithm import Algorithm, log_rounds, reduction, regular
from ringcast.algorithms.load import Call, Load, twice, uneven
from ringcast.algorithms.papers import GRAMA
from ringcast.algorithms.ring import RING
from ringcast.schedules import grid, hypercube, one_to_all


def _hypercube(call: Call) -> Load:
    """Return the load: round k moves the parts of 2^k nodes in a row; the heaviest row counts; so do folded parts."""
    p = call.params.size
    f = hypercube.folded(p)
    nodes = p - f
    ends = list(accumulate(call.parts, initial=0))
    before = [ends[hypercube.first_rank(node, f)] for node in range(nodes + 1)]
    odd = call.parts[1 : 2 * f : 2]
    messages = [
        max(before[node + bit] - before[node] for node in range(0, nodes, bit))
        for bit in (1 << k for k in range(nodes.bit_length() - 1))
    ]
    if f:
        messages += [max(odd), sum(call.parts) - min(odd)]
    return uneven(messages, len(messages))


def _broadcasts(call: Call) -> Load:
    """Return the load: every part takes q rounds."""
    q, once = log_rounds(call.params), uneven(call.parts, 0)
    return Load(q * once.volume, q * once.link, call.rounds, q * once.excess, once.largest)


def _mesh(call: Call) -> Load:
    """Return the load: parts go around the rows, rows around the columns; the largest ones count."""
    a, b = grid.mesh_shape(call.params.size)
    ends = list(accumulate(call.parts, initial=0))
    rows = [ends[(x + 1) * b] - ends[x * b] for x in range(a)]
    return uneven([max(call.parts)] * (b - 1) + [max(rows)] * (a - 1), call.rounds)


BROADCASTS = Algorithm(
    name="broadcasts",
    collective="allgatherv",
    build=lambda p, rank: one_to_all.Broadcasts(p.size, rank),
    rounds=lambda p: p.size * log_rounds(p),
    load=_broadcasts,
    paper=GRAMA,
    place="section 4.2, as p one-to-all broadcasts",
    rounds_formula="p*q",
    volume_formula="q*m",
)
MESH = Algorithm(
    name="mesh",
    collective="allgatherv",
    build=lambda p, rank: grid.AllGather(p.size, rank),
    rounds=lambda p: sum(grid.mesh_shape(p.size)) - 2,
    load=_mesh,
    paper=GRAMA,
    place="section 4.2.2, on a mesh",
    rounds_formula="a+b-2",
    volume_formula="m*(p-1)/p",
)
HYPERCUBE = Algorithm(
    name="hypercube",
    collective="allgatherv",
    build=lambda p, rank: hypercube.AllGather(p.size, rank),
    rounds=lambda p: hypercube.rounds(p.size),
    load=_hypercube,
    paper=GRAMA,
    place="section 4.2.3, on a hypercube",
    rounds_formula="d + 2*(p > 2**d)",
    volume_formula="m*(sum(2**k + min(2**k, p - 2**d) for k in range(d)) + p*(p > 2**d))/p",
)
HYPERCUBE_ALLREDUCE = replace(
    HYPERCUBE,
    collective="allreduce",
    build=lambda p, rank: hypercube.allreduce(p.size, rank),
    rounds=lambda p: 2 * hypercube.rounds(p.size),
    load=twice(_hypercube),
    place="section 4.7, all-to-all reduction and all-to-all broadcast",
    rounds_formula=f"2*({HYPERCUBE.rounds_formula})",
    volume_formula=f"2*{HYPERCUBE.volume_formula}",
    commutative=True,
    elementwise=True,
)

TESTED = "tests/schedules/test_grama.py"
ALGORITHMS = (
    HYPERCUBE_ALLREDUCE,
    *map(regular, (MESH, HYPERCUBE, BROADCASTS)),
    MESH,
    HYPERCUBE,
    BROADCASTS,
    reduction(replace(RING, paper=GRAMA, place="section 4.2.1, on a ring")),
    reduction(MESH),
    reduction(HYPERCUBE),
)
