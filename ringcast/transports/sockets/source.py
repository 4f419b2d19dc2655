"""Read the bytes of a connection: from the kernel, or through TLS, which decrypts the kernel's bytes.

TLS is fed many records at once, so that few system calls are made. The kernel does not report bytes that wait in TLS;
`readable` does.
"""

from __future__ import annotations

import socket
import ssl
import sys
import termios
from array import array
from fcntl import ioctl
from typing import Protocol

from ringcast.net.tls import RECORD, TlsStream, encrypted

FED = 8 * RECORD  # bytes that TLS is fed at once; more are hardly faster, and TLS may keep a buffer of this size
CAN_WAIT = sys.platform == "linux"  # whether SO_RCVLOWAT makes the kernel wait for that many bytes before it reports


class Source(Protocol):
    """The bytes of one connection, in order."""

    can_wait: bool  # whether `has` and `tell_of` work

    @property
    def readable(self) -> bool:
        """Whether data may be there that the kernel does not report."""

    def recv_into(self, view: memoryview) -> int:
        """Fill `view`, which is not empty, from its start; return the number of bytes, 0 if the other end has ended.

        Raises:
            BlockingIOError: nothing is there.
            OSError: the connection is broken.
        """

    def read_into(self, view: memoryview) -> int:
        """Do the same with bytes that TLS holds, without the kernel; return 0 if there are none.

        Raises:
            OSError: the connection is broken.
        """

    def has(self, size: int) -> bool:
        """Return whether `size` bytes have come; under TLS the bytes must begin with a record."""

    def tell_of(self, size: int) -> None:
        """Let the kernel report bytes only when `has(size)` is true, or when it has no room for so many."""

    def tell_of_all(self) -> None:
        """Let the kernel report any byte that comes."""


class PlainSource:
    """Bytes as the kernel has them."""

    readable = False
    can_wait = CAN_WAIT

    def __init__(self, sock: socket.socket) -> None:
        self._sock, self.recv_into = sock, sock.recv_into
        self._arrived = array("i", [0])  # the number of bytes in the kernel, as ioctl writes it

    def read_into(self, view: memoryview) -> int:  # noqa: ARG002 (the kernel has all)
        return 0

    def has(self, size: int) -> bool:
        ioctl(self._sock, termios.FIONREAD, self._arrived, True)
        return self._arrived[0] >= size

    def tell_of(self, size: int) -> None:
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)

    def tell_of_all(self) -> None:
        self.tell_of(1)


class TlsSource:
    """Decrypted bytes; `scratch` is memory that all sources of a transport share, for the time of one call."""

    can_wait = CAN_WAIT

    def __init__(self, sock: socket.socket, stream: TlsStream, scratch: memoryview) -> None:
        self._kernel, self._receive, self._stream, self._scratch = PlainSource(sock), sock.recv_into, stream, scratch
        self.readable = stream.held > 0  # False too when nothing can be read until more is fed

    def recv_into(self, view: memoryview) -> int:
        stream = self._stream
        # A reader with room for more than a record expects a full one. If less is held, the kernel is asked at once.
        while True:
            if not self.readable or (len(view) > RECORD and stream.held <= RECORD):
                size = self._receive(self._scratch)
                if not size:
                    return 0
                stream.feed(self._scratch[:size])
            try:
                got = stream.read_into(view)
            except ssl.SSLWantReadError:
                self.readable = False
            else:
                self.readable = stream.held > 0
                return got

    def read_into(self, view: memoryview) -> int:
        try:
            got = self._stream.read_into(view)
        except ssl.SSLWantReadError:
            self.readable = False
            return 0
        self.readable = self._stream.held > 0
        return got

    def has(self, size: int) -> bool:
        return self._kernel.has(encrypted(size) - self._stream.held)

    def tell_of(self, size: int) -> None:
        self._kernel.tell_of(encrypted(size) - self._stream.held)

    def tell_of_all(self) -> None:
        self._kernel.tell_of_all()
