"""The median time of a call, from a histogram of all calls and the times of some.

The histogram has every call, in buckets that are a factor of two wide; of every so many calls the time itself is kept.
Where all times are kept, the median is theirs. Else it lies in the bucket that the histogram tells, at the place there
that the kept times of this bucket tell, if they are enough.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

ENOUGH = 30  # kept times of a bucket that tell more than the histogram


def median_time(histogram: Mapping[int, int], kept: Sequence[float]) -> tuple[float, bool]:
    """Return the median in seconds, and whether it is a rough one: then the first digit is all that is known of it.

    The histogram has the number of times from 2**(i-1) up to 2**i nanoseconds, by i.

    >>> median_time({11: 2, 12: 1}, [1.1e-6, 1.3e-6, 2.5e-6]), median_time({11: 4}, [])
    ((1.3e-06, False), (1.536e-06, True))
    """
    whole = sum(histogram.values())
    if not whole:
        return 0.0, False
    if len(kept) == whole:
        return median(kept), False
    bucket, share = _middle(histogram, whole / 2)
    least = 2**bucket / 2e9
    near = sorted(time for time in kept if least <= time < 2 * least)
    if len(near) < min(ENOUGH, histogram[bucket]):
        return least * (1 + share), True
    return near[min(int(share * len(near)), len(near) - 1)], False


def _middle(histogram: Mapping[int, int], half: float) -> tuple[int, float]:
    """Return the bucket of the median, and the share of the bucket's times that lie before it."""
    before = 0
    for bucket, count in sorted(histogram.items()):
        if before + count >= half:
            return bucket, (half - before) / count
        before += count
    raise AssertionError
