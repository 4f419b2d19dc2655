"""Bound the unauthenticated connections to a CURVE socket: their number, and the bytes that each may send.

ZeroMQ accepts every connection, and takes a frame from it before the handshake is over. So connections that have sent
more than a handshake needs are shut down here. If more connections wait than the job has members, plus
`fd_limits.STRANGERS`, the oldest are shut down after a second, as a member's handshake takes milliseconds; with more
than `fd_limits.CROWD` beside the members they are shut down at once. The kernel's byte counts (TCP_INFO) show how far a
handshake is: ZeroMQ answers HELLO and INITIATE only when they were right.

The files belong to ZeroMQ, which closes a file when it sees that the connection is shut down; so a duplicate of the
file is shut down here. As the number may mean another file by then, ZeroMQ's events are read after the duplicate was
made: ZeroMQ reports the end of a connection before it closes the file.

This is for Linux; elsewhere `look` does nothing.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache

from ringcast.net.fd_limits import CROWD, STRANGERS

MOST_SAID = 2048  # bytes; a member sends 552 to 600 before it is admitted, and at most 900 with the longest identity
GREETED = 64  # bytes that ZeroMQ answers at first, …
WELCOMED = GREETED + 170  # … to a HELLO for its key, …
ADMITTED = WELCOMED + 32  # … and with READY at least; the ERROR for a refused connection has 12
GRACE = 1.0  # seconds that a handshake may take, on a busy machine, though many connections come
TICK = 0.02  # seconds between two looks …
SHARE = 20  # … and at least this multiple of the processor time of the last look
SLACK = 32  # connections that are shut down beyond the excess, as a look takes time

_TCP_INFO = 11  # of Linux
_EXCHANGED = struct.Struct("=QQ")  # bytes that the other end has acknowledged, and that it has sent …
_AT = 120  # … in struct tcp_info
_libc = ctypes.CDLL(None)


class Strangers:
    """The connections of one socket that are not authenticated yet."""

    def __init__(
        self, members: int, clock: Callable[[], float] = time.monotonic, work: Callable[[], float] = time.thread_time
    ) -> None:
        """Expect `members` connections of the job, which wait for admission; `work` is a clock of processor time."""
        self._most, self._crowd, self._clock = members + STRANGERS, members + CROWD, clock
        self._work = work
        # Connections in the order of their arrival, each with a unique number, and the time.
        self._files: dict[int, tuple[int, float]] = {}
        self._came = 0
        self.due: float | None = None  # the time of the next `look`, on the clock; None without connections
        self.shut = 0  # connections that were shut down

    def __len__(self) -> int:
        return len(self._files)

    def come(self, file: int) -> None:
        """Note a new connection."""
        self.leave(file)
        self._came += 1
        now = self._clock()
        self._files[file] = self._came, now
        if self.due is None:
            self.due = now + TICK
        if len(self._files) > self._crowd:
            self.due = now

    def leave(self, file: int) -> None:
        """Note that a connection has ended."""
        self._files.pop(file, None)

    def look(self, refresh: Callable[[], None]) -> None:
        """Shut down connections that are too old or send too much; `refresh` reads ZeroMQ's events up to now."""
        if not _able():
            self._files.clear()
            self.due = None
            return
        begun = self._work()
        self._shut(self._unwanted(), refresh)
        self.due = self._clock() + max(TICK, SHARE * (self._work() - begun)) if self._files else None

    def _unwanted(self) -> list[int]:
        """Return the files to shut down; forget authenticated connections."""
        loud: list[int] = []
        silent: list[int] = []
        welcomed: list[int] = []  # these know the public key: perhaps members that wait for the list of admitted keys
        for file in list(self._files):
            answered, said = exchanged(file)
            if answered >= ADMITTED:
                del self._files[file]
            elif said > MOST_SAID:
                loud.append(file)
            else:
                (welcomed if answered >= WELCOMED else silent).append(file)
        waiting = silent + welcomed
        too_many, crowded = (len(waiting) - most for most in (self._most, self._crowd))
        if crowded > 0:
            return loud + waiting[: crowded + SLACK]
        before = self._clock() - GRACE
        return loud + [file for file in waiting[: max(0, too_many)] if self._files[file][1] <= before]

    def _shut(self, files: Iterable[int], refresh: Callable[[], None]) -> None:
        chosen = [(file, self._files[file], copy) for file in files if (copy := _duplicate(file)) is not None]
        try:
            if chosen:
                refresh()
            for file, known, copy in chosen:
                if self._files.get(file) == known:
                    del self._files[file]
                    self.shut += 1
                    with suppress(OSError):  # the connection has ended by itself
                        copy.shutdown(socket.SHUT_RDWR)
        finally:
            for _, _, copy in chosen:
                copy.close()


def exchanged(file: int) -> tuple[int, int]:
    """Return the numbers of bytes that the other end of a connection has acknowledged and has sent; 0 if unknown."""
    data, length = ctypes.create_string_buffer(_AT + _EXCHANGED.size), ctypes.c_uint32(_AT + _EXCHANGED.size)
    failed = _libc.getsockopt(file, socket.IPPROTO_TCP, _TCP_INFO, data, ctypes.byref(length))
    if failed or length.value < len(data):
        return 0, 0
    answered, said = _EXCHANGED.unpack_from(data, _AT)
    return answered, said


@cache
def _able() -> bool:
    """Return whether this kernel counts the bytes that a connection has exchanged."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        with (
            socket.create_server(("127.0.0.1", 0)) as listener,
            socket.create_connection(listener.getsockname()) as one,
            listener.accept()[0] as other,
        ):
            one.sendall(b"x")
            other.recv(1)
            return exchanged(other.fileno())[1] == 1
    except OSError:
        return False


def _duplicate(file: int) -> socket.socket | None:
    """Return another file of the same connection; None if the connection is gone, or there is no room for a file."""
    try:
        copy = os.dup(file)
    except OSError:
        return None
    try:
        return socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        return None
