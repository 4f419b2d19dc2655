"""Certificates of ranks: each makes one at its start, self-signed, and is known by its fingerprint.

Nobody vouches for a certificate: the control plane distributes the fingerprints of all ranks, and what counts is that
a peer has the private key of the certificate with the right one. So name, validity and serial number mean nothing.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import field
from datetime import datetime

from zmq.utils import z85

from ringcast._util.dataclass import dataclass

LONGEST = 1000  # bytes of a certificate; one of ours has 240
_ALWAYS = datetime(2000, 1, 1), datetime(9999, 12, 31, 23, 59, 59)  # clocks of hosts may differ


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate and its private key."""

    public: bytes  # DER
    secret: bytes = field(repr=False)  # both, in PEM


def new_certificate() -> Certificate:
    """Return a new self-signed certificate with an Ed25519 key; the first one loads `cryptography`."""
    from cryptography import x509  # here, as jobs on one host do not need it
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    # A server that trusts several certificates finds the one that it needs by the name.
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, secrets.token_hex(16))])
    begin, end = _ALWAYS
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(begin).not_valid_after(end)
    made = builder.sign(key, None)
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Certificate(made.public_bytes(serialization.Encoding.DER), made.public_bytes(pem) + secret)


def fingerprint(certificate: bytes) -> str:
    """Return the SHA-256 of a certificate (DER) in Z85: 40 characters, as those of a CURVE key."""
    return z85.encode(hashlib.sha256(certificate).digest()).decode()
