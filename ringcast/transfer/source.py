"""Read the contents of listed files, and raise an error if a file changed after it was listed."""

from __future__ import annotations

import os

from ringcast._util.safe_files import Folders, open_regular
from ringcast.errors import TransferError
from ringcast.transfer.layout import Layout, Piece
from ringcast.transfer.listing import Listing, Root
from ringcast.transfer.manifest import Entry, shown

_MODE = 0o1777  # permission bits that are listed as they are


class Source:
    """The files of a manifest on the host that has them; one file is open at a time."""

    def __init__(self, listing: Listing) -> None:
        self.manifest, self._listing = listing.manifest, listing
        self.layout = Layout(listing.manifest)
        self._entry, self._file = -1, -1
        self._root: Root | None = None  # the root of the directories that are open
        self._folders: Folders | None = None

    def read(self, piece: Piece, buffer: memoryview) -> None:
        """Fill a buffer of the piece's length.

        Raises:
            TransferError: a file cannot be read, or has changed since it was listed.
        """
        at = 0
        for span in self.layout.spans(piece):
            entry = self.manifest.entries[span.entry]
            try:
                if span.entry != self._entry:
                    self._open(span.entry, entry)
                end = at + span.length
                offset = span.offset
                while at < end:
                    got = os.preadv(self._file, [buffer[at:end]], offset)
                    if got == 0:
                        raise TransferError(f"{self._shown(span.entry)}: became shorter while it was read")
                    at, offset = at + got, offset + got
                self._check(span.entry, entry, os.fstat(self._file))
            except OSError as error:
                raise TransferError(f"{self._shown(span.entry)}: {error.strerror}") from error

    def close(self) -> None:
        self._close_file()
        if self._folders is not None:
            self._folders.close()
        self._root = self._folders = None

    def _close_file(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._entry, self._file = -1, -1

    def _open(self, number: int, entry: Entry) -> None:
        """Open a file and check that it is the listed one, by inode and mode; its name may lead to another file now."""
        self._close_file()
        root = self._listing.roots[number]
        folder, _, name = root.below(entry.path).rpartition(b"/")
        if name:
            self._file, status = open_regular(name, self._folders_of(root).at(folder))
        else:
            self._file, status = open_regular(root.path, follow=True)
        if status.st_ino != self._listing.inodes[number] or (status.st_mode ^ entry.mode) & _MODE:
            raise TransferError(f"{self._shown(number)}: changed after it was listed; copy it again")
        self._check(number, entry, status)
        self._entry = number

    def _folders_of(self, root: Root) -> Folders:
        if self._folders is None or root is not self._root:
            self.close()
            self._folders = Folders(os.open(root.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), of_anybody=True)
            self._root = root
        return self._folders

    def _check(self, number: int, entry: Entry, status: os.stat_result) -> None:
        if status.st_size != entry.size or status.st_mtime_ns != entry.mtime:
            raise TransferError(f"{self._shown(number)}: changed while it was read; copy it again")

    def _shown(self, number: int) -> str:
        return shown(self._listing.place(number))
