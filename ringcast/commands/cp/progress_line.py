"""Draw a copy's progress as one line of a terminal: share, speed, time left and the slowest host."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ringcast._util.last_line import ProgressLine
from ringcast.config.worker import can_redraw
from ringcast.transfer.report import Progress


class CopyProgress:
    """A line about the copy to these hosts, redrawn in place; nothing is drawn unless standard error is a terminal."""

    def __init__(self, hosts: Sequence[str]) -> None:
        self._hosts, self._line = hosts, ProgressLine(2 if can_redraw(2) else None)
        self._began: float | None = None  # when the first bytes were sent: connecting is not part of the speed

    def show(self, progress: Progress) -> None:
        """Draw how far the copy is."""
        self._began = self._began or time.monotonic()
        self._line.show(line(progress, time.monotonic() - self._began, self._hosts))

    def clear(self) -> None:
        """Take the line away."""
        self._line.clear()


def line(progress: Progress, seconds: float, hosts: Sequence[str]) -> str:
    """Return the text of the line.

    >>> line(Progress(500_000_000, 1_000_000_000, 2), 5.0, ["a", "b"])
    '50 % of 1,000.0 MB, 100.0 MB/s, 5 s left, slowest disk: b'
    >>> line(Progress(500_000_000, 1_000_000_000, network=800_000_000), 5.0, ["a", "b"])
    '50 % of 1,000.0 MB, from source 100.0 MB/s, to hosts 800.0 MB/s, 5 s left'
    """
    share = 100 * progress.done // progress.total if progress.total else 100
    speed = progress.done / seconds if seconds else 0.0
    left = f", {(progress.total - progress.done) / speed:.0f} s left" if speed else ""
    slowest = f", slowest disk: {hosts[progress.slowest - 1]}" if progress.slowest else ""
    rate = f"{speed / 1e6:,.1f} MB/s"
    if progress.network:
        rate = f"from source {rate}, to hosts {progress.network / 1e6:,.1f} MB/s"
    return f"{share} % of {progress.total / 1e6:,.1f} MB, {rate}{left}{slowest}"
