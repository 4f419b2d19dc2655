"""A sink that holds an error back: from a rank's traceback on, until it is known which other ranks wrote the same.

What came before passes at once, and nothing overtakes anything: what the rank writes after its traceback waits with it.
"""

from __future__ import annotations

import re
import time
from math import inf

from ringcast_launcher.output.output import Sink

PATIENCE = 3.0  # seconds that an error waits while no rank has failed: a rank may write tracebacks and go on
MOST = 1 << 16  # bytes that are held; more is no error that ends a program
_HEADERS = (b"Traceback (most recent call last):", b"  + Exception Group Traceback", b'  File "', b"stopped at ")
_HEADER = re.compile(rb"^(?:" + b"|".join(map(re.escape, _HEADERS)) + rb")", re.MULTILINE)


class HeldErrors:
    """A sink in front of another one, of one rank's standard error."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._held = b""
        self._since = inf
        self._midline = False  # whether the last line that passed has not ended
        self._ended = False

    @property
    def due(self) -> float:
        """The time at which what is held has waited long enough."""
        return self._since + PATIENCE

    @property
    def text(self) -> str:
        """What is held, as whole lines; empty if nothing is."""
        return "".join(f"{line}\n" for line in self._held.decode("utf-8", "replace").splitlines())

    def feed(self, data: bytes) -> None:
        data, self._held = self._held + data, b""
        at = 0 if self._since < inf else self._begin(data)
        self._pass(data[:at])
        self._held = data[at:]
        if len(self._held) > MOST:
            self.release()

    def end(self) -> None:
        """Take note that no more comes; an error is still held until `release` or `drop`."""
        self._ended = True
        if self._since == inf:
            self.release()

    def release(self) -> None:
        """Let what is held go on to the sink."""
        held = self._held
        self.drop()
        self._pass(held)
        if self._ended:
            self._sink.end()

    def drop(self) -> None:
        """Forget what is held: it is shown elsewhere."""
        self._held, self._since = b"", inf

    def _pass(self, data: bytes) -> None:
        if data:
            self._midline = not data.endswith(b"\n")
            self._sink.feed(data)

    def _begin(self, data: bytes) -> int:
        """Return where an error begins in the data, or could begin with what comes next."""
        start = data.find(b"\n") + 1 or len(data) if self._midline else 0
        if found := _HEADER.search(data, start):
            self._since = time.monotonic()
            return found.start()
        last = max(data.rfind(b"\n") + 1, start)
        rest = data[last:]
        return last if rest and any(header.startswith(rest) for header in _HEADERS) else len(data)
