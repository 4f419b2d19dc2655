"""Simulate a wire with a virtual clock: all ranks live in one thread, and every run is the same.

A message of b bytes leaves when the sender's outgoing and the receiver's incoming link are free (one-ported), occupies
both for `beta * b` seconds, and arrives `alpha` seconds after that. Small messages (grants, completions) wait for no
link, only for earlier messages between the same two ranks: real connections share a link, so that none waits for
another's megabytes.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence

from ringcast.errors import LinkLost
from ringcast.transports.base import Frame, MemoryArrival, NoLoans

SMALL = 1 << 10  # bytes of a message that does not wait for a link


class SimulatedWire:
    """The links of all ranks and their common clock, in seconds from 0."""

    def __init__(self, size: int, *, alpha: float = 1e-4, beta: float = 1e-9) -> None:
        self.now = 0.0
        self.alpha, self.beta = alpha, beta
        self.ends = [SimulatedTransport(self, rank) for rank in range(size)]
        self._flying: list[tuple[float, int, int, list[bytes]]] = []  # (arrival, number, destination, frames)
        self._count = 0
        self._out_free = [0.0] * size
        self._in_free = [0.0] * size
        self._last: dict[tuple[int, int], float] = {}  # time of the last message from one rank to another

    def carry(self, source: int, peer: int, frames: list[bytes]) -> None:
        """Put a message onto the wire now."""
        size, start = sum(map(len, frames)), max(self.now, self._last.get((source, peer), 0.0))
        if size > SMALL:
            start = max(start, self._out_free[source], self._in_free[peer])
        end = self._last[source, peer] = start + self.beta * size
        if size > SMALL:
            self._out_free[source] = self._in_free[peer] = end
        self._count += 1  # breaks ties, so that equal times keep the order of sending
        heapq.heappush(self._flying, (end + self.alpha, self._count, peer, frames))

    def deliver(self, until: float | None = None) -> int | None:
        """Move the clock to the next arrival, put the message into its inbox, and return the inbox's rank.

        Returns None, with the clock at `until`, when nothing arrives by then (or ever).
        """
        if not self._flying or (until is not None and self._flying[0][0] > until):
            self.now = max(self.now, until or 0.0)
            return None
        self.now, _, peer, frames = heapq.heappop(self._flying)
        self.ends[peer].inbox.append(frames)
        return peer


class SimulatedTransport(NoLoans):
    """One rank's end of a `SimulatedWire`; fulfils `Transport`. Nothing really waits: `poll` moves the clock."""

    def __init__(self, wire: SimulatedWire, rank: int) -> None:
        self._wire, self._rank = wire, rank
        self.inbox: deque[Sequence[Frame]] = deque()
        self._open = True

    def send(self, peer: int, frames: Sequence[Frame]) -> None:
        if not self._wire.ends[peer]._open:
            raise LinkLost(peer, "that rank has closed its inbox")
        # A copy, as a real transport has taken the bytes out of the buffer by the time `send` returns.
        self._wire.carry(self._rank, peer, [f if isinstance(f, bytes) else bytes(f) for f in frames])

    def connect(self, peers: Sequence[int]) -> None:
        """Do nothing: every rank reaches every other."""

    def poll(self, deadline: float | None) -> MemoryArrival | None:
        while not self.inbox:
            if deadline is not None and deadline <= self._wire.now:
                return None
            if self._wire.deliver(deadline) is None:
                return None
        return MemoryArrival(self.inbox.popleft())

    def inject(self, frames: Sequence[bytes]) -> None:
        self.inbox.append(frames)

    def fileno(self) -> int:
        raise OSError("the simulated wire has no file descriptor: its time passes only inside poll")

    def clock(self) -> float:
        return self._wire.now

    def close(self, within: float | None = None) -> None:  # noqa: ARG002 (there is no time to lose)
        self._open = False
        self.inbox.clear()
