"""Encrypt connections between ranks by TLS 1.3; both ends have a certificate, which is checked by its fingerprint.

Python's `ssl` asks a client for its certificate only if it verifies the certificate against trusted certificates, and a
server knows fingerprints only. So a client sends its certificate ahead, in the clear, and the server trusts it for TLS
if it has the fingerprint of a member (`TlsServer.trust`). In the handshake the client then proves that it has the
private key. The client needs no trusted certificates: it compares the fingerprint of the certificate whose private key
the server has proved.

Sessions are not resumed, so each connection has keys of its own, and recorded traffic stays secret.
"""

from __future__ import annotations

import ssl
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from ringcast.net.certificates import Certificate, fingerprint
from ringcast.procs.portable import nameless_file

RECORD = 16 << 10  # bytes that travel together, encrypted, …
ADDED = 22  # … and the bytes that encryption adds to them: 5 of header, 1 of type, 16 of authentication


class TlsServer:
    """Admits clients whose certificates it trusts."""

    def __init__(self, own: Certificate) -> None:
        self._context = _context(ssl.PROTOCOL_TLS_SERVER, own)
        self._context.verify_mode = ssl.CERT_REQUIRED
        self._context.num_tickets = 0

    def trust(self, certificate: bytes) -> None:
        """Trust a certificate (DER); call this only if its fingerprint is a member's."""
        self._context.load_verify_locations(cadata=certificate)

    def stream(self) -> TlsStream:
        """Return one end of a connection, whose handshake is still to be made."""
        return TlsStream(self._context, server_side=True)


class TlsClient:
    """Connects to servers; the caller checks each server's fingerprint after the handshake, by `identity`."""

    def __init__(self, own: Certificate) -> None:
        self._context = _context(ssl.PROTOCOL_TLS_CLIENT, own)
        self._context.check_hostname = False
        self._context.verify_mode = ssl.CERT_NONE

    def stream(self) -> TlsStream:
        """Return one end of a connection, whose handshake is still to be made."""
        return TlsStream(self._context, server_side=False)


class TlsStream:
    """One end of an encrypted connection; its owner has the socket, and moves the bytes.

    An `SSLSocket` makes two system calls to read a record, and one to write it. Here one call carries many records.
    """

    def __init__(self, context: ssl.SSLContext, *, server_side: bool) -> None:
        self._received, self._unsent = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._received, self._unsent, server_side)
        self._read: Callable[[int, memoryview], Any] = self._tls.read  # returns an int, though its type says otherwise
        self.held = 0  # upper bound of the encrypted bytes that were fed and not read, whatever the other end sends

    def shake(self) -> None:
        """Go on with the handshake; send `unsent` afterwards, also when the handshake fails.

        Raises:
            ssl.SSLWantReadError: the handshake needs more bytes from the other end.
            ssl.SSLError: the data are no TLS 1.3 handshake, or the other end has not proved a trusted certificate.
        """
        self._tls.do_handshake()
        self.held = self._received.pending

    def unsent(self) -> bytes:
        """Return the bytes that the owner must send to the other end."""
        return self._unsent.read()

    def identity(self) -> str:
        """Return the fingerprint of the other end's certificate, whose private key it has proved in the handshake."""
        certificate = self._tls.getpeercert(binary_form=True)
        return "" if certificate is None else fingerprint(certificate)

    def encrypt(self, pieces: Iterable[bytes | bytearray | memoryview]) -> list[bytes]:
        """Encrypt the pieces, each from a new record on, and return the bytes to send."""
        encrypted = []
        for piece in pieces:
            self._tls.write(piece)
            encrypted.append(self._unsent.read())
        return encrypted

    def seal(self, data: bytes) -> bytes:
        """Encrypt at most RECORD bytes, which are not empty, as one record, and return it."""
        self._tls.write(data)
        return self._unsent.read()

    def feed(self, data: bytes | memoryview) -> None:
        """Take bytes from the other end."""
        self._received.write(data)
        self.held += len(data)

    def read_into(self, view: memoryview) -> int:
        """Decrypt at most one record into `view`; return the number of bytes, 0 after the other end's last record.

        Raises:
            ssl.SSLWantReadError: more bytes must be fed.
            ssl.SSLError: the bytes were changed on the way.
        """
        size = len(view)
        got: int = self._read(size, view)
        self.held -= got if got == size and self._tls.pending() else got + ADDED
        return got


def encrypted(size: int) -> int:
    """Return the number of encrypted bytes for `size` bytes that begin with a new record.

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
    """Give a secret a path, because `ssl` reads it only from a file; on Linux the file has no name in a directory."""
    if sys.platform == "linux":
        with open(nameless_file("ringcast"), "w+b") as file:
            file.write(secret)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
    else:
        import tempfile

        with tempfile.NamedTemporaryFile() as named:
            named.write(secret)
            named.flush()
            yield named.name
