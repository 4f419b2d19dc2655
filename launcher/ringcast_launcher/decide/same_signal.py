"""Decide which signals count once: a signal that came to several launchers and agents of a job at about the same time.

A batch system sends a signal to all processes on all nodes: the launcher gets it, and agents report it too. Without
this the second report of SIGTERM would count as a second SIGTERM, which ends the grace period. A signal that the same
process gets again always counts again.
"""

from __future__ import annotations

LAUNCHER = -1  # this process as a source of a signal; agents have the numbers of their hosts
WINDOW = 2.0  # seconds in which one request has reached all nodes


class SameSignal:
    """The latest signals of a job: when each first came, and from which sources since then."""

    def __init__(self) -> None:
        self._latest: dict[int, tuple[float, set[int]]] = {}

    def is_new(self, source: int, number: int, now: float) -> bool:
        """Return whether a signal that `source` got counts as a new one; `now` is in seconds."""
        since, sources = self._latest.get(number, (0.0, {source}))
        if source in sources or now > since + WINDOW:
            self._latest[number] = now, {source}
            return True
        sources.add(source)
        return False
