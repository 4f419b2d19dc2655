"""Messages between the caller of a pool and its master's process, on a Unix socket in a folder of this user alone."""

from __future__ import annotations

import io
import os
import pickle
import queue
import socket
import struct
import threading
import weakref
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, TypeAlias

import numpy as np

from ringcast.pool.messages import Frames

_COUNT = struct.Struct("<I")  # frames, with the pickle of the messages
_SMALL = 16 << 10  # bytes of a frame that is in the pickle
_JOINED = 64 << 10  # bytes that are sent as one
_TOGETHER = 200  # messages at most
Outgoing: TypeAlias = "queue.SimpleQueue[tuple[Any, Frames] | None]"
_open: weakref.WeakSet[Link] = weakref.WeakSet()


class Link:
    """One end. Any thread may send, and never waits: a thread of the link does; one thread receives."""

    def __init__(self, connection: socket.socket, outgoing: Outgoing | None = None) -> None:
        """Send what comes into the queue, and end after None, or when the other end is gone."""
        connection.setblocking(True)
        self._connection = connection
        self._file = io.BufferedReader(connection.makefile("rb", buffering=0), 1 << 16)
        self.outgoing: Outgoing = outgoing or queue.SimpleQueue()
        self._writer = threading.Thread(target=self._write, name="pool-link", daemon=True)
        self._writer.start()
        _open.add(self)

    def send(self, message: Any, frames: Frames = ()) -> None:
        """Send a message, soon; nothing if the other end is gone, which `receive` shows."""
        self.outgoing.put((message, frames))

    def join(self) -> None:
        """Wait until all is sent, after None."""
        self._writer.join()

    def _write(self) -> None:
        """Send messages; all that have come meanwhile go together."""
        with suppress(OSError):
            while (one := self.outgoing.get()) is not None:
                batch = [one]
                while len(batch) < _TOGETHER and not self.outgoing.empty():
                    if (another := self.outgoing.get()) is None:
                        self._send(batch)
                        return
                    batch.append(another)
                self._send(batch)
                del one, batch

    def _send(self, messages: Sequence[tuple[Any, Frames]]) -> None:
        """Send messages as one pickle, with the large frames after it."""
        large: list[memoryview] = []
        told = [(message, [_within(frame, large) for frame in frames]) for message, frames in messages]
        run = [memoryview(pickle.dumps(told, 5)), *large]
        parts: list[Any] = [struct.pack(f"<I{len(run)}Q", len(run), *map(len, run)), *run]
        if sum(map(len, parts)) <= _JOINED:
            self._connection.sendall(b"".join(parts))
            return
        for part in parts:
            self._connection.sendall(part)

    def receive(self) -> list[tuple[Any, Frames]]:
        """Return the next messages, one at least.

        Raises:
            EOFError: the other end is gone.
        """
        try:
            (count,) = _COUNT.unpack(self._read(_COUNT.size))
            sizes = struct.unpack(f"<{count}Q", self._read(8 * count))
            body, *large = [self._read(size) for size in sizes]
        except OSError as error:
            raise EOFError from error
        rest = iter(large)
        told = pickle.loads(body)
        return [(message, [next(rest) if each is None else each for each in frames]) for message, frames in told]

    def _read(self, size: int) -> Any:
        if size < _JOINED:
            data = self._file.read(size)
            if len(data) < size:
                raise EOFError
            return data
        memory = np.empty(size, np.uint8)
        if self._file.readinto(memory.data) < size:
            raise EOFError
        return memory

    def shut(self) -> None:
        """End the waits of both ends; idempotent."""
        self.outgoing.put(None)
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Give the socket back; called by the thread that receives."""
        self.shut()
        self._writer.join()
        self._file.close()
        self._connection.close()

    def forked(self) -> None:
        """Close this copy in a process that was forked: else the other end would not see the end of the first one."""
        os.close(self._connection.detach())


def _within(frame: Any, large: list[memoryview]) -> bytes | None:
    """Return a frame as it goes into the pickle; a large one goes to the others, and None in its place."""
    if len(frame) < _SMALL:
        return bytes(frame)
    large.append(memoryview(frame).cast("B"))
    return None


def _close_copies() -> None:
    for link in [*_open]:
        with suppress(OSError):
            link.forked()


os.register_at_fork(after_in_child=_close_copies)
