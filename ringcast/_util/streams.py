"""Write all of a text to an inherited stream or raise, also if another process has made the stream non-blocking."""

from __future__ import annotations

import io
import os
import select
from typing import TextIO


def write_all(file: int, data: bytes) -> None:
    """Write `data` to a file descriptor; wait for a slow reader of a non-blocking one.

    Raises:
        BrokenPipeError: all readers have gone.
        OSError: the data cannot be written.
    """
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(file, rest) :]
        except BlockingIOError:
            _await_room(file)


def write_text(stream: TextIO, text: str) -> None:
    """Write `text` to one of Python's streams; its own `write` would lose text on a non-blocking file.

    Raises:
        BrokenPipeError: all readers have gone.
        OSError: the data cannot be written.
    """
    if (file := _non_blocking(stream)) is None:
        stream.write(text)
        return
    flush(stream)
    write_all(file, text.encode(stream.encoding or "utf-8", stream.errors or "replace"))


def flush(stream: TextIO) -> None:
    """Flush one of Python's streams; wait for a slow reader of a non-blocking one.

    Raises:
        BrokenPipeError: all readers have gone.
        OSError: the data cannot be written.
    """
    while True:
        try:
            stream.flush()
        except BlockingIOError:
            _await_room(stream.fileno())
        else:
            return


def _non_blocking(stream: TextIO) -> int | None:
    """Return the file descriptor of a stream if it has a non-blocking one; a notebook's stream has none of its own."""
    if not isinstance(stream, io.TextIOWrapper):
        return None
    try:
        file = stream.fileno()
    except OSError:
        return None
    return None if os.get_blocking(file) else file


def _await_room(file: int) -> None:
    poller = select.poll()
    poller.register(file, select.POLLOUT)
    poller.poll()
