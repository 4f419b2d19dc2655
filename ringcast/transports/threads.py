"""Move messages in memory between ranks that are threads of one process. For notebooks and tests."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Sequence

from ringcast.errors import LinkLost
from ringcast.procs.portable import Bell
from ringcast.transports.base import Frame, MemoryArrival, NoLoans


class ThreadHub:
    """The inboxes of all ranks of one job; `transport(rank)` gives each rank its end."""

    def __init__(self, size: int) -> None:
        self.inboxes = [_Inbox() for _ in range(size)]

    def transport(self, rank: int) -> ThreadTransport:
        return ThreadTransport(self, rank)


class _Inbox:
    def __init__(self) -> None:
        self.messages: queue.SimpleQueue[Sequence[Frame]] = queue.SimpleQueue()
        self.open = True
        self.bell: Bell | None = None  # made only for callers that wait with select or asyncio
        self.lock = threading.Lock()  # so that no thread rings a bell that is being closed

    def put(self, frames: Sequence[Frame]) -> None:
        self.messages.put(frames)
        if self.bell is not None:
            with self.lock:
                if self.bell is not None:
                    self.bell.ring()


class ThreadTransport(NoLoans):
    """One rank's end of a `ThreadHub`; fulfils `Transport`."""

    clock = staticmethod(time.monotonic)

    def __init__(self, hub: ThreadHub, rank: int) -> None:
        self._hub, self._inbox = hub, hub.inboxes[rank]

    def send(self, peer: int, frames: Sequence[Frame]) -> None:
        inbox = self._hub.inboxes[peer]
        if not inbox.open:
            raise LinkLost(peer, "that rank has closed its inbox")
        # A copy: after an error the sender may change its buffer, while these frames still wait here.
        inbox.put([frame if isinstance(frame, bytes) else bytes(frame) for frame in frames])

    def connect(self, peers: Sequence[int]) -> None:
        """Do nothing: all inboxes are in this process."""

    def poll(self, deadline: float | None) -> MemoryArrival | None:
        inbox = self._inbox
        try:
            if deadline is None:
                return MemoryArrival(inbox.messages.get())
            return MemoryArrival(inbox.messages.get(timeout=max(0.0, deadline - self.clock())))
        except queue.Empty:
            if inbox.bell is None:
                return None
        inbox.bell.silence()
        try:  # a message that came before the bell was silenced does not ring it again
            return MemoryArrival(inbox.messages.get_nowait())
        except queue.Empty:
            return None

    def inject(self, frames: Sequence[bytes]) -> None:
        self._inbox.put(frames)

    def fileno(self) -> int:
        if self._inbox.bell is None:
            self._inbox.bell = Bell(rung=True)
        return self._inbox.bell.fileno()

    def close(self, within: float | None = None) -> None:  # noqa: ARG002 (messages are delivered already)
        self._inbox.open = False
        with self._inbox.lock:
            bell, self._inbox.bell = self._inbox.bell, None
            if bell is not None:
                bell.close()
