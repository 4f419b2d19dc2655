"""Digests: SHA-256 of each chunk.

hashlib calls OpenSSL, which uses the processor's instructions for SHA-256 and lets other threads run meanwhile.
"""

from __future__ import annotations

import hashlib

from ringcast.transfer.layout import CHUNK


def of_chunks(data: memoryview) -> list[bytes]:
    """Return the digest of each chunk of a piece."""
    return [hashlib.sha256(data[at : at + CHUNK]).digest() for at in range(0, len(data), CHUNK)]
