"""The messages that go to one rank: the kernel gets them at once, as far as it takes them; what is left is copied.

As long as the connection is not made, all wait. It is made anew where it was broken off before the other rank has
admitted this one (as it may in a crowd of strangers): until then nothing is sent. Later a connection that ends is lost.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice

from ringcast.errors import LinkLost
from ringcast.net.tls import TlsClient
from ringcast.transports.base import Frame
from ringcast.transports.framing import in_buffers, in_records, lengths
from ringcast.transports.greeting import BROKEN, BUSY, Refused, Steps, call
from ringcast.transports.tcp import Address, connecting, established
from ringcast.transports.watcher import IN, OUT, Watcher

ATTEMPTS = 20  # at a connection that is broken off before it is made
_MANY = 64  # pieces that are handed over at once
_CAUSES = {
    errno.ECONNREFUSED: "it was refused, or there is no way there",
    errno.ENETUNREACH: "it was refused, or there is no way there",
    errno.EHOSTUNREACH: "it was refused, or there is no way there",
}


class Outgoing:
    """A connection to which messages are written."""

    def __init__(
        self,
        peer: int,
        address: Address,
        hello: bytes,
        tls: TlsClient | None,
        key: str,
        watcher: Watcher,
        unsent: set[int],
    ) -> None:
        """Begin to connect to the address; `key` is the other rank's, which is in `unsent` while something waits."""
        self.peer, self.made, self.lost = peer, False, ""  # why there is no connection
        self._address, self._hello, self._tls, self._key, self._watcher = address, hello, tls, key, watcher
        self._queue: deque[Frame] = deque()  # copies
        self._unsent = unsent
        self._attempts = 0
        self.sock: socket.socket
        self._steps: Steps[None]
        self._begin()

    def send(self, frames: Sequence[Frame]) -> None:
        """Send a message.

        Raises:
            LinkLost: there is no connection any more.
        """
        if self.lost:
            raise LinkLost(self.peer, self.lost)
        prefix, total = lengths(frames)
        message = [prefix, *frames]
        pieces = in_buffers(message) if self._tls is None else in_records(message, total)
        try:
            waited = bool(self._queue)
            if waited and self.made:
                self._flush()
            if self.made and not self._queue:
                pieces = self._write(pieces)
                if not pieces:
                    return
            self._queue.extend([bytes(piece) for piece in pieces])
            self._unsent.add(self.peer)
            if self.made and not waited:
                self._watcher.change(self.sock.fileno(), IN | OUT)
        except OSError as error:
            self._lose(_cause(error))
            raise LinkLost(self.peer, self.lost) from None
        except BaseException:  # an interrupt: nothing may follow half a message
            self._lose("an interrupt broke off a message in the middle")
            raise

    def close(self) -> None:
        """Close the connection; what waits is lost. Idempotent."""
        self._lose("this rank has closed it")

    def _begin(self) -> None:
        self._attempts += 1
        try:
            self.sock = connecting(self._address)
        except OSError as error:
            self.lost = _cause(error)
            self._clear()
            return
        self._steps = call(self, self._hello, self._tls, self._key)
        self._events = next(self._steps)
        self._watcher.add(self.sock.fileno(), self._events, self._go_on)

    def _go_on(self) -> None:
        """Go on with the greeting."""
        try:
            events = next(self._steps)
        except StopIteration:
            self.made = True
            established(self.sock)
            self._watcher.pass_on(self.sock.fileno(), IN | OUT, self._look)
            self._look()
        except BROKEN as error:
            self._try_again(error)
        else:
            if events != self._events:
                self._watcher.change(self.sock.fileno(), events)
                self._events = events

    def _try_again(self, error: OSError | ValueError) -> None:
        if _accidental(error) and self._attempts < ATTEMPTS:
            self._release()
            self._begin()
        else:
            self._lose(_cause(error))

    def _look(self) -> None:
        """Write what waits; and see whether the other rank, which sends nothing, has ended the connection."""
        try:
            if self._queue:
                self._flush()
            if not self._queue:
                self._watcher.change(self.sock.fileno(), IN)
            self.sock.recv(1)
            self._lose(_CLOSED)
        except BUSY:
            pass
        except OSError as error:
            self._lose(_cause(error))

    def _flush(self) -> None:
        """Write what waits, as far as the kernel takes it."""
        queue = self._queue
        while queue:
            pieces = [*islice(queue, _MANY)]
            rest = self._write(pieces)
            for _ in range(len(pieces) - len(rest)):
                queue.popleft()
            if rest:
                queue[0] = rest[0]
                return
        self._unsent.discard(self.peer)

    def _write(self, pieces: Iterable[Frame]) -> Sequence[Frame]:
        """Return what is not taken: the last of the pieces, of which the first one may be cut."""
        return self._write_plain([*pieces]) if self._tls is None else self._write_records(pieces)

    def _write_plain(self, pieces: list[Frame]) -> Sequence[Frame]:
        try:
            sent = self.sock.sendmsg(pieces)
        except BlockingIOError:
            return pieces
        for i, piece in enumerate(pieces):
            if sent < len(piece):
                return [memoryview(piece)[sent:], *pieces[i + 1 :]]
            sent -= len(piece)
        return []

    def _write_records(self, pieces: Iterable[Frame]) -> Sequence[Frame]:
        """Hand pieces to TLS, which takes all of one, or wants to have it again."""
        more = iter(pieces)
        for piece in more:
            try:
                self.sock.send(piece)
            except BUSY:
                return [piece, *more]
        return []

    def _lose(self, cause: str) -> None:
        if not self.lost:
            self.lost, self.made = cause, False
            self._clear()
            self._release()

    def _clear(self) -> None:
        self._queue.clear()
        self._unsent.discard(self.peer)

    def _release(self) -> None:
        self._watcher.remove(self.sock.fileno())
        self._steps.close()
        self.sock.close()


_CLOSED = "it was closed by the other side or by the network"


def _accidental(error: OSError | ValueError) -> bool:
    """Return whether the other end has just closed the connection, without a word."""
    if isinstance(error, OSError) and error.errno == errno.ENOTCONN:
        return True
    return isinstance(error, ConnectionResetError | BrokenPipeError | ssl.SSLEOFError | ssl.SSLZeroReturnError)


def _cause(error: OSError | ValueError) -> str:
    if isinstance(error, Refused):
        return str(error)
    if isinstance(error, ssl.SSLError) and not _accidental(error):
        return "who listens there does not admit this rank, or does not speak its protocol"
    code = error.errno if isinstance(error, OSError) else None
    if code is None or _accidental(error):
        return _CLOSED
    return _CAUSES.get(code) or os.strerror(code)
