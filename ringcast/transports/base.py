"""The contract of a transport: moves messages of frames between ranks, and knows nothing of schedules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

Frame: TypeAlias = "bytes | bytearray | memoryview"


class Arrival(Protocol):
    """One message that has arrived; valid until the next `poll`, which drops what was not read."""

    @property
    def header(self) -> bytes:
        """The first frame."""

    @property
    def more(self) -> bool:
        """Whether unread frames follow."""

    def read(self) -> Frame:
        """Return the next frame in memory of its own."""

    def read_into(self, view: memoryview) -> int:
        """Put the next frame into `view` and return the frame's size in bytes.

        A frame that is longer than `view` is cut, and its true size returned: callers compare.
        """


class Transport(Protocol):
    """Moves messages between the ranks of one job. One thread uses it at a time, except for `inject`."""

    def send(self, peer: int, frames: Sequence[Frame]) -> None:
        """Queue `frames` as one message to `peer`; never blocks.

        Frames are C-contiguous bytes, and copied before this returns: a memoryview is the user's again then, as senders
        with `lookahead` do not wait for completion. Messages to one peer arrive whole and in order, or not at all. A
        connection is opened when `peer` is first named, here or in `connect`; a frame that is not well below
        `wire.LARGEST_FRAME` may be its end.

        Raises:
            LinkLost: the connection to `peer` is gone; nothing of this message arrives.
        """

    def connect(self, peers: Sequence[int]) -> None:
        """Open connections to `peers` now, so that the first message does not pay for it; never blocks."""

    def poll(self, deadline: float | None) -> Arrival | None:
        """Return the next arrival, waiting until `deadline` on this transport's clock (None: as long as it takes).

        Returns None at the deadline. A deadline in the past looks once and does not wait. May return None earlier
        on an interruption; callers loop.
        """

    def inject(self, frames: Sequence[bytes]) -> None:
        """Put a message from the control plane into this rank's own inbox; from any thread; wakes `poll`."""

    def fileno(self) -> int:
        """Return a file descriptor that becomes readable when something arrives (look with `poll` before waiting)."""

    def clock(self) -> float:
        """Return the time in seconds on which deadlines are measured."""

    def close(self, hurry: bool = False) -> None:
        """Give back everything: sockets, threads, files. What was sent is delivered if the peer still listens,
        within a bounded time, which is short with `hurry`. Idempotent; always closes, even if it fails.
        """


class MemoryArrival:
    """A message whose frames are already in this process's memory."""

    __slots__ = ("_frames", "_next", "header")

    def __init__(self, frames: Sequence[Frame]) -> None:
        self._frames, self._next = frames, 1
        self.header = bytes(frames[0])

    @property
    def more(self) -> bool:
        return self._next < len(self._frames)

    def read(self) -> Frame:
        frame = self._frames[self._next]
        self._next += 1
        return frame if isinstance(frame, bytes) else bytes(frame)

    def read_into(self, view: memoryview) -> int:
        frame = self._frames[self._next]
        self._next += 1
        size = min(len(frame), len(view))
        view[:size] = frame[:size]
        return len(frame)
