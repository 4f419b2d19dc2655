"""Hold a rank's standard error back from a traceback on, until it is known which other ranks wrote the same.

An interpreter's line about a missing module is held as well. Output before the error passes at once, and the order
stays: output after the error waits with it.
"""

from __future__ import annotations

import os
import re
import sys
import time
from math import inf

from ringcast_launcher.output.output import Sink

PATIENCE = 3.0  # seconds that an error waits while no rank has failed: a rank may write tracebacks and go on
MOST = 1 << 16  # bytes that are held; an error that ends a program is shorter
_REFUSAL = os.fsencode(f"{sys.executable}: ")  # of an interpreter that cannot run a program
_HEADERS = (
    b"Traceback (most recent call last):",
    b"  + Exception Group Traceback",
    b'  File "',
    b"stopped at ",
    _REFUSAL,
)
_HEADER = re.compile(rb"^(?:" + b"|".join(map(re.escape, _HEADERS)) + rb")", re.MULTILINE)
_TRACEBACK = re.compile(re.escape(_HEADERS[0]) + rb"\n")
_CHAINED = re.compile(rb"^(?:During handling of|The above exception was)[^\n]*\n\s*\Z", re.MULTILINE)


class HeldErrors:
    """A sink in front of another one, of one rank's standard error."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._held = b""
        self._since = inf
        self._midline = False  # whether the last line that passed has not ended, …
        self._bar = False  # … and is redrawn in place
        self._ended = False

    @property
    def due(self) -> float:
        """The time at which the held text has waited long enough."""
        return self._since + PATIENCE

    @property
    def text(self) -> str:
        """The last error that is held, as whole lines; empty if nothing is held."""
        error = self._held[_last_error(self._held) :]
        return "".join(f"{line}\n" for line in error.decode("utf-8", "replace").splitlines())

    def feed(self, data: bytes) -> None:
        data, self._held = self._held + data, b""
        at = 0 if self._since < inf else self._begin(data)
        self._pass(data[:at])
        if self._since < inf and self._midline:
            self._pass(b"\n")  # after the bar that the traceback follows
        self._held = data[at:]
        if len(self._held) > MOST:
            self.release()

    def end(self) -> None:
        """Take note that no more comes; an error is still held until `release` or `drop`."""
        self._ended = True
        if self._since == inf:
            self.release()

    def release(self) -> None:
        """Pass the held text on to the sink."""
        held, self._held, self._since = self._held, b"", inf
        self._pass(held)
        if self._ended:
            self._sink.end()

    def drop(self) -> None:
        """Forget the `text`, which is shown elsewhere; held output before that error goes on to the sink."""
        before, self._held, self._since = self._held[: _last_error(self._held)], b"", inf
        self._pass(before)

    def _pass(self, data: bytes) -> None:
        if data:
            line = data[data.rfind(b"\n") + 1 :]
            self._bar = bool(line) and (b"\r" in line or (self._bar and b"\n" not in data))
            self._midline = bool(line)
            self._sink.feed(data)

    def _begin(self, data: bytes) -> int:
        """Return the index at which an error begins in the data, or might begin once more data has come."""
        start = data.find(b"\n") + 1 or len(data) if self._midline else 0
        starts = [found.start() for found in (_HEADER.search(data, start), self._behind_bar(data)) if found]
        if starts:
            self._since = time.monotonic()
            return min(starts)
        last = max(data.rfind(b"\n") + 1, start)
        rest = data[last:]
        return last if rest and any(header.startswith(rest) for header in _HEADERS) else len(data)

    def _behind_bar(self, data: bytes) -> re.Match[bytes] | None:
        """Return the first traceback that follows a progress bar in the same line, as a bar ends no line."""
        for found in _TRACEBACK.finditer(data):
            line = data.rfind(b"\n", 0, found.start()) + 1
            if b"\r" in data[line : found.start()] or (line == 0 and self._bar):
                return found
        return None


def _last_error(held: bytes) -> int:
    """Return the index at which the last error begins; the tracebacks of a chain of exceptions are one error."""
    starts = [found.start() for found in _HEADER.finditer(held) if not _is_inside(held, found.start())]
    while len(starts) > 1 and _CHAINED.search(held[starts[-2] : starts[-1]]):
        starts.pop()
    return starts[-1] if starts else 0


def _is_inside(held: bytes, at: int) -> bool:
    """Return whether a frame begins at `at` as a later line of an error, not as its first line."""
    above = held[:at].splitlines()[-1:]
    return held.startswith(b'  File "', at) and bool(above) and above[0].startswith((b" ", _HEADERS[0]))
