"""Sets of bytes of a file, as ranges [start, stop) in order that neither overlap nor touch."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import TypeAlias

Range: TypeAlias = tuple[int, int]


class Ranges:
    """A set of bytes.

    >>> some = Ranges([(0, 4), (8, 10)])
    >>> some.add((4, 6))
    >>> some.remove((1, 2))
    >>> list(some), some.total, some.common((0, 9))
    ([(0, 1), (2, 6), (8, 10)], 7, [(0, 1), (2, 6), (8, 9)])
    """

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        self._starts: list[int] = []
        self._stops: list[int] = []
        self.total = 0
        for each in ranges:
            self.add(each)

    def __iter__(self) -> Iterator[Range]:
        return iter(list(zip(self._starts, self._stops, strict=True)))

    def __bool__(self) -> bool:
        return bool(self._starts)

    def add(self, new: Range) -> None:
        """Add the bytes of a range."""
        start, stop = new
        if start >= stop:
            return
        first, last = bisect_left(self._stops, start), bisect_right(self._starts, stop)
        if first < last:
            start, stop = min(start, self._starts[first]), max(stop, self._stops[last - 1])
        self._replace(first, last, [(start, stop)])

    def remove(self, gone: Range) -> None:
        """Remove the bytes of a range, as far as they are there."""
        start, stop = gone
        first, last = bisect_right(self._stops, start), bisect_left(self._starts, stop)
        if start >= stop or first >= last:
            return
        ends = [(self._starts[first], start), (stop, self._stops[last - 1])]
        self._replace(first, last, [(low, high) for low, high in ends if low < high])

    def common(self, other: Range) -> list[Range]:
        """Return the bytes that are in this set and in a range."""
        start, stop = other
        first, last = bisect_right(self._stops, start), bisect_left(self._starts, stop)
        return [(max(start, self._starts[i]), min(stop, self._stops[i])) for i in range(first, last)]

    def first(self, length: int) -> Range | None:
        """Return the first bytes of the set that lie together, `length` at most; None if it is empty."""
        if not self._starts:
            return None
        return self._starts[0], min(self._stops[0], self._starts[0] + length)

    def _replace(self, first: int, last: int, ranges: list[Range]) -> None:
        self.total -= sum(self._stops[first:last]) - sum(self._starts[first:last])
        self._starts[first:last] = [start for start, _ in ranges]
        self._stops[first:last] = [stop for _, stop in ranges]
        self.total += sum(stop - start for start, stop in ranges)
