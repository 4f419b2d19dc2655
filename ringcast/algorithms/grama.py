"""Describe the textbook's algorithms from one rank to all, and back; schedules: `one_to_all`, `grid`, `hypercube`.

p ranks; q = ceil(log2 p); d = floor(log2 p); p = a*b, the mesh; p = u*v*w, the mesh of three dimensions.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

from ringcast.algorithms.algorithm import Algorithm, log_rounds, reduction
from ringcast.algorithms.circulant import windows
from ringcast.algorithms.load import Call, Load, combining, even, in_turn, uneven
from ringcast.algorithms.papers import GRAMA
from ringcast.algorithms.params import Params
from ringcast.schedules import grid, hypercube, one_to_all
from ringcast.schedules.schedule import STORE, reverse


def _whole(call: Call) -> Load:
    """Return the load: every round moves the whole value."""
    return even(call.rounds, call.nbytes)


def _part_by_part(call: Call) -> Load:
    """Return the load: a round for each part but the root's."""
    root = call.params.root
    return uneven(call.parts[:root] + call.parts[root + 1 :], call.rounds)


def subtrees(call: Call) -> Load:
    """Return the load: in each round the heaviest of the subtrees whose parts are passed on counts."""
    p, parts = call.params.size, call.parts
    tree = one_to_all.Scatter(p, 0, call.params.root)
    ends = list(accumulate((parts[tree.rank_of(label)] for label in range(p)), initial=0))
    messages = [
        max(ends[min(label + half, p)] - ends[label] for label in range(half, p, 2 * half))
        for half in (1 << k for k in range(log_rounds(call.params)))
    ]
    return uneven(messages, len(messages))


def _twice_log_rounds(p: Params) -> int:
    return 2 * log_rounds(p)


LINEAR_BCAST = Algorithm(
    name="linear",
    collective="bcast",
    build=lambda p, rank: one_to_all.Linear(p.size, rank, p.root),
    rounds=lambda p: p.size - 1,
    load=_whole,
    paper=GRAMA,
    place="section 4.1.1, the naive way",
    rounds_formula="p-1",
    volume_formula="(p-1)*m",
)
BINOMIAL_BCAST = Algorithm(
    name="binomial",
    collective="bcast",
    build=lambda p, rank: one_to_all.Binomial(p.size, rank, p.root),
    rounds=log_rounds,
    load=_whole,
    paper=GRAMA,
    place="section 4.1.1, recursive doubling on a ring",
    rounds_formula="q",
    volume_formula="q*m",
)
MESH_BCAST = Algorithm(
    name="mesh",
    collective="bcast",
    build=lambda p, rank: grid.Broadcast(p.size, rank, grid.mesh_shape(p.size), p.root),
    rounds=lambda p: grid.doubling_rounds(grid.mesh_shape(p.size)),
    load=_whole,
    paper=GRAMA,
    place="section 4.1.2, on a mesh",
    rounds_formula="(a-1).bit_length() + (b-1).bit_length()",
    volume_formula="((a-1).bit_length() + (b-1).bit_length())*m",
)
_ROUNDS_3D = "(u-1).bit_length() + (v-1).bit_length() + (w-1).bit_length()"
MESH_3D_BCAST = Algorithm(
    name="mesh_3d",
    collective="bcast",
    build=lambda p, rank: grid.Broadcast(p.size, rank, grid.mesh_3d_shape(p.size), p.root),
    rounds=lambda p: grid.doubling_rounds(grid.mesh_3d_shape(p.size)),
    load=_whole,
    paper=GRAMA,
    place="section 4.1.2, on a mesh of three dimensions",
    rounds_formula=_ROUNDS_3D,
    volume_formula=f"({_ROUNDS_3D})*m",
)
HYPERCUBE_BCAST = Algorithm(
    name="hypercube",
    collective="bcast",
    build=lambda p, rank: one_to_all.Hypercube(p.size, rank, p.root),
    rounds=log_rounds,
    load=_whole,
    paper=GRAMA,
    place="section 4.1.3, on a hypercube",
    rounds_formula="q",
    volume_formula="q*m",
)
SCATTER_ALLGATHER = Algorithm(
    name="scatter_allgather",
    collective="bcast",
    build=lambda p, rank: hypercube.bcast(p.size, rank, root=p.root),
    rounds=_twice_log_rounds,
    load=in_turn(subtrees, windows),
    paper=GRAMA,
    place="section 4.7, splitting and routing messages in parts",
    rounds_formula="2*q",
    volume_formula="2*m*(p-1)/p",
)
LINEAR_SCATTER = Algorithm(
    name="linear",
    collective="scatter",
    build=lambda p, rank: one_to_all.LinearScatter(p.size, rank, p.root),
    rounds=lambda p: p.size - 1,
    load=_part_by_part,
    paper=GRAMA,
    place="section 4.4, a message for each rank",
    rounds_formula="p-1",
    volume_formula="m*(p-1)/p",
)
HYPERCUBE_SCATTER = Algorithm(
    name="hypercube",
    collective="scatter",
    build=lambda p, rank: one_to_all.Scatter(p.size, rank, p.root),
    rounds=log_rounds,
    load=subtrees,
    paper=GRAMA,
    place="section 4.4, on a hypercube",
    rounds_formula="q",
    volume_formula="m*(p-1)/p",
)
REDUCE_SCATTER_GATHER = Algorithm(
    name="reduce_scatter_gather",
    collective="reduce",
    build=lambda p, rank: hypercube.reduce(p.size, rank, root=p.root),
    rounds=_twice_log_rounds,
    load=in_turn(combining(windows), subtrees),
    paper=GRAMA,
    place="section 4.7, all-to-all reduction and gather",
    rounds_formula="2*q",
    volume_formula="2*m*(p-1)/p",
    commutative=True,
    elementwise=True,
)


def _gather(scatter: Algorithm) -> Algorithm:
    """Return the gather that is the scatter backwards."""
    return replace(
        scatter,
        collective="gather",
        build=lambda p, rank: reverse(scatter.build(p, rank), STORE),
        place=f"{scatter.place}, backwards",
    )


TESTED = "tests/schedules/test_grama.py"
ALGORITHMS = (
    LINEAR_BCAST,
    BINOMIAL_BCAST,
    MESH_BCAST,
    MESH_3D_BCAST,
    HYPERCUBE_BCAST,
    SCATTER_ALLGATHER,
    reduction(LINEAR_BCAST, elementwise=False),
    # "binomial" is the algorithm in rank order: the same tree if the root is rank 0
    replace(reduction(BINOMIAL_BCAST, elementwise=False), name="ring"),
    reduction(MESH_BCAST, elementwise=False),
    reduction(MESH_3D_BCAST, elementwise=False),
    reduction(HYPERCUBE_BCAST, elementwise=False),
    REDUCE_SCATTER_GATHER,
    LINEAR_SCATTER,
    HYPERCUBE_SCATTER,
    _gather(LINEAR_SCATTER),
    _gather(HYPERCUBE_SCATTER),
)
