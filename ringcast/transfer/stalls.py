"""Stalls: how long the other ranks have waited for the disk of this one.

Broadcasts are lock-step: where one rank has no buffer free, because its disk has not taken what is in them, all others
wait. What the quickest disk takes is nobody's fault, so a rank counts what its own takes beyond that.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Stalls:
    """Time that others have waited for this rank, and how much more they will; `limit` None: any."""

    def __init__(self, limit: float | None) -> None:
        self._limit = limit
        self.segment = 0.0  # seconds, in this segment
        self.total = 0.0  # seconds beyond those of the quickest rank, in all segments before

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Count the time that the block takes."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.segment += time.monotonic() - began

    @property
    def left(self) -> float | None:
        """Seconds that others will still wait; None: for ever."""
        return None if self._limit is None else max(0.0, self._limit - self.total - self.segment)

    @property
    def exceeded(self) -> bool:
        return self.left == 0.0

    def next_segment(self, quickest: float) -> None:
        """End a segment, in which the quickest rank had so many seconds."""
        self.total += max(0.0, self.segment - quickest)
        self.segment = 0.0

    def told(self) -> str:
        """Return what to say of a rank that is left out."""
        return (
            f"too slow: its disk made all others wait {self.total + self.segment:.1f} s; what has arrived there is "
            "kept, and the same copy sends only what is missing"
        )
