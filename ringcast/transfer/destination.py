"""Write the files of a manifest on a host that gets them.

Contents are written into part files (`parts.py`). A part file is synced and renamed when it is whole: under its own
name a file is whole, or as it was before. Chunks that the file or its part file has already need not be sent, if the
file belongs to this user; another user could change their file at any time.
"""

from __future__ import annotations

import errno
import os
import stat
from array import array
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType

from ringcast.errors import TransferError
from ringcast.procs import portable
from ringcast.transfer import digests
from ringcast.transfer.attributes import Attributes
from ringcast.transfer.layout import CHUNK, Layout, Piece, Span
from ringcast.transfer.manifest import DIRECTORY, FILE, LINK, Entry, Manifest, shown
from ringcast.transfer.parts import Parts
from ringcast.transfer.places import Places
from ringcast.transfer.zeros import is_hollow

_MANY = 64  # files that become whole together, from which on one sync of the system is faster than one for each
_ALLOCATED = CHUNK  # bytes from which on a file's room is allocated before it is written
_REPLACED = "was replaced by another file meanwhile; copy it again"


class Destination:
    """The directory on this host into which the files of a manifest are written."""

    def __init__(self, manifest: Manifest, target: str, preserve: bool, sparse: bool = False) -> None:
        self.manifest, self._preserve, self._sparse = manifest, preserve, sparse
        self.layout = Layout(manifest)
        self.have: set[int] = set()  # chunks that are right
        self._attributes = Attributes(manifest, preserve)
        self._places = Places(manifest, os.fsencode(target))
        self._parts = Parts(manifest, self._places, self._attributes)
        self._there = array("Q", bytes(8 * len(manifest.entries)))  # inodes of files that may be kept; 0: there is none
        self._new: set[int] = set()  # entries whose part files were made empty by this copy
        self._written: set[int] = set()  # chunks that are in part files, be they right or not
        self._named = bytearray(len(manifest.entries))  # 1: this copy has given it its name
        self._file, self._entry = -1, -1  # the file that is open to be compared, and its entry

    # Before anything is sent.

    def prepare(self) -> int:
        """Make the directories; return how many bytes of content may be there already.

        Raises:
            TransferError: something is in the way, or may not be written.
        """
        with _naming(self._places.base):
            base = self._places.root()
            if os.statvfs(base).f_flag & os.ST_RDONLY:
                raise OSError(errno.EROFS, os.strerror(errno.EROFS))
            if not os.access(b".", os.W_OK | os.X_OK, dir_fd=base):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        existing, made = 0, set()  # directories that are new: there is nothing in them
        for number, entry in enumerate(self.manifest.entries):
            with _naming(self._places.path(number)):
                empty = self._places.folder(number) in made
                if entry.kind != DIRECTORY:
                    existing += 0 if empty else self._look(number, entry)
                elif empty or not self._places.enter(number):
                    self._places.make_folder(number)
                    made.add(entry.path)
        return existing

    def _look(self, number: int, entry: Entry) -> int:
        """Check the place of a file or link; return how many bytes of the entry's content may be there."""
        there = self._places.status(number)
        if there is not None:
            if stat.S_ISDIR(there.st_mode):
                raise IsADirectoryError(errno.EISDIR, f"is a directory there; it would be replaced by a {entry.kind}")
            self._places.check_replaceable(number, there)
        if entry.kind == LINK:
            return 0
        if there is not None and not self._places.is_own(number, there):
            there = None
        self._there[number] = 0 if there is None else there.st_ino
        candidate = self._parts.find(number) or there
        return entry.size if candidate is not None and candidate.st_size else 0

    def trust(self) -> None:
        """Take files of the right size as whole; with `preserve`, their times of change must be right too."""
        wrong = {number for number in self._filled() if self._parts.exists(number) or not self._looks_whole(number)}
        for chunk in range(self.layout.chunks):
            if wrong.isdisjoint(span.entry for span in self.layout.spans(Piece(chunk, 1))):
                self.have.add(chunk)

    def verify(self, expected: Mapping[int, bytes]) -> None:
        """Compare files and part files with the digests of chunks, and keep the chunks that are right."""
        buffer = memoryview(bytearray(CHUNK))
        for chunk, digest in expected.items():
            piece = Piece(chunk, 1)
            view = buffer[: self.layout.length(piece)]
            if self.read(piece, view) and digests.of_chunks(view) == [digest]:
                self.have.add(chunk)
        self.leave()

    def root(self) -> int:
        """Return the descriptor of the directory, which `prepare` has made.

        Raises:
            OSError: it is gone.
        """
        return self._places.root()

    def reserve(self) -> None:
        """Allocate room for the missing data, so that a full disk is an error before the first byte is sent.

        Raises:
            TransferError: there is not enough room.
        """
        needed, incomplete = 0, [number for number in self._filled() if not self._is_whole(number)]
        for number in incomplete:
            data = self.layout.data_of(number)
            part = self._places.own_part(number) if self._parts.exists(number) else None
            needed += max(0, data - part.st_blocks * 512) if part else data
        with _naming(self._places.base):
            room = os.statvfs(self._places.root())
            free = room.f_bavail * room.f_frsize
            if needed > free:
                raise OSError(errno.ENOSPC, f"no space: {needed:,} bytes are needed, {free:,} are free")
        for number in incomplete:
            entry = self.manifest.entries[number]
            if entry.size >= _ALLOCATED and not self._sparse and entry.data is None:
                with _naming(self._places.path(number)):
                    portable.allocate(self._open(number), entry.size)
        self._parts.close()

    # While pieces arrive.

    def write(self, piece: Piece, data: memoryview) -> None:
        """Write the chunks of a piece that this host does not have yet.

        Raises:
            TransferError: a file cannot be written.
        """
        for chunk in piece.chunks:
            if chunk in self.have:
                continue
            at = (chunk - piece.first) * CHUNK
            for span in self.layout.spans(Piece(chunk, 1)):
                content, at = data[at : at + span.length], at + span.length
                with _naming(self._places.path(span.entry)):
                    if span.length == self.manifest.entries[span.entry].size < _ALLOCATED:
                        self._parts.write_small(span, content, self._sparse)
                    else:
                        self._open(span.entry)
                        hollow = self._sparse and span.entry in self._new and chunk not in self._written
                        self._parts.write(span, content, hollow)
            self._written.add(chunk)

    def settle(self, chunks: Sequence[int]) -> int:
        """Take written chunks as right, and rename files that are now whole; return the number of renamed files.

        Raises:
            TransferError: a file cannot be synced or renamed.
        """
        self.have.update(chunks)
        return self._name_whole()

    def finish(self) -> None:
        """Make empty files and links; then set the times and modes of directories.

        Raises:
            TransferError: one of these cannot be made or set.
        """
        self._name_whole()
        for number, entry in enumerate(self.manifest.entries):
            if self._named[number]:
                continue
            with _naming(self._places.path(number)):
                if entry.kind == LINK:
                    self._link(number, entry)
                elif entry.kind == FILE and not entry.extents and not self._is_empty(number, entry):
                    self._open(number)
                    self._parts.close()
                    self._name(number, sync=True)
                elif entry.kind == FILE:
                    self._preserve_kept(number, entry)
        for number in reversed(range(len(self.manifest.entries))):
            entry = self.manifest.entries[number]
            if entry.kind == DIRECTORY:
                with _naming(self._places.path(number)), self._places.open_folder(number) as folder:
                    self._attributes.give(folder, entry)

    def close(self) -> None:
        """Close all open files; part files stay, so that the same copy can go on later."""
        self.leave()
        self._parts.close()
        self._places.close()

    def _name_whole(self) -> int:
        """Sync and rename part files that are whole."""
        self._parts.close()
        whole = [n for n in self._parts.begun() if self.layout.chunks_of(n) and self._is_whole(n)]
        many = len(whole) >= _MANY
        if many:
            os.sync()
        for number in whole:
            with _naming(self._places.path(number)):
                self._name(number, sync=not many)
        return len(whole)

    def _name(self, number: int, sync: bool) -> None:
        self._parts.name(number, sync)
        self._named[number] = 1

    def _link(self, number: int, entry: Entry) -> None:
        there = self._places.link(number)
        if there is None or there[0] != entry.target:
            self._places.make_link(number, entry.target)
        if self._preserve and (there is None or there[1] != entry.mtime):
            folder, name, _ = self._places.spot(number)
            os.utime(name, ns=(entry.mtime, entry.mtime), dir_fd=folder, follow_symlinks=False)

    def _preserve_kept(self, number: int, entry: Entry) -> None:
        """With `preserve`, set mode and time of a file that was there before and has the right content."""
        if not self._preserve:
            return
        there = self._places.own(number)
        if there is not None and (stat.S_IMODE(there.st_mode), there.st_mtime_ns) == (entry.mode, entry.mtime):
            return
        file = self._places.open_own(number, self._there[number])
        if file is None:
            raise OSError(errno.EBUSY, _REPLACED)
        try:
            self._attributes.give(file, entry)
        finally:
            os.close(file)

    # Files that are there already.

    def _filled(self) -> Iterator[int]:
        """Yield the entries that have data."""
        return (number for number in range(len(self.manifest.entries)) if self.layout.chunks_of(number))

    def _is_whole(self, number: int) -> bool:
        return self.have.issuperset(reversed(self.layout.chunks_of(number)))  # the last one comes last

    def _looks_whole(self, number: int) -> bool:
        entry, there = self.manifest.entries[number], self._places.own(number)
        if there is None or (there.st_ino, there.st_size) != (self._there[number], entry.size):
            return False
        return not self._preserve or there.st_mtime_ns == entry.mtime

    def _is_empty(self, number: int, entry: Entry) -> bool:
        """Return whether the file of an entry without data is there, of the right size and without data."""
        return self._looks_whole(number) and self._open_compared(number, entry, part=False)

    def read(self, piece: Piece, buffer: memoryview) -> bool:
        """Fill the buffer with a piece from the files of this host; return False if any byte is missing."""
        at = 0
        for span in self.layout.spans(piece):
            try:
                entry = self.manifest.entries[span.entry]
                if not self._open_compared(span.entry, entry, part=self._parts.exists(span.entry)):
                    return False
                if _read_exactly(self._file, buffer[at : at + span.length], span.offset) < span.length:
                    return False
            except OSError:  # a file that cannot be read counts as missing
                return False
            at += span.length
        return True

    def _open_compared(self, number: int, entry: Entry, part: bool) -> bool:
        """Open an entry's part file, or its file, for reading; return False if it is gone or its holes are wrong."""
        if number == self._entry:
            return True
        self.leave()
        if part:
            file = self._parts.open_to_read(number)
        else:
            file = self._places.open_own(number, self._there[number]) if self._there[number] else None
        if file is None:
            return False
        if not is_hollow(file, entry):
            os.close(file)
            return False
        self._file, self._entry = file, number
        return True

    def leave(self) -> None:
        """Close the file that was read last."""
        if self._file >= 0:
            os.close(self._file)
        self._file, self._entry = -1, -1

    # Part files.

    def _open(self, number: int) -> int:
        """Open the part file of an entry for writing; a new one begins with the file's data if some chunk is right."""
        if number == self._parts.opened:
            return self._parts.open(number)
        entry, fresh = self.manifest.entries[number], not self._parts.exists(number)
        file = self._parts.open(number)
        if not self.have.isdisjoint(self.layout.chunks_of(number)):
            if fresh:
                self._copy_old(number, entry)
        elif fresh:
            self._new.add(number)
        elif number not in self._new and not is_hollow(file, entry):
            os.ftruncate(file, 0)
            self._new.add(number)
        if os.fstat(file).st_size != entry.size:
            os.ftruncate(file, entry.size)
        return file

    def _copy_old(self, number: int, entry: Entry) -> None:
        """Copy the data of the file into its new part file; holes stay holes."""
        old = self._places.open_own(number, self._there[number])
        if old is None:
            raise OSError(errno.EBUSY, _REPLACED)
        try:
            for start, length in entry.extents:
                for at in range(start, start + length, CHUNK):
                    data = memoryview(os.pread(old, min(CHUNK, start + length - at), at))
                    self._parts.write(Span(number, at, len(data)), data, False)
        finally:
            os.close(old)


def _read_exactly(file: int, buffer: memoryview, offset: int) -> int:
    at = 0
    while at < len(buffer):
        got = os.preadv(file, [buffer[at:]], offset + at)
        if got == 0:
            break
        at += got
    return at


class _naming:
    """Turn an OSError into a TransferError with the path; a class, as @contextmanager is slow for many files."""

    __slots__ = ("_path",)

    def __init__(self, path: bytes) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, OSError):
            raise TransferError(f"{shown(self._path)}: {error.strerror}") from error
