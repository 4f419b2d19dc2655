"""For how long a rank waits, within any interval."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import accumulate


class Busy:
    """The times in which a rank is in calls that block, or waits for requests.

    >>> busy = Busy([(1.0, 2.0), (5.0, 8.0)])
    >>> busy.within(0.0, 6.0)
    2.0
    """

    def __init__(self, times: Iterable[tuple[float, float]]) -> None:
        self._begins: list[float] = []
        self._ends: list[float] = []
        for began, ended in sorted(times):
            if self._ends and began <= self._ends[-1]:  # another thread's
                self._ends[-1] = max(self._ends[-1], ended)
            else:
                self._begins.append(began)
                self._ends.append(ended)
        seconds = (ended - began for began, ended in zip(self._begins, self._ends, strict=True))
        self._sums = [0.0, *accumulate(seconds)]

    def within(self, start: float, end: float) -> float:
        """Return for how many seconds of this interval the rank waits."""
        first, last = bisect_right(self._ends, start), bisect_left(self._begins, end)
        if first >= last:
            return 0.0
        before, after = max(0.0, start - self._begins[first]), max(0.0, self._ends[last - 1] - end)
        return self._sums[last] - self._sums[first] - before - after
