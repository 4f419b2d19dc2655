"""Certificates of ranks, beside certificates of `cryptography` from the same key, name and number."""

from __future__ import annotations

import ssl
from datetime import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ringcast.net.certificates import LONGEST, new_certificate

PEM = serialization.Encoding.PEM


def test_a_certificate_is_byte_for_byte_that_of_cryptography() -> None:
    for _ in range(200):  # numbers of different lengths
        made = new_certificate()
        read = x509.load_der_x509_certificate(made.public)
        key = serialization.load_pem_private_key(made.secret, None)
        assert isinstance(key, Ed25519PrivateKey)
        assert read.issuer == read.subject
        builder = x509.CertificateBuilder().subject_name(read.subject).issuer_name(read.subject)
        builder = builder.public_key(key.public_key()).serial_number(read.serial_number)
        builder = builder.not_valid_before(datetime(2000, 1, 1)).not_valid_after(datetime(9999, 12, 31, 23, 59, 59))
        expected = builder.sign(key, None)
        assert made.public == expected.public_bytes(serialization.Encoding.DER)
        secret = key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        assert made.secret == expected.public_bytes(PEM) + secret
        assert len(made.public) < LONGEST


def test_ssl_takes_it_and_no_two_are_alike(tmp_path: Path) -> None:
    made = [new_certificate() for _ in range(3)]
    for each in made:
        file = tmp_path / "both.pem"
        file.write_bytes(each.secret)
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(file)
    read = [x509.load_der_x509_certificate(each.public) for each in made]
    assert len({each.serial_number for each in read}) == len({each.subject for each in read}) == 3
