"""Two profiles side by side, by call site, with change told from noise.

The calls of a site whose times were kept are cut into BATCHES in the order in which they were made; how much the means
of these differ within one run is the noise. A difference between two runs counts as a change if it is larger than THREE
times the noise of both, and than LEAST of the time itself.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from math import hypot
from statistics import fmean, median

from ringcast._util.dataclass import dataclass
from ringcast.profiling.same_site import Report, Site, paired

BATCHES = 10
THREE, LEAST = 3.0, 0.05
FEW = 4  # times, below which nothing can be said about noise


@dataclass(frozen=True, slots=True)
class Change:
    """A call site in two runs; times are seconds of a call on a rank, None where a run has no such site.

    Attributes:
        change: (after - before) / before; None if a run has no such site, or no times.
        verdict: "slower", "faster", "within noise", "too few calls", "new" or "gone".
    """

    name: str
    line: int
    before: float | None
    after: float | None
    change: float | None
    verdict: str
    seconds: float  # of all calls and ranks, after less before


def compared(before: Report, after: Report) -> list[Change]:
    """Return all call sites of two runs, first those whose whole time has changed the most."""
    pairs = paired(before, after)
    times = _times(before), _times(after)
    found = [_change(old, new, times) for old, new in pairs]
    return sorted(found, key=lambda change: -abs(change.seconds))


def _times(report: Report) -> dict[int, list[float]]:
    """Return the times of the calls that were kept, by site, in the order in which they were made."""
    found: defaultdict[int, list[float]] = defaultdict(list)
    for _, site, start, end, _ in sorted(report["timeline"]["events"], key=lambda event: event[2]):
        found[site].append(end - start)
    return found


def _change(old: Site | None, new: Site | None, times: tuple[dict[int, list[float]], dict[int, list[float]]]) -> Change:
    site = new or old
    assert site is not None
    name = f"{site['name']} at {os.path.basename(site['file'])}" if site["file"] else str(site["name"])
    seconds = (new["time"] if new else 0.0) - (old["time"] if old else 0.0)
    a = [] if old is None else times[0].get(old["id"], [])
    b = [] if new is None else times[1].get(new["id"], [])
    if old is None or new is None:
        verdict = "new" if old is None else "gone"
        return Change(name, site["line"], _middle(a), _middle(b), None, verdict, seconds)
    before, after = _middle(a), _middle(b)
    change = (after - before) / before if before and after is not None else None
    return Change(name, site["line"], before, after, change, _verdict(a, b), seconds)


def _middle(times: Sequence[float]) -> float | None:
    return median(_batches(times)) if times else None


def _batches(times: Sequence[float]) -> list[float]:
    """Return the means of batches of consecutive times."""
    count = min(BATCHES, len(times))
    ends = [len(times) * i // count for i in range(count + 1)]
    return [fmean(times[first:last]) for first, last in pairwise(ends)]


def _verdict(before: Sequence[float], after: Sequence[float]) -> str:
    if min(len(before), len(after)) < FEW:
        return "too few calls"
    a, b = _batches(before), _batches(after)
    difference, noise = median(b) - median(a), hypot(_spread(a), _spread(b))
    if abs(difference) <= max(THREE * noise, LEAST * median(a)):
        return "within noise"
    return "slower" if difference > 0 else "faster"


def _spread(values: Sequence[float]) -> float:
    """Return the standard deviation as the median of deviations tells it, which a few outliers do not move."""
    middle = median(values)
    return 1.4826 * median(abs(value - middle) for value in values)
