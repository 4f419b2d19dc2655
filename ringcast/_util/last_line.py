"""Draw the last line of a terminal again and again, in place.

`Line` computes the bytes, for a program whose output another thread writes. `ProgressLine` writes them at once.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable

from ringcast._util.streams import write_all

PAUSE = 0.25  # seconds from one drawing to the next

_ERASE = b"\r\x1b[K"


def columns(file: int) -> int:
    """Return the width of a terminal; 0 while another program has it, such as the shell of a job in the background."""
    try:
        if os.tcgetpgrp(file) != os.getpgrp():
            return 0
    except OSError:  # not the terminal of our session, where no shell moves us to the background
        pass
    try:
        return os.get_terminal_size(file).columns or 80
    except OSError:
        return 0


class Line:
    """Computes the bytes that draw a text on the last line of a terminal, `file`; writes nothing itself.

    `width` returns the columns that can be used now, 0 if none.
    """

    def __init__(
        self, file: int, width: Callable[[int], int] = columns, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.file, self._width, self._clock = file, width, clock
        self._text = self._drawn = ""  # the text to show, and the text on the screen
        self._next = -math.inf

    def show(self, text: str) -> None:
        """Set the text to draw when it is due; an empty text removes the line."""
        self._text = text

    @property
    def due(self) -> float | None:
        """Seconds until `draw` is to be called; None if the terminal shows the text already."""
        return None if self._text == self._drawn else max(0.0, self._next - self._clock())

    def draw(self) -> bytes:
        """Return the bytes that draw the line, cut to the width of the terminal."""
        width = self._width(self.file)
        if not width:  # tried again after a pause
            self._next = self._clock() + PAUSE
            return b""
        self._next, self._drawn = self._clock() + PAUSE, self._text
        return _ERASE + self._text[: width - 1].encode("utf-8", "replace")

    def erase(self) -> bytes:
        """Return the bytes that erase the line until it is drawn again; empty if it is not drawn."""
        drawn, self._drawn = self._drawn, ""
        return _ERASE if drawn else b""


class ProgressLine:
    """The last line of a terminal, `file`, written at once by the thread that shows a text; nothing without a file."""

    def __init__(self, file: int | None) -> None:
        self._line = None if file is None else Line(file)

    def show(self, text: str) -> None:
        """Write this text in place of the one before.

        Raises:
            OSError: the terminal is gone.
        """
        if self._line is not None:
            self._line.show(text)
            write_all(self._line.file, self._line.draw())

    def clear(self) -> None:
        """Erase the line.

        Raises:
            OSError: the terminal is gone.
        """
        if self._line is not None:
            write_all(self._line.file, self._line.erase())
