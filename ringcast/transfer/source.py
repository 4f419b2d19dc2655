"""Source: reads the contents of a manifest's files, and says if a file changed after it was listed."""

from __future__ import annotations

import os
from collections.abc import Sequence

from ringcast.errors import TransferError
from ringcast.transfer.layout import Layout, Piece
from ringcast.transfer.manifest import Manifest, shown


class Source:
    """The files of a manifest on the host that has them; one file is open at a time."""

    def __init__(self, manifest: Manifest, bases: Sequence[bytes]) -> None:
        self.manifest, self._bases = manifest, bases
        self.layout = Layout(manifest)
        self._entry, self._file = -1, -1

    def read(self, piece: Piece, buffer: memoryview) -> None:
        """Fill a buffer of the piece's length.

        Raises:
            TransferError: a file cannot be read, or is not any more what the manifest says.
        """
        at = 0
        for span in self.layout.spans(piece):
            try:
                self._open(span.entry)
                end = at + span.length
                offset = span.offset
                while at < end:
                    got = os.preadv(self._file, [buffer[at:end]], offset)
                    if got == 0:
                        raise TransferError(f"{self._shown(span.entry)}: became shorter while it was read")
                    at, offset = at + got, offset + got
                self._check(span.entry)
            except OSError as error:
                raise TransferError(f"{self._shown(span.entry)}: {error.strerror}") from error

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._entry, self._file = -1, -1

    def _open(self, entry: int) -> None:
        if entry != self._entry:
            self.close()
            self._file, self._entry = os.open(self._place(entry), os.O_RDONLY | os.O_CLOEXEC), entry

    def _check(self, number: int) -> None:
        status, entry = os.fstat(self._file), self.manifest.entries[number]
        if (status.st_size, status.st_mtime_ns) != (entry.size, entry.mtime):
            raise TransferError(f"{self._shown(number)}: changed while it was read; copy it again")

    def _place(self, entry: int) -> bytes:
        return self._bases[entry] + self.manifest.entries[entry].path

    def _shown(self, entry: int) -> str:
        return shown(self._place(entry))
