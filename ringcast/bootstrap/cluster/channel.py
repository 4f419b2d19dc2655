"""Messages between the caller of a cluster and one rank, on a Unix socket in a folder of this user alone."""

from __future__ import annotations

import os
import socket
import struct
import weakref
from collections import deque

HEAD = struct.Struct("<BQ")  # kind, bytes of the body
CALL, INTERRUPT, OUTCOME = range(3)  # CALL and OUTCOME: a pickle; INTERRUPT: the number of the run
CHUNK = 1 << 20
_open: weakref.WeakSet[Channel] = weakref.WeakSet()


class Channel:
    """One end, which never blocks: it keeps unsent messages, and messages that have not come whole."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.connection = connection
        self._unsent: deque[memoryview] = deque()
        self._file: int | None = None
        self._received = bytearray()
        _open.add(self)

    @property
    def unsent(self) -> bool:
        """Whether `flush` has something to send."""
        return bool(self._unsent)

    def put(self, kind: int, body: bytes, file: int | None = None) -> None:
        """Keep a message for `flush`; the other end gets a copy of the descriptor `file` with its first bytes.

        Messages with a descriptor are put while nothing else is unsent.
        """
        self._file = file
        self._unsent += (memoryview(part) for part in (HEAD.pack(kind, len(body)), body) if part)

    def flush(self) -> None:
        """Send as much as the system takes.

        Raises:
            ConnectionError: the other end is gone.
        """
        try:
            while self._unsent:
                if self._file is None:
                    sent = self.connection.send(self._unsent[0])
                else:
                    sent = socket.send_fds(self.connection, [self._unsent[0]], [self._file])
                    self._file = None
                if sent < len(self._unsent[0]):
                    self._unsent[0] = self._unsent[0][sent:]
                else:
                    self._unsent.popleft()
        except BlockingIOError:
            pass

    def take(self) -> list[tuple[int, bytes]]:
        """Return the messages that have come whole, with the one that the system has for us.

        Raises:
            ConnectionError: the other end is gone.
        """
        try:
            data = self.connection.recv(CHUNK)
        except BlockingIOError:
            return []
        if not data:
            raise ConnectionResetError("the other end is gone")
        self._received += data
        return list(messages(self._received))


def messages(received: bytearray) -> list[tuple[int, bytes]]:
    """Remove the whole messages from the received bytes, and return them."""
    whole, start = [], 0
    while len(received) - start >= HEAD.size:
        kind, size = HEAD.unpack_from(received, start)
        end = start + HEAD.size + size
        if len(received) < end:
            break
        whole.append((kind, bytes(memoryview(received)[start + HEAD.size : end])))
        start = end
    del received[:start]
    return whole


def _close_copies() -> None:
    """Close the channels of the process that this one copies: else its ranks would not see its end."""
    for channel in [*_open]:
        channel.connection.close()


os.register_at_fork(after_in_child=_close_copies)
