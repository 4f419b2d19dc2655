"""Output of the ranks of a cluster, shown as it comes, with the rank before each line.

On a terminal and in a notebook an unfinished line is shown too, and drawn again as it changes: a progress bar moves.
Only one line can be drawn in place. It belongs to the first rank that begins one; whole lines of other ranks are put
before it, and their unfinished ones wait until they are whole. Elsewhere, as in a file, whole lines are written.
"""

from __future__ import annotations

import os
import sys
from collections import deque

from ringcast._util.redrawn import RETURN, as_shown, plain_text, shortened, without_orders
from ringcast._util.streams import flush, write_text

TAIL = 60  # lines that are kept
NOTEBOOK = 88  # columns that each notebook has


def width(name: str) -> int:
    """Return the columns of one of this process's streams, if a line can be drawn again there; else 0."""
    sink = getattr(sys, name)
    if type(sink).__module__.partition(".")[0] == "ipykernel":
        return NOTEBOOK
    try:
        return os.get_terminal_size(sink.fileno()).columns or 80
    except (AttributeError, OSError, ValueError):  # there is none, or it is no terminal, or closed
        return 0


class Screen:
    """One of this process's output streams, on which the ranks' lines are shown."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._owner: Stream | None = None  # of the line that is not finished
        self._drawn = ""

    def show(self, stream: Stream, lines: list[str], rest: str) -> None:
        """Show whole lines of a stream, and the beginning of the next one, as far as there is room for it."""
        text = ""
        if lines and self._owner is not stream:
            text = "\n".join([self._over(lines[0]), *lines[1:], self._drawn])
        elif lines:
            text = self._continued(lines[0]) + "\n" + "".join(f"{line}\n" for line in lines[1:])
            self._owner, self._drawn = None, ""
        if rest and self._owner in (None, stream) and width(self._name):
            self._owner, text = stream, text + self._continued(rest)
        self._write(text)

    def draws(self, stream: Stream) -> bool:
        """Return whether the line that is not finished is the stream's."""
        return self._owner is stream

    def _over(self, line: str) -> str:
        """Return the text that draws a line over the drawn one and leaves the cursor at its end."""
        if not self._drawn:
            return line
        blank = f"\r{'':{len(self._drawn)}}" if len(line) < len(self._drawn) else ""
        return f"{blank}\r{line}"

    def _continued(self, line: str) -> str:
        """Return the text that turns the drawn line into `line`; note `line` as the drawn one."""
        text = line[len(self._drawn) :] if line.startswith(self._drawn) else self._over(line)
        self._drawn = line
        return text

    def _write(self, text: str) -> None:
        sink = getattr(sys, self._name)  # as it is now: a notebook's has the cell that runs
        if text and sink is not None:
            write_text(sink, text)
            flush(sink)


class Stream:
    """One of the two output streams of a rank."""

    def __init__(self, rank: int, screen: Screen) -> None:
        self._rank, self._screen = rank, screen
        self._rest = b""  # of a line
        self.tail: deque[str] = deque(maxlen=TAIL)

    def feed(self, data: bytes) -> None:
        """Show the next bytes."""
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = shortened(rest) if RETURN in rest else rest
        self._show(lines)

    def end_line(self) -> None:
        """End the line that is not finished."""
        rest, self._rest = self._rest, b""
        if plain_text(rest) or self._screen.draws(self):
            self._show([rest])

    def _show(self, lines: list[bytes]) -> None:
        whole = [f"[{self._rank}] {_shown(line)}" for line in lines]
        self.tail += (f"{line}\n" for line in whole)
        rest = plain_text(self._rest)
        begun = rest or (self._rest and not lines and self._screen.draws(self))  # it may have become blank
        self._screen.show(self, whole, f"[{self._rank}] {rest}" if begun else "")


def _shown(line: bytes) -> str:
    """Return a whole line as a terminal shows it at the end, with its colours."""
    return without_orders(as_shown(line).rstrip(RETURN).decode(errors="replace"))
