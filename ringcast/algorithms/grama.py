"""The textbook's algorithms from one rank to all, and back; see `ringcast.schedules.one_to_all`, `grid`, `hypercube`.

p ranks; q = ceil(log2 p); d = floor(log2 p); p = a*b, the mesh; p = u*v*w, that of three dimensions.
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
    """Every round moves the whole value."""
    return even(call.rounds, call.nbytes)


def _part_by_part(call: Call) -> Load:
    """A round for each part but the root's."""
    root = call.params.root
    return uneven(call.parts[:root] + call.parts[root + 1 :], call.rounds)


def subtrees(call: Call) -> Load:
    """In each round the heaviest subtree of those that are handed on counts."""
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
    "linear",
    "bcast",
    lambda p, rank: one_to_all.Linear(p.size, rank, p.root),
    lambda p: p.size - 1,
    _whole,
    GRAMA,
    "section 4.1.1, the naive way",
    "p-1",
    "(p-1)*m",
)
BINOMIAL_BCAST = Algorithm(
    "binomial",
    "bcast",
    lambda p, rank: one_to_all.Binomial(p.size, rank, p.root),
    log_rounds,
    _whole,
    GRAMA,
    "section 4.1.1, recursive doubling on a ring",
    "q",
    "q*m",
)
MESH_BCAST = Algorithm(
    "mesh",
    "bcast",
    lambda p, rank: grid.Broadcast(p.size, rank, grid.mesh_shape(p.size), p.root),
    lambda p: grid.doubling_rounds(grid.mesh_shape(p.size)),
    _whole,
    GRAMA,
    "section 4.1.2, on a mesh",
    "(a-1).bit_length() + (b-1).bit_length()",
    "((a-1).bit_length() + (b-1).bit_length())*m",
)
_ROUNDS_3D = "(u-1).bit_length() + (v-1).bit_length() + (w-1).bit_length()"
MESH_3D_BCAST = Algorithm(
    "mesh_3d",
    "bcast",
    lambda p, rank: grid.Broadcast(p.size, rank, grid.mesh_3d_shape(p.size), p.root),
    lambda p: grid.doubling_rounds(grid.mesh_3d_shape(p.size)),
    _whole,
    GRAMA,
    "section 4.1.2, on a mesh of three dimensions",
    _ROUNDS_3D,
    f"({_ROUNDS_3D})*m",
)
HYPERCUBE_BCAST = Algorithm(
    "hypercube",
    "bcast",
    lambda p, rank: one_to_all.Hypercube(p.size, rank, p.root),
    log_rounds,
    _whole,
    GRAMA,
    "section 4.1.3, on a hypercube",
    "q",
    "q*m",
)
SCATTER_ALLGATHER = Algorithm(
    "scatter_allgather",
    "bcast",
    lambda p, rank: hypercube.bcast(p.size, rank, root=p.root),
    _twice_log_rounds,
    in_turn(subtrees, windows),
    GRAMA,
    "section 4.7, splitting and routing messages in parts",
    "2*q",
    "2*m*(p-1)/p",
)
LINEAR_SCATTER = Algorithm(
    "linear",
    "scatter",
    lambda p, rank: one_to_all.LinearScatter(p.size, rank, p.root),
    lambda p: p.size - 1,
    _part_by_part,
    GRAMA,
    "section 4.4, a message for each rank",
    "p-1",
    "m*(p-1)/p",
)
HYPERCUBE_SCATTER = Algorithm(
    "hypercube",
    "scatter",
    lambda p, rank: one_to_all.Scatter(p.size, rank, p.root),
    log_rounds,
    subtrees,
    GRAMA,
    "section 4.4, on a hypercube",
    "q",
    "m*(p-1)/p",
)
REDUCE_SCATTER_GATHER = Algorithm(
    "reduce_scatter_gather",
    "reduce",
    lambda p, rank: hypercube.reduce(p.size, rank, root=p.root),
    _twice_log_rounds,
    in_turn(combining(windows), subtrees),
    GRAMA,
    "section 4.7, all-to-all reduction and gather",
    "2*q",
    "2*m*(p-1)/p",
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
    # "binomial" is the one in rank order: the same tree if the root is rank 0
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
