"""Destination: the files of a manifest as they come to be on a host that gets them.

Contents are written into `.NAME.ringcast-part` beside the file, which is synced and renamed when all of it is there:
under its own name a file is whole, or as it was before. What a part file holds already, or the file itself, need not be
sent.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import stat
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from types import TracebackType

from ringcast.errors import TransferError
from ringcast.procs import portable
from ringcast.transfer import digests
from ringcast.transfer.layout import CHUNK, Layout, Piece, Span
from ringcast.transfer.manifest import DIRECTORY, FILE, LINK, PART, Entry, Manifest, shown
from ringcast.transfer.zeros import runs

_MANY = 64  # files that become whole together, from which on one sync of the system is faster than one for each
_LONG_NAME = 240  # bytes: names may have 255, and part files have 15 more
_ALLOCATED = CHUNK  # bytes from which on a file's room is allocated before it is written

_NOT_ALONE = "another copy writes it at the same time, maybe to this host by another name"


class Destination:
    """Where the files of a manifest go on this host."""

    def __init__(self, manifest: Manifest, target: str, preserve: bool, sparse: bool = False) -> None:
        self.manifest, self._preserve, self._sparse = manifest, preserve, sparse
        self.layout = Layout(manifest)
        self.have: set[int] = set()  # chunks that are right
        self._base, self._names = placed(manifest, os.fsencode(target))
        self._prefix = os.path.join(self._base, b"")
        self._parts = array("Q", bytes(8 * len(manifest.entries)))  # inodes of part files; 0: there is none
        self._new: set[int] = set()  # entries whose part files were made empty by this copy
        self._written: set[int] = set()  # chunks that are in part files, be they right or not
        self._ready = bytearray(len(manifest.entries))  # 1: its part file has mode and time, and lacks the name only
        self._named = bytearray(len(manifest.entries))  # 1: this copy has given it its name
        self._file, self._entry = -1, -1
        self._umask = os.umask(0)
        os.umask(self._umask)

    # Before anything is sent.

    def prepare(self) -> int:
        """Make the directories; return how many bytes of content may be there already.

        Raises:
            TransferError: something is in the way, or may not be written.
        """
        with _naming(self._base):
            os.makedirs(self._base, exist_ok=True)
            if os.statvfs(self._base).f_flag & os.ST_RDONLY:
                raise OSError(errno.EROFS, os.strerror(errno.EROFS))
            if not os.access(self._base, os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        existing, made = 0, set()  # directories that are new: there is nothing in them
        for number, entry in enumerate(self.manifest.entries):
            path = self._path(number)
            if os.path.dirname(path) in made:
                if entry.kind == DIRECTORY:
                    with _naming(path):
                        os.mkdir(path, 0o700)
                    made.add(path)
                continue
            with _naming(path):
                there = _lstat(path)
                if entry.kind == DIRECTORY:
                    if there is None:
                        os.mkdir(path, 0o700)
                        made.add(path)
                    elif not stat.S_ISDIR(there.st_mode):
                        raise NotADirectoryError(errno.ENOTDIR, "is there, and no directory")
                elif there is not None and stat.S_ISDIR(there.st_mode):
                    raise IsADirectoryError(
                        errno.EISDIR, f"is a directory there; it would be replaced by a {entry.kind}"
                    )
                if entry.kind == FILE and (part := _lstat(self._part(number))) is not None:
                    self._parts[number] = part.st_ino
                existing += entry.size if self._candidate(number) else 0
        return existing

    def trust(self) -> None:
        """Take files of the right size as whole, and with times of changes that are kept, of the right time."""
        wrong = {number for number in self._filled() if self._parts[number] or not self._looks_whole(number)}
        for chunk in range(self.layout.chunks):
            if wrong.isdisjoint(span.entry for span in self.layout.spans(Piece(chunk, 1))):
                self.have.add(chunk)

    def verify(self, expected: Mapping[int, bytes]) -> None:
        """Compare what is there with the digests of chunks, and keep what is right."""
        buffer = memoryview(bytearray(CHUNK))
        for chunk, digest in expected.items():
            piece = Piece(chunk, 1)
            view = buffer[: self.layout.length(piece)]
            if self._read(piece, view) and digests.of_chunks(view) == [digest]:
                self.have.add(chunk)
        self._close()

    def reserve(self) -> None:
        """Allocate room for what is missing, so that a full disk is an error before the first byte is sent.

        Raises:
            TransferError: there is not enough.
        """
        needed, incomplete = 0, [number for number in self._filled() if not self._is_whole(number)]
        for number in incomplete:
            data = self.layout.data_of(number)
            part = _lstat(self._part(number)) if self._parts[number] else None
            needed += max(0, data - part.st_blocks * 512) if part else data
        with _naming(self._base):
            room = os.statvfs(self._base)
            free = room.f_bavail * room.f_frsize
            if needed > free:
                raise OSError(errno.ENOSPC, f"no space: {needed:,} bytes are needed, {free:,} are free")
        for number in incomplete:
            entry = self.manifest.entries[number]
            if entry.size >= _ALLOCATED and not self._sparse and entry.data is None:
                with _naming(self._path(number)):
                    self._open(number)
                    portable.allocate(self._file, entry.size)
        self._close()

    # While pieces arrive.

    def write(self, piece: Piece, data: memoryview) -> None:
        """Write the chunks of a piece that are not there.

        Raises:
            TransferError: it cannot be written.
        """
        for chunk in piece.chunks:
            if chunk in self.have:
                continue
            at = (chunk - piece.first) * CHUNK
            for span in self.layout.spans(Piece(chunk, 1)):
                content, at = data[at : at + span.length], at + span.length
                with _naming(self._path(span.entry)):
                    if span.length == self.manifest.entries[span.entry].size < _ALLOCATED:
                        self._write_small(span, content)
                    else:
                        self._open(span.entry)
                        hollow = self._sparse and span.entry in self._new and chunk not in self._written
                        self._write_span(span, content, hollow)
            self._written.add(chunk)

    def settle(self, chunks: Sequence[int]) -> int:
        """Take written chunks as right; give files that are whole now their names. Return how many files that were.

        Raises:
            TransferError: a file cannot be synced or renamed.
        """
        self._close()
        self.have.update(chunks)
        return self._name_whole()

    def finish(self) -> None:
        """Make what has no content: empty files, links; then set the times and modes of directories.

        Raises:
            TransferError: one of these cannot be made, or a file is not whole.
        """
        self._close()
        self._name_whole()
        for number, entry in enumerate(self.manifest.entries):
            if self._named[number]:
                continue
            with _naming(self._path(number)):
                if entry.kind == LINK:
                    self._link(number, entry)
                elif (
                    entry.kind == FILE
                    and not entry.extents
                    and not (self._looks_whole(number) and _is_hollow(self._path(number), entry))
                ):
                    self._open(number)
                    self._close()
                    self._name([number])
                elif entry.kind == FILE:
                    self._preserved(self._path(number), entry)
        for number in reversed(range(len(self.manifest.entries))):
            entry = self.manifest.entries[number]
            if entry.kind == DIRECTORY:
                with _naming(self._path(number)):
                    os.chmod(self._path(number), self._mode(entry))
                    self._preserved(self._path(number), entry)

    def close(self) -> None:
        """Close what is open; part files stay, for the next time."""
        self._close()

    def _name_whole(self) -> int:
        whole = [n for n, part in enumerate(self._parts) if part and self.layout.chunks_of(n) and self._is_whole(n)]
        self._name(whole)
        return len(whole)

    def _name(self, whole: Sequence[int]) -> None:
        """Sync and rename part files that are whole."""
        many = len(whole) >= _MANY
        if many:
            os.sync()
        for number in whole:
            path, part = self._path(number), self._part(number)
            with _naming(path):
                if many and self._ready[number]:
                    if os.lstat(part).st_ino != self._parts[number]:
                        raise OSError(errno.EBUSY, _NOT_ALONE)
                else:
                    self._complete(number, sync=not many)
                os.rename(part, path)
            self._parts[number], self._ready[number], self._named[number] = 0, 0, 1

    def _complete(self, number: int, sync: bool) -> None:
        """Give a part file what it lacks but its name."""
        file = self._part_file(number, os.O_RDONLY)
        try:
            self._make_ready(file, number)
            if sync:
                os.fsync(file)
        finally:
            os.close(file)

    def _make_ready(self, file: int, number: int) -> None:
        """Give a part file the mode and the time that the file shall have."""
        entry = self.manifest.entries[number]
        os.fchmod(file, self._mode(entry))
        if self._preserve:
            os.utime(file, ns=(entry.mtime, entry.mtime))
        self._ready[number] = 1

    def _link(self, number: int, entry: Entry) -> None:
        path, part = self._path(number), self._part(number)
        there = _lstat(path)
        if there is None or not stat.S_ISLNK(there.st_mode) or os.readlink(path) != entry.target:
            with suppress(FileNotFoundError):
                os.unlink(part)
            os.symlink(entry.target, part)
            os.rename(part, path)
        self._preserved(path, entry)

    def _preserved(self, path: bytes, entry: Entry) -> None:
        """Give what was there already, and has the right content, the mode and time that are to be kept."""
        if not self._preserve:
            return
        there = os.lstat(path)
        if entry.kind != LINK and stat.S_IMODE(there.st_mode) != entry.mode:
            os.chmod(path, entry.mode)
        if there.st_mtime_ns != entry.mtime:
            os.utime(path, ns=(entry.mtime, entry.mtime), follow_symlinks=False)

    def _mode(self, entry: Entry) -> int:
        return entry.mode if self._preserve else entry.mode & 0o777 & ~self._umask

    # What is there.

    def _filled(self) -> Iterator[int]:
        """Yield the entries that have data."""
        return (number for number in range(len(self.manifest.entries)) if self.layout.chunks_of(number))

    def _is_whole(self, number: int) -> bool:
        return self.have.issuperset(reversed(self.layout.chunks_of(number)))  # the last one comes last

    def _looks_whole(self, number: int) -> bool:
        entry, there = self.manifest.entries[number], _lstat(self._path(number))
        if there is None or not stat.S_ISREG(there.st_mode) or there.st_size != entry.size:
            return False
        return not self._preserve or there.st_mtime_ns == entry.mtime

    def _candidate(self, number: int) -> bytes:
        """Return the file that may hold some of an entry's content: its part file, else the file; or nothing."""
        for path in self._part(number), self._path(number):
            there = _lstat(path)
            if there is not None and stat.S_ISREG(there.st_mode):
                return path if there.st_size else b""
        return b""

    def _read(self, piece: Piece, buffer: memoryview) -> bool:
        """Fill the buffer with what is there of a piece; return whether all of it is."""
        at = 0
        for span in self.layout.spans(piece):
            try:
                if not self._open_candidate(span.entry):
                    return False
                if _read_exactly(self._file, buffer[at : at + span.length], span.offset) < span.length:
                    return False
            except OSError:  # what cannot be read is not there
                return False
            at += span.length
        return True

    def _open_candidate(self, number: int) -> bool:
        """Have what may hold an entry's content open for reading; return whether there is such a file."""
        if number != self._entry:
            self._close()
            path = self._candidate(number)
            if not path or not _is_hollow(path, self.manifest.entries[number]):
                return False
            self._file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            self._entry = number
        return True

    # Part files.

    def _open(self, number: int) -> None:
        """Have the part file of an entry open for writing; a new one begins with what the file has that is right."""
        if number == self._entry:
            return
        self._close()
        entry, part = self.manifest.entries[number], self._part(number)
        fresh = not self._parts[number]
        self._file = self._part_file(number)
        self._entry = number
        if not self.have.isdisjoint(self.layout.chunks_of(number)):
            if fresh:
                self._copy_old(number)
        elif fresh:
            self._new.add(number)
        elif number not in self._new and not _is_hollow(part, entry):
            os.ftruncate(self._file, 0)
            self._new.add(number)
        if os.fstat(self._file).st_size != entry.size:
            os.ftruncate(self._file, entry.size)

    def _copy_old(self, number: int) -> None:
        """Let a new part file begin with the data of the file; holes stay holes."""
        with open(self._path(number), "rb", buffering=0) as old:
            for start, length in self.manifest.entries[number].extents:
                for at in range(start, start + length, CHUNK):
                    data = memoryview(os.pread(old.fileno(), min(CHUNK, start + length - at), at))
                    self._write_span(Span(number, at, len(data)), data, False)

    def _part_file(self, number: int, access: int = os.O_RDWR) -> int:
        """Open the part file of an entry, a new one if there is none; no other copy may have it open for writing.

        Raises:
            OSError: another copy writes it, or has renamed the one that this copy had begun.
        """
        known = self._parts[number]
        flags = access | os.O_NOFOLLOW | os.O_CLOEXEC | (0 if known else os.O_CREAT | os.O_EXCL)
        try:
            file = os.open(self._part(number), flags, 0o600)
        except (FileNotFoundError, FileExistsError):
            if not os.path.isdir(os.path.dirname(self._path(number))):
                raise
            raise OSError(errno.EBUSY, _NOT_ALONE) from None
        inode = os.fstat(file).st_ino
        if known not in (0, inode) or not _locked(file):
            os.close(file)
            raise OSError(errno.EBUSY, _NOT_ALONE)
        self._parts[number] = inode
        return file

    def _write_small(self, span: Span, data: memoryview) -> None:
        """Write a file that lies in one chunk, so that it lacks nothing but its name.

        It is made anew: its mode may forbid to open it again.
        """
        self._close()
        if self._parts[span.entry]:
            self._remove_part(span.entry)
        self._file = self._part_file(span.entry)
        self._write_span(span, data, self._sparse)
        if self._sparse:
            os.ftruncate(self._file, span.length)
        if self.manifest.entries[span.entry].mode & stat.S_IRUSR:  # else it could not be opened to be synced
            self._make_ready(self._file, span.entry)

    def _remove_part(self, number: int) -> None:
        """Remove a part file that was there, unless another copy has replaced it."""
        if os.lstat(self._part(number)).st_ino != self._parts[number]:
            raise OSError(errno.EBUSY, _NOT_ALONE)
        os.unlink(self._part(number))
        self._parts[number] = 0

    def _write_span(self, span: Span, data: memoryview, hollow: bool) -> None:
        """Write data; where the file is `hollow` there, blocks of zeros stay holes."""
        for run in runs(data, span.offset) if hollow else [slice(0, span.length)]:
            at = run.start
            while at < run.stop:
                at += os.pwrite(self._file, data[at : run.stop], span.offset + at)

    def _close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file, self._entry = -1, -1

    def _path(self, number: int) -> bytes:
        return self._prefix + self._names[number]

    def _part(self, number: int) -> bytes:
        folder, slash, name = self._path(number).rpartition(b"/")
        if len(name) > _LONG_NAME:
            name = hashlib.sha256(name).hexdigest().encode()
        return b"%b%b.%b%b" % (folder, slash, name, PART)


