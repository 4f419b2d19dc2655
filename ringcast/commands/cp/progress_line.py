"""Draw a copy's progress as one line of a terminal: share, speed, time left and the slowest host."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import TextIO

from ringcast.transfer.report import Progress


class ProgressLine:
    """A line that is redrawn in place; nothing is drawn unless `stream` is a terminal."""

    def __init__(self, stream: TextIO, hosts: Sequence[str]) -> None:
        self._stream, self._hosts = stream, hosts
        self._shown = stream.isatty()
        self._began: float | None = None  # when the first bytes were sent: connecting is not part of the speed
        self._drawn = False

    def show(self, progress: Progress) -> None:
        """Draw how far the copy is."""
        if not self._shown:
            return
        self._began = self._began or time.monotonic()
        text = line(progress, time.monotonic() - self._began, self._hosts)
        width = os.get_terminal_size(self._stream.fileno()).columns or 80
        self._stream.write(f"\r{text[: width - 1]}\x1b[K")
        self._stream.flush()
        self._drawn = True

    def clear(self) -> None:
        """Take the line away."""
        if self._drawn:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
        self._drawn = False


def line(progress: Progress, seconds: float, hosts: Sequence[str]) -> str:
    """Return the text of the line.

    >>> line(Progress(500_000_000, 1_000_000_000, 2), 5.0, ["a", "b"])
    '50 % of 1,000.0 MB, 100.0 MB/s, 5 s left, slowest disk: b'
    """
    share = 100 * progress.done // progress.total if progress.total else 100
    speed = progress.done / seconds if seconds else 0.0
    left = f", {(progress.total - progress.done) / speed:.0f} s left" if speed else ""
    slowest = f", slowest disk: {hosts[progress.slowest - 1]}" if progress.slowest else ""
    return f"{share} % of {progress.total / 1e6:,.1f} MB, {speed / 1e6:,.1f} MB/s{left}{slowest}"
