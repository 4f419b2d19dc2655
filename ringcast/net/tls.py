"""TLS 1.3 between ranks, by the standard library: both ends have a certificate, which is checked by its fingerprint.

Python's `ssl` asks a client for its certificate only if it verifies that against certificates that it trusts, and a
server knows fingerprints only. So a client sends its certificate ahead, in the clear, and the server trusts it for TLS
if it has the fingerprint of a member (`TlsServer.trust`). In the handshake the client then proves that it has the
private key. The client needs no trusted certificates: it compares the fingerprint of what the server has proved.

Sessions are not resumed, so each connection has keys of its own, and what is recorded stays secret.
"""

from __future__ import annotations

import os
import socket
import ssl
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from ringcast.net.certificates import Certificate, fingerprint

RECORD = 16 << 10  # bytes that travel together, encrypted, …
ADDED = 22  # … and so many more: 5 of header, 1 of type, 16 of authentication


class TlsServer:
    """Admits clients whose certificates it trusts."""

    def __init__(self, own: Certificate) -> None:
        self._context = _context(ssl.PROTOCOL_TLS_SERVER, own)
        self._context.verify_mode = ssl.CERT_REQUIRED
        self._context.num_tickets = 0

    def trust(self, certificate: bytes) -> None:
        """Trust a certificate (DER), whose fingerprint is that of a member."""
        self._context.load_verify_locations(cadata=certificate)

    def wrap(self, sock: socket.socket) -> ssl.SSLSocket:
        """Return a connection whose handshake is still to be made; takes over `sock`."""
        return self._context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)


class TlsClient:
    """Connects to servers; who they are is to be checked after the handshake, by `identity`."""

    def __init__(self, own: Certificate) -> None:
        self._context = _context(ssl.PROTOCOL_TLS_CLIENT, own)
        self._context.check_hostname = False
        self._context.verify_mode = ssl.CERT_NONE

    def wrap(self, sock: socket.socket) -> ssl.SSLSocket:
        """Return a connection whose handshake is still to be made; takes over `sock`."""
        return self._context.wrap_socket(sock, do_handshake_on_connect=False)


def identity(sock: ssl.SSLSocket) -> str:
    """Return the fingerprint of the certificate whose private key the other end has; after the handshake."""
    certificate = sock.getpeercert(binary_form=True)
    return "" if certificate is None else fingerprint(certificate)


def encrypted(size: int) -> int:
    """Return how many bytes travel for `size` bytes that begin with a record.

    >>> encrypted(0), encrypted(1), encrypted(RECORD), encrypted(RECORD + 1) - RECORD
    (0, 23, 16406, 45)
    """
    return size + ADDED * -(-size // RECORD)


def _context(protocol: int, own: Certificate) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    with _as_file(own.secret) as path:
        context.load_cert_chain(path)
    return context


@contextmanager
def _as_file(secret: bytes) -> Iterator[str]:
    """Give a secret a path, as `ssl` reads it from nowhere else: on Linux one in memory, that only this process has."""
    if sys.platform == "linux":
        with open(os.memfd_create("ringcast", os.MFD_CLOEXEC), "w+b") as file:
            file.write(secret)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
    else:
        with tempfile.NamedTemporaryFile() as named:
            named.write(secret)
            named.flush()
            yield named.name
