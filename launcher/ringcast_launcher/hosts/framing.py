"""Encode and decode messages in the stream of bytes between the launcher and its agent on another host.

A message is a length (4 bytes) and that many bytes of msgpack. The output of an agent begins with a mark: a login
shell may have written something before it, which is kept as noise, since it may tell why the agent did not start.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import msgpack

from ringcast.wire import codec
from ringcast.wire.codec import CodecError

MARK = b"\nringcast-agent 1\n"
LARGEST = 64 << 20  # bytes of a message, from a peer that has shown the key …
PIECE = 1 << 18  # … and of its frames on a socket open to others, which need memory before the peer shows the key
MOST_NOISE = 1 << 16  # bytes before the mark that are kept
_LENGTH = struct.Struct("<I")


def encode(message: Any) -> bytes:
    """Return a message of plain values as bytes, with its length before it."""
    data = pack(message)
    return _LENGTH.pack(len(data)) + data


def pack(message: Any) -> bytes:
    """Return a message of plain values as bytes."""
    data: bytes = msgpack.packb(message, unicode_errors="surrogateescape")  # arguments and paths need not be UTF-8
    return data


class Frames:
    """Cuts a byte stream into messages; `noise` is the data before the mark, if one is expected."""

    def __init__(self, *, marked: bool) -> None:
        self.noise = b""
        self._waiting = marked
        self._data = bytearray()

    @property
    def begun(self) -> bool:
        """True once the mark has arrived."""
        return not self._waiting

    def feed(self, data: bytes) -> list[Any]:
        """Return the messages that `data` completes.

        Raises:
            CodecError: the data is no message.
        """
        self._data += data
        if self._waiting and not self._find_mark():
            return []
        found = []
        while (end := self._end()) is not None:
            found.append(unpack(bytes(self._data[_LENGTH.size : end])))
            del self._data[:end]
        return found

    def _find_mark(self) -> bool:
        at = self._data.find(MARK)
        if at < 0:
            self.noise = bytes(self._data[-MOST_NOISE:])
            del self._data[:-MOST_NOISE]
            return False
        self.noise = bytes(self._data[:at])
        del self._data[: at + len(MARK)]
        self._waiting = False
        return True

    def _end(self) -> int | None:
        """Return where the first message ends; None if it is not there yet."""
        if len(self._data) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._data)
        if length > LARGEST:
            raise CodecError(f"a message of {length} bytes was announced")
        end: int = _LENGTH.size + length
        return end if len(self._data) >= end else None


def unpack(data: bytes) -> Any:
    """Return the message that `pack` encoded.

    Raises:
        CodecError: the data is no message.
    """
    return codec.unpack(data, unicode_errors="surrogateescape")


def cut(message: Any) -> list[bytes]:
    """Return a message of plain values as frames of at most `PIECE` bytes, at least one."""
    data = pack(message)
    return [data[start : start + PIECE] for start in range(0, len(data), PIECE)]


def joined(frames: Sequence[bytes]) -> Any:
    """Return the message that `cut` cut into frames.

    Raises:
        CodecError: the frames are no message, or the message is too long.
    """
    if (length := sum(map(len, frames))) > LARGEST:
        raise CodecError(f"a message of {length} bytes came")
    return unpack(b"".join(frames))
