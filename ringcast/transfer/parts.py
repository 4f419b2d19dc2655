"""Keep the contents of files that are not whole yet in part files: `.NAME.ringcast-part`, readable by their owner only.

A part file is used again only if it is a regular file of this user, and in folders where others can write only if it
has no other hard link; else it is removed, and made anew. Content and mode are set by descriptor only.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from array import array

from ringcast._util.safe_files import open_new
from ringcast.transfer.attributes import Attributes
from ringcast.transfer.layout import Span
from ringcast.transfer.manifest import Manifest, shown
from ringcast.transfer.places import Places
from ringcast.transfer.zeros import runs

NOT_ALONE = "another copy writes it at the same time, maybe to this host by another name"


class Parts:
    """Part files of a manifest's entries, by their numbers; one is open for writing at a time."""

    def __init__(self, manifest: Manifest, places: Places, attributes: Attributes) -> None:
        self._manifest, self._places, self._attributes = manifest, places, attributes
        self._inodes = array("Q", bytes(8 * len(manifest.entries)))  # 0: there is none
        self._ready = bytearray(len(manifest.entries))  # 1: it has mode and time, and lacks the name only
        self._file = -1
        self.opened = -1  # the entry whose part file is open for writing

    def find(self, number: int) -> os.stat_result | None:
        """Look for a part file of an earlier copy, and return its status; None if there is none."""
        found = self._places.own_part(number)
        self._inodes[number] = 0 if found is None else found.st_ino
        return found

    def exists(self, number: int) -> bool:
        """Return whether an entry has a part file, as `find` or `open` last saw it."""
        return bool(self._inodes[number])

    def begun(self) -> list[int]:
        """Return the entries that have part files."""
        return [number for number, inode in enumerate(self._inodes) if inode]

    def open_to_read(self, number: int) -> int | None:
        """Return a descriptor of the part file of an entry; None if it is not there any more."""
        return self._places.open_own(number, self._inodes[number], part=True)

    def open(self, number: int) -> int:
        """Return the descriptor of an entry's part file, a new one if there is none; it stays open until another is.

        Raises:
            OSError: the file cannot be made; or another copy writes it, or has renamed the part file of this copy.
        """
        if number != self.opened:
            self.close()
            self._file = self._opened(number, os.O_RDWR)
            self.opened = number
        return self._file

    def write(self, span: Span, data: memoryview, hollow: bool) -> None:
        """Write data into the part file that is open; where it is `hollow`, blocks of zeros stay holes."""
        for run in runs(data, span.offset) if hollow else [slice(0, span.length)]:
            at = run.start
            while at < run.stop:
                at += os.pwrite(self._file, data[at : run.stop], span.offset + at)

    def write_small(self, span: Span, data: memoryview, sparse: bool) -> None:
        """Write a whole file that lies in one chunk; only its final name is missing then.

        An old part file is removed first, because its mode may forbid to open it again.
        """
        self.close()
        if self._inodes[span.entry]:
            self._remove(span.entry)
        self._file = self._opened(span.entry, os.O_RDWR)
        self.write(span, data, sparse)
        if sparse:
            os.ftruncate(self._file, span.length)
        entry = self._manifest.entries[span.entry]
        if entry.mode & stat.S_IRUSR:  # else it could not be opened to be synced
            self._attributes.give(self._file, entry)
            self._ready[span.entry] = 1

    def name(self, number: int, sync: bool) -> None:
        """Rename the part file of a whole entry; without `sync` the caller has synced all file systems before."""
        folder, name, part = self._places.spot(number)
        if sync or not self._ready[number]:
            self._complete(number, sync)
        elif os.stat(part, dir_fd=folder, follow_symlinks=False).st_ino != self._inodes[number]:
            raise OSError(errno.EBUSY, NOT_ALONE)
        os.rename(part, name, src_dir_fd=folder, dst_dir_fd=folder)
        self._inodes[number], self._ready[number] = 0, 0

    def close(self) -> None:
        """Close the part file that is open."""
        if self._file >= 0:
            os.close(self._file)
        self._file, self.opened = -1, -1

    def _complete(self, number: int, sync: bool) -> None:
        """Set mode and time of a part file, and sync it if `sync`."""
        file = self._opened(number, os.O_RDONLY)
        try:
            self._attributes.give(file, self._manifest.entries[number])
            if sync:
                os.fsync(file)
        finally:
            os.close(file)

    def _opened(self, number: int, access: int) -> int:
        """Open the part file of an entry, a new one if there is none; no other copy may have it open for writing."""
        known = self._inodes[number]
        file = self._places.open_own(number, known, access, part=True) if known else self._made(number)
        if file is None:
            raise OSError(errno.EBUSY, NOT_ALONE)
        if not _locked(file):
            os.close(file)
            raise OSError(errno.EBUSY, NOT_ALONE)
        if not known:
            self._inodes[number] = os.fstat(file).st_ino
        return file

    def _made(self, number: int) -> int:
        """Make a part file, and remove any other file in its place.

        Raises:
            OSError: a usable part file is there now, so another copy writes it; or the other file cannot be removed.
        """
        folder, _, name = self._places.spot(number)
        try:
            return open_new(name, folder)
        except FileExistsError:
            if self._places.own_part(number) is not None:
                raise OSError(errno.EBUSY, NOT_ALONE) from None
        try:
            os.unlink(name, dir_fd=folder)
        except OSError as error:
            raise OSError(error.errno, f"{shown(name)} is there, and cannot be removed: {error.strerror}") from None
        return open_new(name, folder)

    def _remove(self, number: int) -> None:
        """Remove a part file that was there, unless another copy has replaced it."""
        folder, _, name = self._places.spot(number)
        if os.stat(name, dir_fd=folder, follow_symlinks=False).st_ino != self._inodes[number]:
            raise OSError(errno.EBUSY, NOT_ALONE)
        os.unlink(name, dir_fd=folder)
        self._inodes[number] = 0


def _locked(file: int) -> bool:
    """Lock a file until it is closed; return False if another process has locked it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True
