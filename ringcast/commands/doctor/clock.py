"""How far the clocks of two machines are apart, from a few questions over a line of unknown delay."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ringcast._util.dataclass import dataclass
from ringcast.commands.doctor.finding import Finding, ok, warn

QUESTIONS = 5
MOST = 0.5  # seconds; what logs and traces of several hosts bear


@dataclass(frozen=True, slots=True)
class Offset:
    """The other clock is `seconds` ahead of ours, give or take `error`."""

    seconds: float
    error: float


def estimate(samples: Sequence[tuple[float, float, float]]) -> Offset:
    """Return the offset from (when we asked, the other's answer, when we had it): that of the fastest answer.

    The answer was given at some time between question and arrival, so that half the round trip bounds the error.

    >>> estimate([(10.0, 15.5, 11.0), (12.0, 17.125, 12.25)])
    Offset(seconds=5.0, error=0.125)
    """
    asked, theirs, had = min(samples, key=lambda sample: sample[2] - sample[0])
    return Offset(theirs - (asked + had) / 2, (had - asked) / 2)


def measure(clock: Callable[[], float], ask: Callable[[], float]) -> Offset:
    """Ask another clock a few times."""
    return estimate([(clock(), ask(), clock()) for _ in range(QUESTIONS)])


def judge(offsets: Mapping[str, Offset]) -> Finding:
    """Judge the clocks of all hosts by the two that are certainly the furthest apart."""
    late = min(offsets, key=lambda host: offsets[host].seconds + offsets[host].error)
    early = max(offsets, key=lambda host: offsets[host].seconds - offsets[host].error)
    apart = offsets[early].seconds - offsets[late].seconds
    error = offsets[early].error + offsets[late].error
    if apart - error > MOST:
        text = f"{early} is {apart:.1f} s ahead of {late} (within {error:.1g} s)"
        return warn("clocks", text, "run chrony or ntpd on all hosts, or times in logs and traces will not fit")
    return ok("clocks", f"apart by {max(0.0, apart):.3f} s at most (within {error:.1g} s)")
