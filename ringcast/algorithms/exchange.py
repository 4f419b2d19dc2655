"""Describe the algorithms of total exchange; their schedules are in `ringcast.schedules.exchange`.

A block is one of 2p equal parts: p that a rank gives, p that it gets. In alltoallv no rank knows all counts, so the
model takes equal parts. Only algorithms that send each block straight to its rank can do alltoallv, as no rank has room
for others' blocks. The model predicts equal times for them; the one with overlapping rounds is faster where parts
differ, so it comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from ringcast.algorithms.algorithm import Algorithm, log_rounds, power_of_two
from ringcast.algorithms.load import Call, Formula, Load, even, uneven
from ringcast.algorithms.papers import GRAMA, REDUCE_SCATTER, THAKUR
from ringcast.algorithms.params import Params
from ringcast.schedules import exchange
from ringcast.schedules.grid import mesh_shape


def _block(call: Call) -> int:
    return -(-call.nbytes // (2 * call.params.size))


def _straight(call: Call) -> Load:
    return even(call.rounds, _block(call))


def _together(blocks: Callable[[int], Iterable[int]]) -> Formula:
    """Return the formula for rounds that move the numbers of blocks that `blocks` returns."""

    def formula(call: Call) -> Load:
        block = _block(call)
        return uneven([n * block for n in blocks(call.params.size)], call.rounds)

    return formula


def _ring(p: int) -> Iterable[int]:
    return range(p - 1, 0, -1)


def _ring_two_way(p: int) -> Iterable[int]:
    return [*range(p // 2, 0, -1), *range(p - 1 - p // 2, 0, -1)]


def _mesh(p: int) -> Iterable[int]:
    rows, columns = mesh_shape(p)
    return [*(rows * n for n in range(columns - 1, 0, -1)), *(columns * n for n in range(rows - 1, 0, -1))]


def _hypercube(p: int) -> Iterable[int]:
    return [p // 2] * (p.bit_length() - 1)


def _mesh_rounds(p: Params) -> int:
    return sum(mesh_shape(p.size)) - 2


def _pairwise(collective: str) -> tuple[Algorithm, ...]:
    return (
        Algorithm(
            name="linear",
            collective=collective,
            build=lambda p, rank: exchange.linear(p.size, rank),
            rounds=lambda p: p.size - 1,
            load=_straight,
            paper=GRAMA,
            place="section 4.5.3, with r + i in place of r XOR i",
            rounds_formula="p-1",
            volume_formula="(p-1)*m/(2*p)",
        ),
        Algorithm(
            name="xor",
            collective=collective,
            build=lambda p, rank: exchange.xor(p.size, rank),
            rounds=lambda p: p.size - 1,
            load=_straight,
            paper=GRAMA,
            place="section 4.5.3, the optimal algorithm",
            rounds_formula="p-1",
            volume_formula="(p-1)*m/(2*p)",
            fits=power_of_two,
        ),
    )


TESTED = "tests/collectives/test_alltoall.py"
_LINEAR, _XOR = _pairwise("alltoallv")
ALGORITHMS = (
    Algorithm(
        name="circulant",
        collective="alltoall",
        build=lambda p, rank: exchange.circulant(p.size, rank),
        rounds=log_rounds,
        load=_together(exchange.circulant_sizes),
        paper=REDUCE_SCATTER,
        place="Algorithm 1 with concatenation",
        rounds_formula="q",
        volume_formula="h*m/(2*p)",
    ),
    *_pairwise("alltoall"),
    Algorithm(
        name="ring",
        collective="alltoall",
        build=lambda p, rank: exchange.ring(p.size, rank),
        rounds=lambda p: p.size - 1,
        load=_together(_ring),
        paper=GRAMA,
        place="section 4.5.1",
        rounds_formula="p-1",
        volume_formula="m*(p-1)/4",
    ),
    Algorithm(
        name="ring_two_way",
        collective="alltoall",
        build=lambda p, rank: exchange.ring_two_way(p.size, rank),
        rounds=lambda p: p.size - 1,
        load=_together(_ring_two_way),
        paper=GRAMA,
        place="section 4.5.1, in both directions",
        rounds_formula="p-1",
        volume_formula="(p*p//4)*m/(2*p)",
    ),
    Algorithm(
        name="mesh",
        collective="alltoall",
        build=lambda p, rank: exchange.mesh(p.size, rank),
        rounds=_mesh_rounds,
        load=_together(_mesh),
        paper=GRAMA,
        place="section 4.5.2",
        rounds_formula="a+b-2",
        volume_formula="m*(a+b-2)/4",
    ),
    Algorithm(
        name="hypercube",
        collective="alltoall",
        build=lambda p, rank: exchange.hypercube(p.size, rank),
        rounds=log_rounds,
        load=_together(_hypercube),
        paper=GRAMA,
        place="section 4.5.3",
        rounds_formula="d",
        volume_formula="d*m/4",
        fits=power_of_two,
    ),
    replace(
        _LINEAR,
        name="scattered",
        build=lambda p, rank: exchange.scattered(p.size, rank),
        paper=THAKUR,
        place="all-to-all of medium-size messages",
    ),
    _LINEAR,
    _XOR,
)
