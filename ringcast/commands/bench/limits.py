"""The limit that the wire sets: the bytes through the busiest direction of the busiest rank, over the link's payload.

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

# A token bucket lets its content pass at once, so that much of what a rank moves may be faster than the link: the burst
# of the bed's links.
BURST = 64 * 1024
# Ranks leave the barrier before a repetition within a few milliseconds of each other, and each has its own start: what
# the last to start measures is less than what the operation took by that much.
SKEW = 0.003
# The clocks and the rate of a token bucket are not exact to more than that.
TOLERANCE = 0.97


def payload(rate: int) -> float:
    """Return the bytes of data per second that a link of `rate` bit/s can carry.

    >>> round(payload(100_000_000))
    11955086
    """
    return float(rate * DATA_IN_FRAME / 8)


def busiest(case: Case) -> Fraction | None:
    """Return the bytes that the busiest rank must at least send or receive; None where there is no such bound."""
    if case.size == 1 or case.collective in POINT_TO_POINT:
        return None
    volume = COLLECTIVES[case.collective].wire_volume
    return None if volume is Volume.NONE else Fraction(FORMULAS[volume](case))


def wire_limit(case: Case, rate: int | None) -> float | None:
    """Return the seconds that `case` takes at least on links of `rate` bit/s.

    None: there is no limit, because the rate is not known, there is one rank, or the collective moves no data to
    speak of (barrier), or is no collective (latency, bandwidth).
    """
    volume = busiest(case)
    return None if rate is None or volume is None else float(volume) / payload(rate)


def beats_wire(measurement: Measurement, rate: int | None) -> bool:
    """Return whether a repetition was faster than the links can be, so that the data must have gone elsewhere.

    What the links' token buckets may let pass at once, and what the ranks' starts differ, is granted; so up to about
    100 kB at 100 Mbit/s nothing can be said, and from 1 MB on a few per cent show.
    """
    volume = busiest(measurement.case)
    if rate is None or volume is None or not measurement.seconds:
        return False
    return min(measurement.seconds) < TOLERANCE * float(volume - BURST) / payload(rate) - SKEW


def _gathered(case: Case) -> int:
    return max(case.nbytes - min(case.parts), max(case.parts))


def _exchanged(case: Case) -> int:
    """Rank r keeps the part (r + r) mod p for itself; it gets as much as it gives."""
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
