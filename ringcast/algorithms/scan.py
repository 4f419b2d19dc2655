"""Describe the algorithms for prefix sums; their schedules are in `ringcast.schedules.scan`."""

from __future__ import annotations

from collections.abc import Callable

from ringcast.algorithms.algorithm import Algorithm, log_rounds
from ringcast.algorithms.load import Call, Formula, Load, even, values
from ringcast.algorithms.papers import EXSCAN, EXSCAN_123, GRAMA, HILLIS_STEELE
from ringcast.schedules import scan


def _two_sums(call: Call) -> Load:
    """Return the load: a rank may add an arrival to two sums; in the last round it adds to its result only."""
    return even(call.rounds, call.nbytes)._replace(combined=max(2 * call.rounds - 1, 0) * call.nbytes)


def _exclusive(skips_of: Callable[[int], scan.Skips]) -> Formula:
    """Return the formula: every arrival but the first is added; so is x, to each inclusive message but the first."""

    def load(call: Call) -> Load:
        inclusive = sum(with_own for _, with_own in skips_of(call.params.size))
        additions = max(call.rounds - 1, 0) + max(inclusive - 1, 0)
        return even(call.rounds, call.nbytes)._replace(combined=additions * call.nbytes)

    return load


TESTED = "tests/collectives/test_scan.py"
ALGORITHMS = (
    Algorithm(
        name="doubling",
        collective="scan",
        build=lambda p, rank: scan.doubling_scan(p.size, rank),
        rounds=log_rounds,
        load=values,
        paper=HILLIS_STEELE,
        place="its prefix sums",
        rounds_formula="q",
        volume_formula="q*m",
    ),
    Algorithm(
        name="hypercube",
        collective="scan",
        build=lambda p, rank: scan.hypercube_scan(p.size, rank),
        rounds=log_rounds,
        load=_two_sums,
        paper=GRAMA,
        place="section 4.3, prefix sums",
        rounds_formula="q",
        volume_formula="q*m",
    ),
    Algorithm(
        name="two_phase",
        collective="exscan",
        build=lambda p, rank: scan.exscan(p.size, rank, scan.two_phase_skips(p.size)),
        rounds=log_rounds,
        load=_exclusive(scan.two_phase_skips),
        paper=EXSCAN,
        place="inclusive, then exclusive rounds",
        rounds_formula="q",
        volume_formula="q*m",
    ),
    Algorithm(
        name="census",
        collective="exscan",
        build=lambda p, rank: scan.exscan(p.size, rank, scan.census_skips(p.size)),
        rounds=log_rounds,
        load=_exclusive(scan.census_skips),
        paper=EXSCAN,
        place="the skips of the census",
        rounds_formula="q",
        volume_formula="q*m",
    ),
    Algorithm(
        name="doubling_123",
        collective="exscan",
        build=lambda p, rank: scan.exscan(p.size, rank, scan.skips_123(p.size)),
        rounds=lambda p: len(scan.skips_123(p.size)),
        load=_exclusive(scan.skips_123),
        paper=EXSCAN_123,
        place="123-doubling",
        rounds_formula="q + (4*(p-1) > 3*2**q)",
        volume_formula="(q + (4*(p-1) > 3*2**q))*m",
    ),
)
