"""Framing: how ranks know the lengths of compressed pieces before they arrive.

A buffer must be as long as what will arrive in it. So each message of a segment that is compressed ends with the length
of the payload that comes AHEAD messages later; the first lengths are announced. Where no piece is compressed, lengths
follow from the layout, and messages are payloads only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from ringcast.ops import Array

AHEAD = 3  # messages: as many as are under way
TRAILER = 8  # bytes


def write_trailer(message: Array, length: int) -> None:
    """Let a message end with a length."""
    message[-TRAILER:].data[:] = length.to_bytes(TRAILER, "little")


class Lengths:
    """Lengths of the messages of a segment, as they get known on a rank."""

    def __init__(self, first: Sequence[int]) -> None:
        self._known = deque(first)

    def next_message(self) -> int:
        """Return the length of the next message."""
        return self._known.popleft() + TRAILER

    def payload(self, message: Array) -> Array:
        """Return a message without its trailer, which is noted."""
        self._known.append(int.from_bytes(message[-TRAILER:].tobytes(), "little"))
        return message[:-TRAILER]
