"""Sign the root's announcements, because hosts that do not trust each other pass them on.

The command makes a pair of keys for each copy. The public key comes to every host with the command that starts its
rank, the secret key to the root alone. A replayed announcement is harmless: it is one of the same copy, and true.
"""

from __future__ import annotations

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from ringcast.errors import TransferError

_SIZE = 64  # bytes of a signature


class Seal:
    """Signs with the secret key, and checks with the public one; on other ranks than the root `secret` is empty."""

    def __init__(self, public: bytes, secret: bytes = b"") -> None:
        self._public = Ed25519PublicKey.from_public_bytes(public)
        self._secret = Ed25519PrivateKey.from_private_bytes(secret) if secret else None

    def sealed(self, data: bytes) -> bytes:
        """Return data with their signature."""
        assert self._secret is not None
        return self._secret.sign(data) + data

    def opened(self, data: memoryview) -> memoryview:
        """Return the data that the root has sealed.

        Raises:
            TransferError: another host has changed them.
        """
        try:
            self._public.verify(data[:_SIZE].tobytes(), data[_SIZE:])
        except InvalidSignature:
            raise TransferError("another host has changed an announcement of the host with the files") from None
        return data[_SIZE:]


def new_keys() -> tuple[bytes, bytes]:
    """Return a public key and its secret one, 32 bytes each."""
    secret = Ed25519PrivateKey.generate()
    return secret.public_key().public_bytes_raw(), secret.private_bytes_raw()
