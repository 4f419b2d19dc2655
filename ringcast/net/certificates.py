"""Make self-signed certificates of ranks; each rank makes one at its start, and is known by its fingerprint.

No authority signs a certificate: the control plane distributes the fingerprints of all ranks, and a peer is accepted
if it has the private key of the certificate with the right fingerprint. So name, validity and serial number mean
nothing.

The few bytes of X.509 (RFC 5280) are written here: the import of `cryptography`'s module for them takes 50 ms.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from dataclasses import field

from zmq.utils import z85

from ringcast._util.dataclass import dataclass

LONGEST = 1000  # bytes of a certificate; ours have 240
_SERIAL = 158  # bits of a serial number, which has 20 bytes at most (RFC 5280)


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate and its private key."""

    public: bytes  # DER
    secret: bytes = field(repr=False)  # both, in PEM


def new_certificate() -> Certificate:
    """Return a new self-signed certificate with an Ed25519 key; the first call imports a part of `cryptography`."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # jobs on one host do not need it

    key = Ed25519PrivateKey.generate()
    # A server that trusts several certificates finds a client's certificate by this name.
    name = _sequence(_der(0x31, _sequence(_COMMON_NAME, _der(0x0C, secrets.token_hex(16).encode()))))
    public = _sequence(_ED25519, _bits(key.public_key().public_bytes_raw()))
    serial = _integer(1 + secrets.randbits(_SERIAL))
    to_sign = _sequence(_der(0xA0, _integer(2)), serial, _ED25519, name, _ALWAYS, name, public)
    made = _sequence(to_sign, _ED25519, _bits(key.sign(to_sign)))
    secret = _sequence(_integer(0), _ED25519, _der(0x04, _der(0x04, key.private_bytes_raw())))
    return Certificate(made, _pem("CERTIFICATE", made) + _pem("PRIVATE KEY", secret))


def _der(tag: int, content: bytes) -> bytes:
    """Return an element of DER (X.690)."""
    size = len(content)
    digits = b"" if size < 0x80 else size.to_bytes((size.bit_length() + 7) // 8)
    return bytes([tag, 0x80 | len(digits) if digits else size]) + digits + content


def _sequence(*elements: bytes) -> bytes:
    return _der(0x30, b"".join(elements))


def _integer(value: int) -> bytes:
    """Return a DER integer of a number that is not negative."""
    return _der(0x02, value.to_bytes(value.bit_length() // 8 + 1))


def _bits(content: bytes) -> bytes:
    return _der(0x03, b"\0" + content)


def _pem(label: str, content: bytes) -> bytes:
    text = base64.encodebytes(content).replace(b"\n", b"")
    lines = b"".join(text[at : at + 64] + b"\n" for at in range(0, len(text), 64))
    return b"-----BEGIN %b-----\n%b-----END %b-----\n" % (label.encode(), lines, label.encode())


_ED25519 = _sequence(b"\x06\x03\x2b\x65\x70")  # 1.3.101.112 (RFC 8410)
_COMMON_NAME = b"\x06\x03\x55\x04\x03"  # 2.5.4.3
_ALWAYS = _sequence(_der(0x17, b"000101000000Z"), _der(0x18, b"99991231235959Z"))  # clocks of hosts may differ


def fingerprint(certificate: bytes) -> str:
    """Return the SHA-256 of a certificate (DER) in Z85: 40 characters, as a CURVE key has."""
    return z85.encode(hashlib.sha256(certificate).digest()).decode()
