"""For how long a rank is in calls that block, within any interval."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import accumulate


class Busy:
    """The times that a rank is in calls, one after the other.

    >>> busy = Busy([(1.0, 2.0), (5.0, 8.0)])
    >>> busy.within(0.0, 6.0)
    2.0
    """

    def __init__(self, times: Iterable[tuple[float, float]]) -> None:
        self._times = sorted(times)
        self._begins = [began for began, _ in self._times]
        self._ends = [ended for _, ended in self._times]
        self._sums = [0.0, *accumulate(ended - began for began, ended in self._times)]

    def within(self, start: float, end: float) -> float:
        """Return for how many seconds of this interval the rank is in calls."""
        first, last = bisect_right(self._ends, start), bisect_left(self._begins, end)
        if first >= last:
            return 0.0
        before, after = max(0.0, start - self._begins[first]), max(0.0, self._ends[last - 1] - end)
        return self._sums[last] - self._sums[first] - before - after
