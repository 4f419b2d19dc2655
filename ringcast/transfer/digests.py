"""Digests: SHA-256 of each chunk, and one of all of them together.

hashlib calls OpenSSL, which uses the processor's instructions for SHA-256 and lets other threads run meanwhile.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from ringcast.transfer.layout import CHUNK

SIZE = hashlib.sha256().digest_size


def of_chunks(data: memoryview) -> list[bytes]:
    """Return the digest of each chunk of a piece."""
    return [hashlib.sha256(data[at : at + CHUNK]).digest() for at in range(0, len(data), CHUNK)]


def of_all(digests: Mapping[int, bytes]) -> str:
    """Return one digest of all chunks' digests in their order, as hexadecimal digits: equal where contents are.

    >>> of_all({0: b"a"}) == of_all({0: b"b"})
    False
    """
    whole = hashlib.sha256()
    for chunk in sorted(digests):
        whole.update(digests[chunk])
    return whole.hexdigest()
