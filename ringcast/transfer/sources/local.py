"""A file at a path: on a disk of this host, or on one that hosts share."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator

from ringcast.transfer.origin import open_file
from ringcast.transfer.sources.base import Changed, Interrupted, Missing, Unreadable, in_a_line

BLOCK = 1 << 20  # bytes that are read at once, so that others can get them soon
_SAMPLES, _SAMPLE = 16, 4096  # pieces of the content, and bytes of each, by which copies on several hosts are compared


class LocalSource:
    """A regular file. Its version is its time of change and a digest of samples of its content."""

    def __init__(self, path: str) -> None:
        try:
            self._file, status = open_file(path)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise Missing(in_a_line(error)) from None
        except (OSError, ValueError) as error:
            raise Unreadable(in_a_line(error)) from None
        self.size, self._changed = status.st_size, status.st_mtime_ns
        try:
            self.version = f"{self._changed} {_sampled(self._file, self.size)}"
        except OSError as error:
            self.close()
            raise Interrupted(in_a_line(error)) from None

    def connect(self) -> _Reads:
        """Return a connection, which reads the file at places of its own."""
        return _Reads(self._file, self.size)

    def check(self) -> None:
        """Raise Changed if size or time of change are other ones."""
        status = os.fstat(self._file)
        if (status.st_size, status.st_mtime_ns) != (self.size, self._changed):
            raise Changed("size or time of change are other ones than at the start")

    def close(self) -> None:
        """Close the file, which no thread reads any more."""
        os.close(self._file)


class _Reads:
    def __init__(self, file: int, size: int) -> None:
        self._file, self._size = file, size

    def read(self, start: int, into: memoryview) -> Iterator[int]:
        done = 0
        while done < len(into):
            try:
                length = os.preadv(self._file, [into[done : done + BLOCK]], start + done)
            except OSError as error:
                raise Interrupted(in_a_line(error)) from None
            if not length:
                raise Changed(f"it ends at byte {start + done:,} of {self._size:,}")
            done += length
            yield length

    def interrupt(self) -> None:
        """Do nothing: a file cannot be left before it answers."""

    def close(self) -> None:
        """Leave the file to its source."""


def _sampled(file: int, size: int) -> str:
    digest = hashlib.sha256()
    for number in range(_SAMPLES):
        digest.update(os.pread(file, _SAMPLE, max(0, size - _SAMPLE) * number // (_SAMPLES - 1)))
    return digest.hexdigest()
