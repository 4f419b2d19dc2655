"""Remember which chunks of a remote source have arrived, so that a copy that broke off goes on where it was.

A source has no digests of its own to compare with. So a file beside the part files keeps the digest of each chunk that
was written, under the identity of the source: its name, and the size and version of each of its files. The chunks are
compared with their digests when the copy goes on: whatever became of the file or the disk meanwhile, a chunk that is
wrong is read again. The file is removed when all is there.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import struct
from collections.abc import Iterable, Mapping
from contextlib import suppress

from ringcast._util.safe_files import is_ours, open_new, open_regular

_ITEM = struct.Struct("<Q32s")  # number of a chunk, and its SHA-256
_TURNS = 200_000  # of the digest of a secret: a tenth of a second


def identity(source: str, files: Iterable[tuple[bytes, int, str]], secret: str = "") -> bytes:
    """Return a digest of a source and of name, size and version of its files; b"" if a file has no version.

    `secret` is a text that must be equal, too. The digest is on a disk: a short secret is not found by trying, as each
    try takes long, and helps with no other source.

    >>> identity("http://host/a", [(b"a", 3, '"1"')]) == identity("http://host/a", [(b"a", 3, '"2"')])
    False
    >>> identity("http://host/a", [(b"a", 3, "")])
    b''
    >>> identity("http://host/a", [(b"a", 3, "1")], "?id=1") == identity("http://host/a", [(b"a", 3, "1")], "?id=2")
    False
    """
    digest = hashlib.sha256(source.encode())
    for path, size, version in files:
        if not version:
            return b""
        for part in path, str(size).encode(), version.encode():
            digest.update(struct.pack("<Q", len(part)) + part)
    if not secret:
        return digest.digest()
    return hashlib.pbkdf2_hmac("sha256", os.fsencode(secret), digest.digest(), _TURNS)


class Arrived:
    """The digests of chunks, in a file of its own, which no other copy uses at the same time.

    Attributes:
        known: what an earlier copy of the same source has left, by chunk.
    """

    def __init__(self, folder: int, source: str, identity: bytes) -> None:
        """Open the file in a directory; one of another identity is begun anew.

        Raises:
            OSError: it cannot be used.
        """
        self._file, self._head = _opened(_name(source), folder), len(identity)
        self.known: dict[int, bytes] = {}
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._cut()
            with open(self._file, "rb", closefd=False) as reader:
                head, items = reader.read(len(identity)), reader.read()
            if head == identity:
                self.known = dict(_ITEM.iter_unpack(items))
            else:
                os.ftruncate(self._file, 0)
                os.write(self._file, identity)
        except BaseException:
            self.close()
            raise

    def add(self, digests: Mapping[int, bytes]) -> None:
        """Remember chunks that were written; where there is no room for that, they are read again."""
        with suppress(OSError):
            os.write(self._file, b"".join(_ITEM.pack(*item) for item in digests.items()))
        with suppress(OSError):
            self._cut()  # the disk may have had room for a part of it: the next items would not be found behind that

    def close(self) -> None:
        """Close the file, which stays."""
        os.close(self._file)

    def _cut(self) -> None:
        """Cut off a part of an item at the end."""
        length = os.fstat(self._file).st_size
        if (part := max(0, length - self._head) % _ITEM.size) > 0:
            os.ftruncate(self._file, length - part)


def forget(folder: int, source: str) -> None:
    """Remove the file from its directory.

    Raises:
        OSError: there is none, or it cannot be removed.
    """
    os.unlink(_name(source), dir_fd=folder)


def _name(source: str) -> str:
    return f".{hashlib.sha256(source.encode()).hexdigest()[:16]}.ringcast-arrived"


def _opened(name: str, folder: int) -> int:
    """Open the file of this user that has the name, or a new one in its place."""
    with suppress(OSError):
        file, status = open_regular(name, folder, os.O_RDWR | os.O_APPEND)
        if is_ours(os.fstat(folder), status):
            return file
        os.close(file)
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
    file = open_new(name, folder)
    fcntl.fcntl(file, fcntl.F_SETFL, os.O_APPEND)
    return file