def placed(manifest: Manifest, target: bytes) -> tuple[bytes, list[bytes]]:
    """Return the directory that everything goes into, and the name of each entry in it.

    A single file gets the name of the target, unless that is a directory or ends with "/".
    """
    names = [entry.path for entry in manifest.entries]
    single = len(names) == 1 and manifest.entries[0].kind == FILE
    if not single or target.endswith(b"/") or os.path.isdir(target):
        return target, names
    folder, name = os.path.split(target)
    return folder or b".", [name]


def _is_hollow(path: bytes, entry: Entry) -> bool:
    """Return whether a file has no data where the entry has holes; always true where that has none."""
    if entry.data is None:
        return True
    file, end = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), 0
    try:
        for start, length in (*entry.extents, (entry.size, 0)):
            with suppress(OSError):  # no data from there on
                if os.lseek(file, end, os.SEEK_DATA) < start:
                    return False
            end = start + length
        return True
    finally:
        os.close(file)


def _locked(file: int) -> bool:
    """Lock a file until it is closed; return False if another process has locked it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


def _read_exactly(file: int, buffer: memoryview, offset: int) -> int:
    at = 0
    while at < len(buffer):
        got = os.preadv(file, [buffer[at:]], offset + at)
        if got == 0:
            break
        at += got
    return at


def _lstat(path: bytes) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except FileNotFoundError:
        return None


class _naming:
    """Let errors of the system name the path; a class, as it stands around what is done for each of many files."""

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
