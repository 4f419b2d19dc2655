"""Decides which signals count once, as they came to several launchers and agents of a job at about the same time.

A batch system sends a signal to all that runs on all nodes: the launcher gets it, and hears of it from the others too.
Without this the second report of SIGTERM would be a second SIGTERM, which ends the grace period. A signal that comes
again from the same process is always another one.
"""

from __future__ import annotations

LAUNCHER = -1  # as a source: this process itself; others are the numbers of their hosts
WINDOW = 2.0  # seconds in which one request has reached all nodes


class SameSignal:
    """The latest signals of a job: when each first came, and from which sources since then."""

    def __init__(self) -> None:
        self._latest: dict[int, tuple[float, set[int]]] = {}

    def is_new(self, source: int, number: int, now: float) -> bool:
        """Return whether a signal that `source` got is none of those seen before; `now` is in seconds."""
        since, sources = self._latest.get(number, (0.0, {source}))
        if source in sources or now > since + WINDOW:
            self._latest[number] = now, {source}
            return True
        sources.add(source)
        return False
