"""Count the time for which the other ranks have waited for the disk of this rank.

Broadcasts are lock-step: where one rank has no free buffer, because its disk has not taken their content, all others
wait. All ranks must wait as long as the quickest disk takes, so a rank counts only the time beyond that.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Stalls:
    """The time that others have waited for this rank, and the rest that they will; `limit` None: no limit."""

    def __init__(self, limit: float | None) -> None:
        self._limit = limit
        self.segment = 0.0  # seconds, in this segment
        self.total = 0.0  # seconds beyond those of the quickest rank, in all segments before

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Count the time of the `with` block."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.segment += time.monotonic() - began

    @property
    def left(self) -> float | None:
        """Seconds that others will still wait; None: without limit."""
        return None if self._limit is None else max(0.0, self._limit - self.total - self.segment)

    @property
    def exceeded(self) -> bool:
        return self.left == 0.0

    def next_segment(self, quickest: float) -> None:
        """End a segment; `quickest`: the seconds for which others waited for the quickest rank."""
        self.total += max(0.0, self.segment - quickest)
        self.segment = 0.0

    def told(self) -> str:
        """Return the error of a rank that is left out because its disk is too slow."""
        return (
            f"too slow: its disk made all others wait {self.total + self.segment:.1f} s; data that has arrived there "
            "is kept, and the same copy sends only the rest"
        )
