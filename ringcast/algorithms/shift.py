"""Describe the algorithms of the circular shift; their schedules are in `ringcast.schedules.shift`.

Half of the buffer is the data that a rank gives, half the data that it gets. s = distance.
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
        name="direct",
        collective="shift",
        build=_by("direct"),
        rounds=lambda p: min(p.distance, 1),
        load=_values,
        paper=GRAMA,
        place="section 4.6.2, with E-cube routing",
        rounds_formula="min(s, 1)",
        volume_formula="min(s, 1)*m/2",
    ),
    Algorithm(
        name="ring",
        collective="shift",
        build=_by("ring"),
        rounds=lambda p: min(p.distance, p.size - p.distance),
        load=_values,
        paper=GRAMA,
        place="section 4.6.1",
        rounds_formula="min(s, p-s)",
        volume_formula="min(s, p-s)*m/2",
    ),
    Algorithm(
        name="mesh",
        collective="shift",
        build=_by("mesh"),
        rounds=lambda p: shift.mesh_rounds(p.size, p.distance),
        load=_values,
        paper=GRAMA,
        place="section 4.6.1, on a mesh",
        rounds_formula="min(s%b, b-s%b) + min(s//b + (s%b > 0 and a > 1), a - s//b)",
        volume_formula="(min(s%b, b-s%b) + min(s//b + (s%b > 0 and a > 1), a - s//b))*m/2",
    ),
    Algorithm(
        name="hypercube",
        collective="shift",
        build=_by("hypercube"),
        rounds=lambda p: shift.hypercube_rounds(p.distance),
        load=_values,
        paper=GRAMA,
        place="section 4.6.2",
        rounds_formula="2*s.bit_count() - s%2",
        volume_formula="(2*s.bit_count() - s%2)*m/2",
        fits=power_of_two,
    ),
)
