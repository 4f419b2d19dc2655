"""Write messages to one rank: the kernel gets as many bytes as it takes at once; the rest is copied and waits.

All messages wait until the connection is made. A connection that breaks off before the other rank has admitted this one
(as it may in a crowd of strangers) is made anew, as nothing was sent over it. After that, a connection that ends is
lost.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
from collections import deque
from collections.abc import Sequence
from itertools import islice

from ringcast.errors import LinkLost
from ringcast.net.tls import RECORD, TlsClient, TlsStream
from ringcast.transports.base import Frame
from ringcast.transports.sockets.framing import in_buffers, in_records, lengths
from ringcast.transports.sockets.greeting import Refused, Steps, call
from ringcast.transports.sockets.tcp import Address, connecting, established
from ringcast.transports.sockets.watcher import IN, OUT, Watcher

ATTEMPTS = 20  # to make a connection that breaks off before admission
_MANY = 64  # pieces that go to the kernel or TLS at once
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
        """Begin to connect to the address of a rank with this `key`; `unsent` has the rank while data waits for it."""
        self.peer, self.made, self.lost = peer, False, ""  # `lost`: why there is no connection
        self._address, self._hello, self._tls, self._key, self._watcher = address, hello, tls, key, watcher
        self._early: list[bytes] = []  # messages from before there was a connection
        self._queue: deque[Frame] = deque()  # pieces that the kernel has not taken
        self._unsent = unsent
        self._attempts = 0
        self.sock: socket.socket
        self.stream: TlsStream | None
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
        if not self.made:
            self._early.append(b"".join((prefix, *frames)))
            self._unsent.add(self.peer)
            return
        try:
            if waited := bool(self._queue):
                self._flush()
            pieces = self._pieces((prefix, *frames), total)
            if not self._queue and not (pieces := self._write(pieces)):
                return
            self._queue.extend(map(bytes, pieces))
            self._unsent.add(self.peer)
            if not waited:
                self._watcher.change(self.sock.fileno(), IN | OUT)
        except OSError as error:
            self._lose(_cause(error))
            raise LinkLost(self.peer, self.lost) from None
        except BaseException:  # an interrupt: nothing may follow half a message
            self._lose("an interrupt broke off a message in the middle")
            raise

    def close(self) -> None:
        """Close the connection; waiting data is lost. Idempotent."""
        self._lose("this rank has closed it")

    def _begin(self) -> None:
        self._attempts += 1
        self.stream = None
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
            for message in self._early:
                self._queue.extend(self._pieces([message], len(message)))
            self._early.clear()
            established(self.sock)
            self._watcher.pass_on(self.sock.fileno(), IN | OUT, self._look)
            self._look()
        except OSError as error:
            self._try_again(error)
        else:
            if events != self._events:
                self._watcher.change(self.sock.fileno(), events)
                self._events = events

    def _try_again(self, error: OSError) -> None:
        if _accidental(error) and self._attempts < ATTEMPTS:
            self._release()
            self._begin()
        else:
            self._lose(_cause(error))

    def _look(self) -> None:
        """Write waiting data; and see whether the other rank, which sends nothing, has ended the connection."""
        try:
            if self._queue:
                self._flush()
            if not self._queue:
                self._watcher.change(self.sock.fileno(), IN)
            self.sock.recv(1)
            self._lose(_CLOSED)
        except BlockingIOError:
            pass
        except OSError as error:
            self._lose(_cause(error))

    def _flush(self) -> None:
        """Write as much of the waiting data as the kernel takes."""
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

    def _pieces(self, message: Sequence[Frame], total: int) -> Sequence[Frame]:
        """Return the pieces in which a message goes to the kernel, encrypted under TLS."""
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

    def _lose(self, cause: str) -> None:
        if not self.lost:
            self.lost, self.made = cause, False
            self._clear()
            self._release()

    def _clear(self) -> None:
        self._early.clear()
        self._queue.clear()
        self._unsent.discard(self.peer)

    def _release(self) -> None:
        self._watcher.remove(self.sock.fileno())
        self._steps.close()
        self.sock.close()


_CLOSED = "it was closed by the other side or by the network"


def _accidental(error: OSError) -> bool:
    """Return whether the other end closed the connection without a refusal, so that another try makes sense."""
    return isinstance(error, ConnectionResetError | BrokenPipeError)


def _cause(error: OSError) -> str:
    if isinstance(error, Refused):
        return str(error)
    if isinstance(error, ssl.SSLError) and not _accidental(error):
        return "the listener there does not admit this rank, or does not speak its protocol"
    if error.errno is None or _accidental(error):
        return _CLOSED
    return _CAUSES.get(error.errno) or os.strerror(error.errno)
