"""Make one connection to a rank, and write bytes to it: the kernel gets as many as it takes at once, the rest waits.

A connection that breaks off before the other rank has admitted this one (as it may in a crowd of strangers) is made
anew, as nothing was sent over it. After that, a connection that ends is lost.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Protocol

from ringcast.net.tls import RECORD, TlsClient, TlsStream
from ringcast.transports.base import Frame
from ringcast.transports.sockets.framing import in_buffers, in_records
from ringcast.transports.sockets.greeting import Place, Refused, Steps, call
from ringcast.transports.sockets.tcp import Address, connecting, established
from ringcast.transports.sockets.watcher import IN, OUT, Watcher

ATTEMPTS = 20  # to make a connection that breaks off before admission
_MANY = 64  # pieces that go to the kernel or TLS at once
_CAUSES = {
    errno.ECONNREFUSED: "it was refused, or there is no way there",
    errno.ENETUNREACH: "it was refused, or there is no way there",
    errno.EHOSTUNREACH: "it was refused, or there is no way there",
}
_CLOSED = "it was closed by the other side or by the network"


class Link(Protocol):
    """Uses the connection."""

    def place_of(self, connection: Connection) -> Place:
        """Return the place of a connection that TCP has just made, and that is to be admitted."""

    def go_on(self) -> None:
        """Go on with the other connections, once the place of one is known."""

    def welcomed(self, connection: Connection) -> None:
        """Take note that the other rank has admitted a connection."""

    def emptied(self, connection: Connection) -> None:
        """Take note that the kernel has taken all that waited for a connection."""

    def lose(self, cause: str) -> None:
        """Take note that a connection cannot be made, or has ended; this closes it."""


class Connection:
    """One connection to a rank."""

    def __init__(
        self, link: Link, address: Address, claim: bytes, tls: TlsClient | None, key: str, watcher: Watcher
    ) -> None:
        """Prepare a connection to the address of a rank with this `key`; `begin` begins to make it."""
        self.made = False
        self.queue: deque[Frame] = deque()  # pieces that the kernel has not taken
        self._link, self._address, self._watcher = link, address, watcher
        self._claim, self._tls, self._key = claim, tls, key
        self._attempts = 0
        self._open = False
        self.sock: socket.socket
        self.stream: TlsStream | None
        self._steps: Steps[None]

    def begin(self) -> None:
        """Begin to make the connection."""
        self._attempts += 1
        self.stream = None
        try:
            self.sock = connecting(self._address)
        except OSError as error:
            self._link.lose(cause_of(error))
            return
        self._open = True
        self._steps = call(self, self._claim, self._tls, self._key)
        self._events = next(self._steps)
        self._watcher.add(self.sock.fileno(), self._events, self._go_on)

    def place(self) -> Place:
        return self._link.place_of(self)

    def write(self, message: Sequence[Frame], total: int) -> bool:
        """Write so many bytes; return whether the kernel has taken all of them and all before them.

        Raises:
            OSError: the connection is broken.
        """
        if waited := bool(self.queue):
            self._flush()
        pieces = self._pieces(message, total)
        if not self.queue and not (pieces := self._write(pieces)):
            return True
        self.queue.extend(map(bytes, pieces))
        if not waited:
            self._watcher.change(self.sock.fileno(), IN | OUT)
        return False

    def close(self) -> None:
        """Close the connection; waiting data is lost. Idempotent."""
        self.made = False
        self.queue.clear()
        self._release()

    def _go_on(self) -> None:
        """Go on with the greeting."""
        try:
            events = next(self._steps)
        except StopIteration:
            self.made = True
            established(self.sock)
            self._watcher.pass_on(self.sock.fileno(), IN, self._look)
            self._link.welcomed(self)
        except OSError as error:
            self._try_again(error)
        else:
            if events != self._events:
                self._watcher.change(self.sock.fileno(), events)
                self._events = events
            self._link.go_on()

    def _try_again(self, error: OSError) -> None:
        if _accidental(error) and self._attempts < ATTEMPTS:
            self._release()
            self.begin()
        else:
            self._link.lose(cause_of(error))

    def _look(self) -> None:
        """Write waiting data; and see whether the other rank, which sends nothing, has ended the connection."""
        try:
            if self.queue:
                self._flush()
            if not self.queue:
                self._watcher.change(self.sock.fileno(), IN)
                self._link.emptied(self)
            self.sock.recv(1)
            self._link.lose(_CLOSED)
        except BlockingIOError:
            pass
        except OSError as error:
            self._link.lose(cause_of(error))

    def _flush(self) -> None:
        """Write as much of the waiting data as the kernel takes."""
        queue = self.queue
        while queue:
            pieces = [*islice(queue, _MANY)]
            rest = self._write(pieces)
            for _ in range(len(pieces) - len(rest)):
                queue.popleft()
            if rest:
                queue[0] = rest[0]
                return

    def _pieces(self, message: Sequence[Frame], total: int) -> Sequence[Frame]:
        """Return the pieces in which bytes go to the kernel, encrypted under TLS."""
        stream = self.stream
        if total <= RECORD:
            joined = b"".join(message)
            return (joined if stream is None else stream.seal(joined),)
        return in_buffers(message if stream is None else stream.encrypt(in_records(message)))

    def _write(self, pieces: Sequence[Frame]) -> Sequence[Frame]:
        """Write the pieces, and return the ones that the kernel has not taken; the first of them may be cut."""
        try:
            if len(pieces) == 1:
                (piece,) = pieces
                sent = self.sock.send(piece)
                return () if sent == len(piece) else (memoryview(piece)[sent:],)
            sent = self.sock.sendmsg(pieces)
        except BlockingIOError:
            return pieces
        for i, piece in enumerate(pieces):
            if sent < len(piece):
                return [memoryview(piece)[sent:], *pieces[i + 1 :]]
            sent -= len(piece)
        return []

    def _release(self) -> None:
        if self._open:
            self._open = False
            self._watcher.remove(self.sock.fileno())
            self._steps.close()
            self.sock.close()


def _accidental(error: OSError) -> bool:
    """Return whether the other end closed the connection without a refusal, so that another try makes sense."""
    return isinstance(error, ConnectionResetError | BrokenPipeError)


def cause_of(error: OSError) -> str:
    """Return why a connection cannot be made, or has ended."""
    if isinstance(error, Refused):
        return str(error)
    if isinstance(error, ssl.SSLError) and not _accidental(error):
        return "the listener there does not admit this rank, or does not speak its protocol"
    if error.errno is None or _accidental(error):
        return _CLOSED
    return _CAUSES.get(error.errno) or os.strerror(error.errno)
