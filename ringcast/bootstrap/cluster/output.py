"""What the ranks of a cluster print: shown in this process, in whole lines with the rank before them."""

from __future__ import annotations

import os
import sys
from collections import deque

from ringcast._util.streams import flush, write_text

CHUNK = 1 << 16
MOST = 1 << 20  # bytes: no pipe holds more, unless a privileged process asks for it
TAIL = 60  # lines that are kept


class Stream:
    """One of the two output streams of a rank; `file` does not block."""

    def __init__(self, rank: int, file: int, name: str) -> None:
        os.set_blocking(file, False)
        self.file = file
        self._rank, self._name = rank, name
        self._rest = b""  # of a line
        self.tail: deque[str] = deque(maxlen=TAIL)
        self.open = True

    def take(self) -> int:
        """Show what has come, at most CHUNK bytes, and return how many there were."""
        try:
            data = os.read(self.file, CHUNK)
        except BlockingIOError:
            return 0
        self.open = self.open and bool(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._show(lines)
        return len(data)

    def drain(self) -> None:
        """Show all that was printed by now, the beginning of a line too."""
        taken = 0
        while taken < MOST and (size := self.take()):
            taken += size
        if self._rest:
            rest, self._rest = self._rest, b""
            self._show([rest])

    def _show(self, lines: list[bytes]) -> None:
        if not lines:
            return
        text = "".join(f"[{self._rank}] {line.decode(errors='replace')}\n" for line in lines)
        self.tail += text.splitlines(keepends=True)
        sink = getattr(sys, self._name)  # as it is now: a notebook's has the cell that runs
        if sink is not None:
            write_text(sink, text)
            flush(sink)
