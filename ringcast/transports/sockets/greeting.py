"""Begin a connection between two ranks. It carries messages in one direction, from the rank that has made it.

The client sends a hello: the protocol's name, its claim to be a member, and which of the link's connections this is.
With TLS the claim is its certificate, which is public, else a digest of the job's addresses. With TLS a handshake
follows, in which both prove their private keys. When the server has admitted the client, it sends a welcome, which
repeats the place of the connection, as the hello is not encrypted. Only when it has been welcomed on all connections of
the link the client sends messages; so a connection that ends before may be made anew, and nothing is lost.

Each side is a generator: it yields the events to wait for before it is to go on (0: none, until the members are known).
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Generator
from contextlib import suppress
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

from ringcast.net.certificates import LONGEST, fingerprint
from ringcast.net.fd_limits import MOST_CONNECTIONS
from ringcast.net.tls import TlsClient, TlsServer, TlsStream
from ringcast.transports.sockets.watcher import IN, OUT

Result = TypeVar("Result")
Steps: TypeAlias = Generator[int, None, Result]

MOST_SAID = 4096  # bytes that either end may send in the handshake, which takes less than half of them
# Name and version of the protocol, whether TLS follows, place of the connection and their number, bytes of the claim.
_HELLO = struct.Struct("<8sBBBBH")
_NAME, _VERSION = b"ringcast", 2
_WELCOME = _NAME + b" welcome"  # and the place
REFUSED = _NAME + b" refuses" + bytes(2)  # as long as a welcome; sent in the clear, in answer to the hello


class Refused(ConnectionError):
    """The other end is not the expected rank, or does not admit this one."""


class Place(NamedTuple):
    """The place of a connection in its link."""

    at: int  # from 0
    of: int


ALONE = Place(0, 1)


class Line(Protocol):
    """A connection that is being made; the greeting gives it a `stream` where it is encrypted from then on."""

    sock: socket.socket
    stream: TlsStream | None


class OutgoingLine(Line, Protocol):
    """A connection that a client makes."""

    def place(self) -> Place:
        """Return the place of the connection, which has just been made."""


class Members(Protocol):
    """The members of the job, who are admitted."""

    @property
    def known(self) -> bool:
        """Whether the members are known already."""

    def rank_of(self, claim: bytes) -> int | None:
        """Return the rank that makes this claim; a negative number if the claim shows no rank; None for a stranger."""


def hello(claim: bytes, *, secure: bool, place: Place = ALONE) -> bytes:
    """Return a client's hello; `claim` is its certificate, or the digest of the job and a random number."""
    return _HELLO.pack(_NAME, _VERSION, secure, *place, len(claim)) + claim


def call(line: OutgoingLine, claim: bytes, tls: TlsClient | None, key: str) -> Steps[None]:
    """Greet a server: make this `claim`, and wait until the server, which must have this `key`, admits this rank.

    Raises:
        OSError: the connection failed; `Refused` if the other end has another key, or does not admit this rank.
    """
    yield OUT
    if code := line.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
        raise OSError(code, "")
    place = line.place()
    expected = _welcome(place)
    yield from _send(line.sock, hello(claim, secure=tls is not None, place=place))
    if tls is None:
        answered = yield from _receive(line.sock, len(expected))
    else:
        line.stream = stream = tls.stream()
        yield from _shake(line.sock, stream)
        if stream.identity() != key:
            raise Refused("the listener there is not that rank")
        answered = yield from _decrypt(line.sock, stream, len(expected))
    if answered != expected:
        raise Refused("the listener there does not admit this rank, or does not speak its protocol")


def answer(line: Line, members: Members, tls: TlsServer | None) -> Steps[tuple[int, Place]]:
    """Answer a client; return its rank, a negative number if it has only shown that it knows the job, and the place.

    Raises:
        OSError: the client is a stranger, or is gone.
    """
    name, version, secure, index, count, size = _HELLO.unpack((yield from _receive(line.sock, _HELLO.size)))
    if (name, version, secure) != (_NAME, _VERSION, tls is not None) or size > LONGEST:
        raise Refused("a stranger")
    if not index < count <= MOST_CONNECTIONS:
        raise Refused("a connection without a place")
    claim = yield from _receive(line.sock, size)
    if not members.known:
        yield 0
    rank = members.rank_of(claim) if members.known else None  # resumed before the members are known: the client is gone
    if rank is None:
        raise Refused("a stranger")
    welcome = _welcome(Place(index, count))
    if tls is not None:
        tls.trust(claim)
        line.stream = stream = tls.stream()
        yield from _shake(line.sock, stream)
        if stream.identity() != fingerprint(claim):
            raise Refused("a stranger")
        welcome = b"".join(stream.encrypt([welcome]))
    yield from _send(line.sock, welcome)
    return rank, Place(index, count)


def _welcome(place: Place) -> bytes:
    return _WELCOME + bytes(place)


def _shake(sock: socket.socket, stream: TlsStream) -> Steps[None]:
    left = MOST_SAID
    while True:
        try:
            stream.shake()
        except ssl.SSLWantReadError:
            if not left:
                raise Refused("it sends too many bytes before it is authenticated") from None
            yield from _send(sock, stream.unsent())
            left -= yield from _feed(sock, stream, left)
        except ssl.SSLError:
            with suppress(OSError):
                sock.send(stream.unsent())  # TLS's alert with the reason
            raise
        else:
            yield from _send(sock, stream.unsent())
            return


def _decrypt(sock: socket.socket, stream: TlsStream, size: int) -> Steps[bytes]:
    """Receive at most `size` bytes of one record."""
    data = memoryview(bytearray(size))
    while True:
        try:
            return bytes(data[: stream.read_into(data)])
        except ssl.SSLWantReadError:
            yield from _feed(sock, stream, MOST_SAID)


def _feed(sock: socket.socket, stream: TlsStream, most: int) -> Steps[int]:
    """Receive at most `most` bytes, feed them to TLS, and return their number."""
    while True:
        try:
            data = sock.recv(most)
        except BlockingIOError:
            yield IN
        else:
            if not data:
                raise _closed()
            stream.feed(data)
            return len(data)


def _send(sock: socket.socket, data: bytes) -> Steps[None]:
    while data:
        try:
            data = data[sock.send(data) :]
        except BlockingIOError:
            yield OUT


def _receive(sock: socket.socket, size: int) -> Steps[bytes]:
    """Receive exactly `size` bytes: the bytes after them belong to another reader."""
    data = b""
    while len(data) < size:
        try:
            more = sock.recv(size - len(data))
        except BlockingIOError:
            yield IN
        else:
            if not more:
                raise _closed()
            data += more
    return data


def _closed() -> ConnectionResetError:
    return ConnectionResetError("it was closed by the other side")
