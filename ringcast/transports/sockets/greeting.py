"""Begin a connection between two ranks. It carries messages in one direction, from the rank that has made it.

The client sends a hello: the protocol's name and its claim to be a member. With TLS the claim is its certificate, which
is public, else a digest of the job's addresses. With TLS a handshake follows, in which both prove their private keys.
When the server has admitted the client, it sends a welcome, and only then the client sends messages; so a connection
that ends before may be made anew, and nothing is lost.

Each side is a generator: it yields the events to wait for before it is to go on (0: none, until the members are known).
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Generator
from contextlib import suppress
from typing import Protocol, TypeAlias, TypeVar

from ringcast.net.certificates import LONGEST, fingerprint
from ringcast.net.tls import TlsClient, TlsServer, TlsStream
from ringcast.transports.sockets.watcher import IN, OUT

Result = TypeVar("Result")
Steps: TypeAlias = Generator[int, None, Result]

MOST_SAID = 4096  # bytes that either end may send in the handshake, which takes less than half of them
_HELLO = struct.Struct("<8sBBH")  # name and version of the protocol, whether TLS follows, bytes of the claim
_NAME, _VERSION = b"ringcast", 1
_WELCOME, REFUSED = _NAME + b" welcome", _NAME + b" refuses"  # the refusal is sent in the clear, in answer to the hello


class Refused(ConnectionError):
    """The other end is not the expected rank, or does not admit this one."""


class Line(Protocol):
    """A connection that is being made; the greeting gives it a `stream` where it is encrypted from then on."""

    sock: socket.socket
    stream: TlsStream | None


class Members(Protocol):
    """The members of the job, who are admitted."""

    @property
    def known(self) -> bool:
        """Whether the members are known already."""

    def rank_of(self, claim: bytes) -> int | None:
        """Return the rank that makes this claim; a negative number if the claim shows no rank; None for a stranger."""


def hello(claim: bytes, *, secure: bool) -> bytes:
    """Return a client's hello; `claim` is its certificate, or the digest of the job and a random number."""
    return _HELLO.pack(_NAME, _VERSION, secure, len(claim)) + claim


def call(line: Line, said: bytes, tls: TlsClient | None, key: str) -> Steps[None]:
    """Greet a server: send the hello `said`, and wait until the server, which must have this `key`, admits this rank.

    Raises:
        OSError: the connection failed; `Refused` if the other end has another key, or does not admit this rank.
    """
    yield OUT
    if code := line.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
        raise OSError(code, "")
    yield from _send(line.sock, said)
    if tls is None:
        answered = yield from _receive(line.sock, len(_WELCOME))
    else:
        line.stream = stream = tls.stream()
        yield from _shake(line.sock, stream)
        if stream.identity() != key:
            raise Refused("the listener there is not that rank")
        answered = yield from _decrypt(line.sock, stream, len(_WELCOME))
    if answered != _WELCOME:
        raise Refused("the listener there does not admit this rank, or does not speak its protocol")


def answer(line: Line, members: Members, tls: TlsServer | None) -> Steps[int]:
    """Answer a client, and return its rank; a negative number if it has only shown that it knows the job.

    Raises:
        OSError: the client is a stranger, or is gone.
    """
    name, version, secure, size = _HELLO.unpack((yield from _receive(line.sock, _HELLO.size)))
    if (name, version, secure) != (_NAME, _VERSION, tls is not None) or size > LONGEST:
        raise Refused("a stranger")
    claim = yield from _receive(line.sock, size)
    if not members.known:
        yield 0
    rank = members.rank_of(claim) if members.known else None  # resumed before the members are known: the client is gone
    if rank is None:
        raise Refused("a stranger")
    welcome = _WELCOME
    if tls is not None:
        tls.trust(claim)
        line.stream = stream = tls.stream()
        yield from _shake(line.sock, stream)
        if stream.identity() != fingerprint(claim):
            raise Refused("a stranger")
        welcome = b"".join(stream.encrypt([_WELCOME]))
    yield from _send(line.sock, welcome)
    return rank


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
