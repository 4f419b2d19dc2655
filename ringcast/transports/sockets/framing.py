"""Write and parse messages on a byte stream: the number of frames and their lengths, u32 little-endian, and the frames.

Under TLS a message travels in records of `RECORD` bytes, with a shorter last one: so the lengths determine how many
bytes of the connection the message takes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from ringcast.net.tls import RECORD
from ringcast.transports.base import Frame
from ringcast.wire.header import LARGEST_FRAME

ONE = struct.Struct("<II")  # prefix of a message of one frame
_COUNT = struct.Struct("<I")
START = ONE.size  # bytes of a message that must have come before its lengths can be known
MOST_FRAMES = LARGEST_FRAME // 4
LARGEST_MESSAGE = 16 * LARGEST_FRAME  # bytes; more closes the connection
_PIECE = 16 * RECORD  # bytes that TLS encrypts at once
_BUFFERS = 1000  # buffers in one call of the kernel, whose limit is 1024


class Malformed(ConnectionError):
    """The peer sent bytes that are no message, or a message longer than any member sends."""


def lengths(frames: Sequence[Frame]) -> tuple[bytes, int]:
    """Return the prefix with the frames' lengths, and the length of the whole message."""
    if len(frames) == 1:
        size = len(frames[0])
        return ONE.pack(1, size), START + size
    sizes = [len(frame) for frame in frames]
    return struct.pack(f"<{len(sizes) + 1}I", len(sizes), *sizes), 4 * (len(sizes) + 1) + sum(sizes)


def start_of(memory: bytearray, at: int) -> tuple[int, tuple[int, ...] | None]:
    """Return the size of the prefix of the message that starts at `at`; and for one frame also the frame's length.

    Raises:
        Malformed: this is no message.
    """
    count, first = ONE.unpack_from(memory, at)
    if count == 1:
        if first > LARGEST_FRAME:
            raise Malformed(f"a frame of {first} bytes")
        return START, (first,)
    if not 1 < count <= MOST_FRAMES:
        raise Malformed(f"a message of {count} frames")
    return 4 * (count + 1), None


def sizes_of(memory: bytearray, at: int, prefix: int) -> tuple[int, ...]:
    """Return the lengths of a message's frames; `prefix` is the size of the message's prefix.

    Raises:
        Malformed: a frame, or the whole message, is too long.
    """
    sizes = struct.unpack_from(f"<{prefix // 4 - 1}I", memory, at + _COUNT.size)
    if max(sizes) > LARGEST_FRAME or sum(sizes) > LARGEST_MESSAGE:
        raise Malformed(f"frames of {max(sizes)} bytes at most, together {sum(sizes)}")
    return sizes


def in_buffers(message: Sequence[Frame]) -> Sequence[Frame]:
    """Return the pieces in which a message goes to the kernel."""
    return message if len(message) <= _BUFFERS else [b"".join(message)]


def in_records(message: Sequence[Frame]) -> Iterator[Frame]:
    """Yield the pieces in which a message is encrypted: records of full length, except the last one.

    Only bytes of records with parts of several frames are copied.
    """
    begun = bytearray()  # of a record
    for frame in message:
        view, at = memoryview(frame), 0
        if begun:
            at = min(RECORD - len(begun), len(view))
            begun += view[:at]
            if len(begun) == RECORD:
                yield begun
                begun = bytearray()
        whole = at + (len(view) - at) // RECORD * RECORD
        while at < whole:
            end = min(at + _PIECE, whole)
            yield view[at:end]
            at = end
        if at < len(view):
            begun += view[at:]
    if begun:
        yield begun
