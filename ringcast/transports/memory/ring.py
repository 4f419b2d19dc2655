"""Write and read messages of frames, in order, on a ring of bytes in shared memory with one writer and one reader.

A message begins with a word: the number of its frames, marks, and its bytes. The sizes of the frames follow if there
are several, then the frames. Messages do not wrap around the end: one that does not fit there begins at the start.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TypeAlias

from ringcast.transports.base import Frame
from ringcast.transports.memory.segment import LARGEST, RING

_WORD = 8
_MASK = RING - 1
_FRAMES, _LENT = 40, 1 << 39  # of the first word: the first bit of the number of frames; the mark of lent memory
_SIZE = _LENT - 1
_SKIP = (1 << 64) - 1  # in place of a message: the next one is at the start; all bits of a word
# An empty ring whose position is beyond this starts afresh, so that it uses few pages. The skipped bytes count as used
# until the reader has passed them; the bytes that are left hold more than a rank may send unasked.
_AFRESH = 5 << 18

Loans: TypeAlias = "Sequence[tuple[int, int]]"  # address and size of pieces of the sender's memory
_LOAN = struct.Struct("<QQ")


class RingWriter:
    """The writer's end. `tails` and `heads` are the tables of the reader's segment."""

    __slots__ = ("_heads", "_index", "_ring", "_tails", "_words")

    def __init__(self, ring: memoryview, tails: memoryview[int], heads: memoryview[int], index: int) -> None:
        self._ring, self._words = ring, ring.cast("Q")
        self._tails, self._heads, self._index = tails, heads, index

    @property
    def empty(self) -> bool:
        """Whether the reader has read everything."""
        return self._heads[self._index] == self._tails[self._index]

    def put(self, frames: Sequence[Frame], lent: Frame = b"") -> bool:
        """Write a message, and return True; False if there is no room now. `lent` describes memory lent with it.

        Raises:
            ValueError: the message is larger than a ring.
        """
        count = len(frames) + bool(lent)
        if count == 1:
            size = len(frames[0])
        else:
            frames = [*frames, lent] if lent else frames
            sizes = struct.pack(f"<{count}Q", *map(len, frames))
            frames = [sizes, *frames]
            size = sum(map(len, frames))
        if size > LARGEST:
            raise ValueError(f"a message of {size} bytes; {LARGEST} fit into the ring")
        room = _WORD + (size + 7 & -8)
        tail = self._place(room)
        if tail < 0:
            return False
        at = tail & _MASK
        self._words[at >> 3] = count << _FRAMES | size | (_LENT if lent else 0)
        at += _WORD
        for frame in frames:
            end = at + len(frame)
            self._ring[at:end] = frame
            at = end
        self._tails[self._index] = tail + room & _SKIP
        return True

    def _place(self, size: int) -> int:
        """Return the count of bytes behind which `size` bytes may be written; -1 if there is no room now."""
        tail, head = self._tails[self._index], self._heads[self._index]
        at = tail & _MASK
        if at + size > RING or (tail == head and at >= _AFRESH and at >= size):  # else it does not fit before `at`
            if tail + RING - at + size - head > RING:
                return -1
            self._words[at >> 3] = _SKIP
            return tail + RING - at
        return tail if tail + size - head <= RING else -1


class RingReader:
    """The reader's end; it notes its position in the tables of its segment, where the writer reads it."""

    __slots__ = ("_heads", "_index", "_ring", "_words", "next")

    def __init__(self, ring: memoryview, heads: memoryview[int], index: int) -> None:
        self._ring, self._words = ring, ring.cast("Q")
        self._heads, self._index = heads, index
        self.next = 0  # where the message behind the one that was taken begins

    def take(self, tail: int) -> tuple[list[memoryview], Loans]:
        """Return the frames of the next message, which are valid until `release`, and the memory lent with it.

        Raises:
            ValueError: the bytes up to `tail` are no message.
        """
        head = self._heads[self._index]
        at = head & _MASK
        word = self._words[at >> 3]
        if word == _SKIP:
            head += RING - at
            at = 0
            word = self._words[0]
        size = word & _SIZE
        begin, end = at + _WORD, at + _WORD + size
        following, count = head + (end - at + 7 & -8), word >> _FRAMES
        if end > RING or following > tail:
            raise ValueError(f"a message of {size} bytes where {tail - head} were written")
        if size < _WORD * count and count != 1:
            raise ValueError(f"{count} frames in a message of {size} bytes")
        self.next = following
        if count == 1:
            return [self._ring[begin:end]], ()
        sizes = struct.unpack_from(f"<{count}Q", self._ring, begin)
        begin += _WORD * count
        frames = []
        for size in sizes:
            frames.append(self._ring[begin : begin + size])
            begin += size
        if not count or begin != end:
            raise ValueError(f"{count} frames that end at {begin}, not {end}")
        if not word & _LENT:
            return frames, ()
        lent = frames.pop()
        if not lent or len(lent) % _LOAN.size:
            raise ValueError(f"lent memory that {len(lent)} bytes describe")
        return frames, list(_LOAN.iter_unpack(lent))

    def release(self) -> None:
        """Return the room of the last taken message to the writer."""
        self._heads[self._index] = self.next

    def skip(self, tail: int) -> None:
        """Take all bytes up to `tail` as one message, which is dropped."""
        self.next = tail


def pack_loans(loans: Loans) -> bytes:
    """Return the description of lent memory as bytes for a message."""
    return b"".join(_LOAN.pack(*loan) for loan in loans)
