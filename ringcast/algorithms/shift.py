"""The algorithms of the circular shift; their schedules are in `ringcast.schedules.shift`.

Half of the buffer is what a rank gives, half what it gets. s = distance.
"""

from __future__ import annotations

from collections.abc import Callable

from ringcast.algorithms.algorithm import Algorithm, power_of_two
from ringcast.algorithms.load import Call, Load, even
from ringcast.algorithms.papers import GRAMA
from ringcast.algorithms.params import Params
from ringcast.schedules import shift
from ringcast.schedules.schedule import Schedule


def _values(call: Call) -> Load:
    return even(call.rounds, -(-call.nbytes // 2))


def _by(way: str) -> Callable[[Params, int], Schedule]:
    return lambda p, rank: shift.shift(p.size, rank, distance=p.distance, way=way)


TESTED = "tests/collectives/test_alltoall.py"
ALGORITHMS = (
    Algorithm(
        "direct",
        "shift",
        _by("direct"),
        lambda p: min(p.distance, 1),
        _values,
        GRAMA,
        "section 4.6.2, with E-cube routing",
        "min(s, 1)",
        "min(s, 1)*m/2",
    ),
    Algorithm(
        "ring",
        "shift",
        _by("ring"),
        lambda p: min(p.distance, p.size - p.distance),
        _values,
        GRAMA,
        "section 4.6.1",
        "min(s, p-s)",
        "min(s, p-s)*m/2",
    ),
    Algorithm(
        "mesh",
        "shift",
        _by("mesh"),
        lambda p: shift.mesh_rounds(p.size, p.distance),
        _values,
        GRAMA,
        "section 4.6.1, on a mesh",
        "min(s%b, b-s%b) + min(s//b + (s%b > 0 and a > 1), a - s//b)",
        "(min(s%b, b-s%b) + min(s//b + (s%b > 0 and a > 1), a - s//b))*m/2",
    ),
    Algorithm(
        "hypercube",
        "shift",
        _by("hypercube"),
        lambda p: shift.hypercube_rounds(p.distance),
        _values,
        GRAMA,
        "section 4.6.2",
        "2*s.bit_count() - s%2",
        "(2*s.bit_count() - s%2)*m/2",
        fits=power_of_two,
    ),
)
