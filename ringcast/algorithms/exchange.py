"""The algorithms of total exchange; their schedules are in `ringcast.schedules.exchange`.

A block is one of 2p equal parts: p that a rank gives, p that it gets. Of alltoallv nobody knows all counts, so it is
reckoned with equal parts; only algorithms fit in which blocks go straight, as nobody has room for others' blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ringcast.algorithms.algorithm import Algorithm, log_rounds, power_of_two
from ringcast.algorithms.load import Call, Formula, Load, even, uneven
from ringcast.algorithms.papers import GRAMA, REDUCE_SCATTER
from ringcast.algorithms.params import Params
from ringcast.schedules import exchange
from ringcast.schedules.grid import mesh_shape


def _block(call: Call) -> int:
    return -(-call.nbytes // (2 * call.params.size))


def _straight(call: Call) -> Load:
    return even(call.rounds, _block(call))


def _together(blocks: Callable[[int], Iterable[int]]) -> Formula:
    """Return the formula for rounds that move so many blocks each."""

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
            "linear",
            collective,
            lambda p, rank: exchange.linear(p.size, rank),
            lambda p: p.size - 1,
            _straight,
            GRAMA,
            "section 4.5.3, with r + i in place of r XOR i",
            "p-1",
            "(p-1)*m/(2*p)",
        ),
        Algorithm(
            "xor",
            collective,
            lambda p, rank: exchange.xor(p.size, rank),
            lambda p: p.size - 1,
            _straight,
            GRAMA,
            "section 4.5.3, the optimal algorithm",
            "p-1",
            "(p-1)*m/(2*p)",
            fits=power_of_two,
        ),
    )


TESTED = "tests/collectives/test_alltoall.py"
ALGORITHMS = (
    Algorithm(
        "circulant",
        "alltoall",
        lambda p, rank: exchange.circulant(p.size, rank),
        log_rounds,
        _together(exchange.circulant_sizes),
        REDUCE_SCATTER,
        "Algorithm 1 with concatenation",
        "q",
        "h*m/(2*p)",
    ),
    *_pairwise("alltoall"),
    Algorithm(
        "ring",
        "alltoall",
        lambda p, rank: exchange.ring(p.size, rank),
        lambda p: p.size - 1,
        _together(_ring),
        GRAMA,
        "section 4.5.1",
        "p-1",
        "m*(p-1)/4",
    ),
    Algorithm(
        "ring_two_way",
        "alltoall",
        lambda p, rank: exchange.ring_two_way(p.size, rank),
        lambda p: p.size - 1,
        _together(_ring_two_way),
        GRAMA,
        "section 4.5.1, in both directions",
        "p-1",
        "(p*p//4)*m/(2*p)",
    ),
    Algorithm(
        "mesh",
        "alltoall",
        lambda p, rank: exchange.mesh(p.size, rank),
        _mesh_rounds,
        _together(_mesh),
        GRAMA,
        "section 4.5.2",
        "a+b-2",
        "m*(a+b-2)/4",
    ),
    Algorithm(
        "hypercube",
        "alltoall",
        lambda p, rank: exchange.hypercube(p.size, rank),
        log_rounds,
        _together(_hypercube),
        GRAMA,
        "section 4.5.3",
        "d",
        "d*m/4",
        fits=power_of_two,
    ),
    *_pairwise("alltoallv"),
)
