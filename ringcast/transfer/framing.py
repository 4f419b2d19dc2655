"""Announce the lengths of compressed pieces to the ranks before the pieces arrive.

A buffer must be as long as the message that will arrive in it. So each message of a compressed segment ends with the
length of the payload that comes AHEAD messages later; the first lengths are announced. Where no piece is compressed,
lengths follow from the layout, and messages are payloads only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from ringcast.errors import TransferError
from ringcast.ops import Array
from ringcast.transfer.records import WRONG

AHEAD = 3  # messages: as many broadcasts run at the same time
TRAILER = 8  # bytes


def write_trailer(message: Array, length: int) -> None:
    """Write a length into the last bytes of a message."""
    message[-TRAILER:].data[:] = length.to_bytes(TRAILER, "little")


class Lengths:
    """The message lengths of a segment that a rank knows so far."""

    def __init__(self, first: Sequence[int], plain: Sequence[int]) -> None:
        """Begin with the lengths of the first payloads; `plain` are the pieces' plain lengths, the payloads' bounds.

        Raises:
            TransferError: `first` has another number of lengths, or a length is 0 or longer than its piece.
        """
        self._plain = iter(plain)
        self._known: deque[int] = deque()
        if len(first) != min(AHEAD, len(plain)):
            raise TransferError(f"{WRONG}: lengths of {len(first)} of the first pieces, of {len(plain)}")
        for length in first:
            self._take_note(length)

    def next_message(self) -> int:
        """Return the length of the next message."""
        return self._known.popleft() + TRAILER

    def payload(self, message: Array) -> Array:
        """Take note of a message's trailer, and return the message without it.

        Raises:
            TransferError: the trailer cannot be the length of a payload.
        """
        self._take_note(int.from_bytes(message[-TRAILER:].tobytes(), "little"))
        return message[:-TRAILER]

    def _take_note(self, length: int) -> None:
        plain = next(self._plain, None)
        if plain is None:  # the last messages have nothing to announce
            return
        if not 0 < length <= plain:
            raise TransferError(f"{WRONG}: a payload of {length:,} bytes for a piece of {plain:,}")
        self._known.append(length)
