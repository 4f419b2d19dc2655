"""Cut the stream of bytes to a rank into stripes, which travel on several connections: one does not fill long links.

After each loss TCP halves what it sends in a round trip, and needs many round trips to grow again. So on long links a
link has several connections. Each stripe has a number, and is written to any connection that takes it; a fast one takes
more than a slow one. The reader takes the stripes in the order of their numbers. Those that are too early stay in the
kernel, which then makes the sender wait: so no memory is needed to put them in order, and none is without a bound.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from typing import Protocol

from ringcast.net.tls import RECORD
from ringcast.transports.sockets.framing import Malformed
from ringcast.transports.sockets.source import Source
from ringcast.transports.sockets.watcher import IN, Watcher

HEAD = struct.Struct("<II")  # number of the stripe, without the bits that do not fit; its bytes
STRIPE = RECORD - HEAD.size  # bytes at most: with its head it is one record
NUMBERS = 1 << 32
LONG = 5e-3  # seconds of a round trip from which on a link is long


class Reader(Protocol):
    """Takes the messages of the stream."""

    def fill(self) -> None:
        """Take the bytes that have come."""

    def end(self) -> None:
        """End the link."""


class _State(Enum):
    OPEN = "no head has come since the last stripe"
    NOW = "the next bytes are here"
    LATER = "a stripe is here whose turn has not come"
    ENDED = "no more will come"


class _Part:
    """One of the connections."""

    def __init__(self, sock: socket.socket, source: Source) -> None:
        self.sock, self.source, self.state = sock, source, _State.OPEN
        self.head, self.have = bytearray(HEAD.size), 0  # the head of the next stripe, and how much of it has come
        self.view = memoryview(self.head)
        self.number = self.left = 0  # of the stripe, and its bytes that were not read
        self.watched = True


class Striped:
    """The bytes of a link of `count` connections, in order; fulfils `Source` once all of them are there."""

    can_wait = False  # the rest of a message is in several places

    def __init__(self, count: int, watcher: Watcher) -> None:
        self.count, self._watcher = count, watcher
        self.socks: list[socket.socket] = []  # of the connections that are there
        self.begun = False  # whether anything has come
        self._parts: dict[int, _Part] = {}  # by place
        self._now: _Part | None = None
        self._number = 0  # of the stripe that is read, or is the next one
        self._reader: Reader | None = None
        self._error: OSError | None = None  # that was found behind bytes that the reader has got

    @property
    def complete(self) -> bool:
        """Whether all connections are there."""
        return len(self._parts) == self.count

    def add(self, index: int, sock: socket.socket, source: Source, end: Callable[[], None]) -> None:
        """Add a connection, in the place of one that its sender has given up; `end` ends the link before its begin."""
        old = self._parts.get(index)
        if old is not None:
            self.socks.remove(old.sock)
            self._watcher.remove(old.sock.fileno())
            old.sock.close()
        part = self._parts[index] = _Part(sock, source)
        self.socks.append(sock)
        self._watcher.add(sock.fileno(), IN, lambda: self._look(part, end))

    def begin(self, reader: Reader) -> None:
        """Hand all bytes to this reader."""
        self._reader = reader

    @property
    def readable(self) -> bool:
        return self._error is not None or (self._now is not None and self._now.source.readable)

    def recv_into(self, view: memoryview) -> int:
        if self._error is not None:
            raise self._error
        part = self._now
        if part is not None:
            return self._took(part, part.source.recv_into(view[: part.left]))
        if all(each.state is _State.ENDED for each in self._parts.values()):
            return 0
        raise BlockingIOError

    def read_into(self, view: memoryview) -> int:
        if self._error is not None:
            raise self._error
        part = self._now
        got = 0 if part is None else part.source.read_into(view[: part.left])
        return got if part is None or not got else self._took(part, got)

    def has(self, size: int) -> bool:  # noqa: ARG002 (`can_wait` says that nobody asks)
        return False

    def tell_of(self, size: int) -> None:
        """Do nothing: each connection is watched while its bytes are wanted."""

    def tell_of_all(self) -> None:
        """Do nothing, as well."""

    def _look(self, part: _Part, end: Callable[[], None]) -> None:
        """Take note of an event at a connection."""
        reader = self._reader
        if reader is None:  # nothing may come before the link is complete, not even its end
            end()
        elif part.state is _State.LATER:  # it has ended, but its bytes are still there
            self._watcher.remove(part.sock.fileno())
            part.watched = False
        else:
            try:
                if part.state is _State.OPEN and not self._take_head(part):
                    self._watcher.remove(part.sock.fileno())
                    part.state, part.watched = _State.ENDED, False
                    self._check()
            except BlockingIOError:
                return
            except OSError:
                reader.end()
                return
            if part.state is not _State.LATER:
                reader.fill()

    def _took(self, part: _Part, got: int) -> int:
        """Count bytes of the stripe that is read; after its end find the next one."""
        if not got:
            raise ConnectionResetError("it was closed in the middle of a stripe")
        part.left -= got
        if not part.left:
            self._number = (self._number + 1) % NUMBERS
            self._now, part.state = None, _State.OPEN
            try:
                with suppress(BlockingIOError):
                    self._take_head(part)  # if it has ended, the kernel reports it again
                self._choose()
            except OSError as error:
                self._error = error
        return got

    def _take_head(self, part: _Part) -> bool:
        """Read the head of the next stripe; return False at the end of the connection.

        Raises:
            BlockingIOError: it has not come.
            OSError: the connection is broken.
        """
        while part.have < HEAD.size:
            got = part.source.recv_into(part.view[part.have :])
            if not got:
                return False
            part.have += got
            self.begun = True
        part.have = 0
        part.number, part.left = HEAD.unpack(part.head)
        if not 0 < part.left <= STRIPE:
            raise Malformed(f"a stripe of {part.left} bytes")
        if part.number == self._number:
            self._now, part.state = part, _State.NOW
        else:
            part.state = _State.LATER
            self._watcher.change(part.sock.fileno(), 0)
            self._check()
        return True

    def _choose(self) -> None:
        """Go on with the stripe whose turn has come, if it is here."""
        if self._now is None:
            for part in self._parts.values():
                if part.state is _State.LATER and part.number == self._number:
                    self._now, part.state = part, _State.NOW
                    self._watch(part)
                    return
            self._check()

    def _watch(self, part: _Part) -> None:
        if part.watched:
            self._watcher.change(part.sock.fileno(), IN)
        else:  # it is removed only to be silent about its end
            part.watched = True
            self._watcher.add(part.sock.fileno(), IN, lambda: self._look(part, lambda: None))

    def _check(self) -> None:
        """End the link if the next stripe can come by none of its connections.

        Raises:
            Malformed: it cannot.
        """
        states = {part.state for part in self._parts.values()}
        if _State.LATER in states and not states & {_State.OPEN, _State.NOW}:
            turn = any(part.state is _State.LATER and part.number == self._number for part in self._parts.values())
            if not turn:
                raise Malformed(f"stripe {self._number} is missing")
