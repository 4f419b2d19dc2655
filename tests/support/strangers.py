"""Bytes that a client without a key sends to the port of a rank."""

from __future__ import annotations

import random
import select
import socket
import ssl
import time
from collections.abc import Sequence

from ringcast.net.tls import TlsClient
from ringcast.transports.sockets.greeting import hello
from ringcast.transports.sockets.transport import SocketTransport
from support.patience import patience
from support.socket_jobs import PATIENCE

BUSY = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


def stranger(transport: SocketTransport, said: bytes = b"") -> socket.socket:
    """Connect to a rank's port and say something; the socket does not block."""
    sock = socket.create_connection(("127.0.0.1", port_of(transport.address)), timeout=patience(PATIENCE))
    sock.setblocking(False)
    sock.send(said)
    return sock


def ended(sock: socket.socket) -> bool:
    """Return whether the other end has closed a connection; what it has said is dropped."""
    try:
        while sock.recv(1 << 16):
            pass
    except BUSY:
        return False
    except OSError:
        pass
    return True


def until_ended(sock: socket.socket, *ranks: SocketTransport) -> None:
    """Let ranks work until one of them has closed a connection."""
    deadline = time.monotonic() + patience(PATIENCE)
    while not ended(sock):
        assert time.monotonic() < deadline
        for rank in ranks:
            rank.unreached()


def until_counted(count: int, rank: SocketTransport) -> None:
    """Let a rank work until it has counted so many strangers."""
    deadline = time.monotonic() + patience(PATIENCE)
    while rank.strangers < count:
        assert time.monotonic() < deadline, rank.strangers
        rank.unreached()


def shaken(sock: socket.socket, client: TlsClient, claim: bytes, *ranks: SocketTransport) -> ssl.SSLSocket | None:
    """Claim to be who `claim` says, and show the client's certificate; return the connection if that is admitted."""
    sock.send(hello(claim, secure=True))
    wrapped = client._context.wrap_socket(sock, do_handshake_on_connect=False)
    deadline = time.monotonic() + patience(PATIENCE)
    while time.monotonic() < deadline:
        for rank in ranks:
            rank.unreached()
        try:
            wrapped.do_handshake()
            if wrapped.recv(1):
                return wrapped
            break
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            select.select([wrapped], [], [], 0)
        except OSError:
            break
    wrapped.close()
    return None


def garbage(rng: random.Random, i: int) -> bytes:
    """Return noise, half a hello, a hello with noise behind it, the beginning of TLS, or another protocol's."""
    noise = rng.randbytes(rng.randint(1, 300))
    begin = hello(noise, secure=True)
    return (noise, begin[: rng.randint(1, 11)], begin, b"\x16\x03\x01\x02\x00\x01" + noise, b"GET / HTTP/1.0\r\n\r\n")[
        i % 5
    ]


def close_all(socks: Sequence[socket.socket]) -> None:
    for sock in socks:
        sock.close()
