"""Measure the offset between the clocks of two machines, by a few questions over a line of unknown delay."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ringcast._util.dataclass import dataclass
from ringcast.commands.doctor.finding import Finding, ok, warn

QUESTIONS = 5
MOST = 0.5  # seconds; a larger offset confuses logs and traces of several hosts


@dataclass(frozen=True, slots=True)
class Offset:
    """The other clock is `seconds` ahead of ours, give or take `error`."""

    seconds: float
    error: float


def estimate(samples: Sequence[tuple[float, float, float]]) -> Offset:
    """Return the offset by the fastest answer; a sample has the times of question, answer (other clock) and arrival.

    The other machine read its clock between question and arrival, so that half the round trip bounds the error.

    >>> estimate([(10.0, 15.5, 11.0), (12.0, 17.125, 12.25)])
    Offset(seconds=5.0, error=0.125)
    """
    asked, theirs, had = min(samples, key=lambda sample: sample[2] - sample[0])
    return Offset(theirs - (asked + had) / 2, (had - asked) / 2)


def measure(clock: Callable[[], float], ask: Callable[[], float]) -> Offset:
    """Return the offset of another clock after a few questions."""
    return estimate([(clock(), ask(), clock()) for _ in range(QUESTIONS)])


def judge(offsets: Mapping[str, Offset]) -> Finding:
    """Judge the clocks of all hosts by the two clocks with the largest certain difference."""
    late = min(offsets, key=lambda host: offsets[host].seconds + offsets[host].error)
    early = max(offsets, key=lambda host: offsets[host].seconds - offsets[host].error)
    apart = offsets[early].seconds - offsets[late].seconds
    error = offsets[early].error + offsets[late].error
    if apart - error > MOST:
        text = f"{early} is {apart:.1f} s ahead of {late} (within {error:.1g} s)"
        return warn("clocks", text, "run chrony or ntpd on all hosts, or times in logs and traces will not fit")
    return ok("clocks", f"apart by {max(0.0, apart):.3f} s at most (within {error:.1g} s)")
