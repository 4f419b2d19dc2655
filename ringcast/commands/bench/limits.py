"""Compute the limit of the wire: the bytes through the busiest direction of the busiest rank, over the link's payload.

Each rank has one full-duplex link of a given rate. A full Ethernet frame of TCP has 1514 bytes, 1448 of them data.
m = bytes of a case, m_r = bytes of rank r's part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from types import MappingProxyType

from ringcast.commands.bench.cases import Case, Measurement
from ringcast.commands.bench.systems.workload import POINT_TO_POINT
from ringcast.wire.collective import COLLECTIVES, Volume

DATA_IN_FRAME = Fraction(1448, 1514)

# A token bucket lets its content pass at once, so that this many bytes of a rank may be faster than the link: the burst
# of the bed's links.
BURST = 64 * 1024
# Ranks leave the barrier before a repetition within a few milliseconds of each other, and each takes its own start: the
# last rank to start may measure this much less than the operation took.
SKEW = 0.003
# The relative error of clocks and of a token bucket's rate.
TOLERANCE = 0.97


def payload(rate: int) -> float:
    """Return the bytes of data per second that a link of `rate` bit/s can carry.

    >>> round(payload(100_000_000))
    11955086
    """
    return float(rate * DATA_IN_FRAME / 8)


def busiest(case: Case) -> Fraction | None:
    """Return the least bytes that the busiest rank must send or receive; None where there is no such bound."""
    if case.size == 1 or case.collective in POINT_TO_POINT:
        return None
    volume = COLLECTIVES[case.collective].wire_volume
    return None if volume is Volume.NONE else Fraction(FORMULAS[volume](case))


def wire_limit(case: Case, rate: int | None) -> float | None:
    """Return the least seconds of `case` on links of `rate` bit/s.

    None: there is no limit, because the rate is not known, there is one rank, the collective moves hardly any data
    (barrier), or the case is no collective (latency, bandwidth).
    """
    volume = busiest(case)
    return None if rate is None or volume is None else float(volume) / payload(rate)


def beats_wire(measurement: Measurement, rate: int | None) -> bool:
    """Return whether a repetition was faster than the links can be, so that the data must have gone elsewhere.

    The burst of the links' token buckets and the difference of the ranks' starts are allowed for; so up to about 100 kB
    at 100 Mbit/s the result is always False, and from 1 MB on a few per cent show.
    """
    volume = busiest(measurement.case)
    if rate is None or volume is None or not measurement.seconds:
        return False
    return min(measurement.seconds) < TOLERANCE * float(volume - BURST) / payload(rate) - SKEW


def _gathered(case: Case) -> int:
    return max(case.nbytes - min(case.parts), max(case.parts))


def _exchanged(case: Case) -> int:
    """Return the bytes of an exchange: rank r keeps its part (r + r) mod p, and gets as much as it gives."""
    return case.nbytes - min(case.parts[2 * r % case.size] for r in range(case.size))


def _rooted(case: Case) -> int:
    return case.nbytes - case.parts[case.root]


def _vector(case: Case) -> int:
    return case.nbytes


def _twice(case: Case) -> Fraction:
    return Fraction(2 * case.nbytes * (case.size - 1), case.size)


def _scattered(case: Case) -> int:
    return case.nbytes - min(case.parts)


FORMULAS: Mapping[Volume, Callable[[Case], Fraction | int]] = MappingProxyType(
    {
        Volume.VECTOR: _vector,
        Volume.TWICE: _twice,
        Volume.GATHERED: _gathered,
        Volume.SCATTERED: _scattered,
        Volume.ROOTED: _rooted,
        Volume.EXCHANGED: _exchanged,
    }
)
