"""Manifest: what is copied, as plain data that travels to every rank before the first byte of content."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence

import msgpack

from ringcast._util.dataclass import dataclass
from ringcast.errors import TransferError

FILE, DIRECTORY, LINK = "file", "directory", "link"
_KINDS = (FILE, DIRECTORY, LINK)
_SHOWN = 5  # problems that an error names, of all

Extent = tuple[int, int]  # (offset, length) of data in a file; between extents there are holes


@dataclass(frozen=True, slots=True)
class Entry:
    """A file, directory or symbolic link.

    Attributes:
        path: below the destination, with "/" between names; names are bytes, as the system has them.
        kind: FILE, DIRECTORY or LINK.
        mode: permission bits.
        mtime: time of the last change, in ns.
        size: bytes of a file, with its holes.
        target: where a link leads.
        extents: the data of a file, in order; a file without holes has one, an empty file none.
    """

    path: bytes
    kind: str
    mode: int
    mtime: int
    size: int = 0
    target: bytes = b""
    extents: tuple[Extent, ...] = ()


@dataclass(frozen=True, slots=True)
class Manifest:
    """All entries, each directory before what is in it; their contents follow each other in one stream of bytes."""

    entries: tuple[Entry, ...]

    @property
    def nbytes(self) -> int:
        """Length of the stream: all data of all files, without holes."""
        return sum(length for entry in self.entries for _, length in entry.extents)

    def encode(self) -> bytes:
        fields = [(e.path, _KINDS.index(e.kind), e.mode, e.mtime, e.size, e.target, e.extents) for e in self.entries]
        packed: bytes = msgpack.packb(fields)
        return packed

    @classmethod
    def decode(cls, data: bytes | memoryview) -> Manifest:
        """Return the manifest of another rank.

        Raises:
            TransferError: an entry would lie outside of the destination, or below something that is no directory.
        """
        entries = []
        for path, kind, mode, mtime, size, target, extents in msgpack.unpackb(data, use_list=False):
            entries.append(Entry(path, _KINDS[kind], mode & 0o7777, mtime, size, target, extents))
        manifest = cls(tuple(entries))
        manifest.check()
        return manifest

    def check(self) -> None:
        """Raise TransferError unless every entry lies below the destination, in a directory of the manifest."""
        seen: set[bytes] = set()
        directories: set[bytes] = set()  # whose own paths were looked at: of what is in them the name is left
        for entry in self.entries:
            folder, slash, name = entry.path.rpartition(b"/")
            if name in (b"", b".", b"..") or b"\0" in name or entry.path in seen:
                raise TransferError(f"{shown(entry.path)}: no path below the destination, or there twice")
            if slash and folder not in directories:
                raise TransferError(f"{shown(entry.path)}: its directory is not among what is copied")
            seen.add(entry.path)
            if entry.kind == DIRECTORY:
                directories.add(entry.path)


def scan(sources: Sequence[str | os.PathLike[str]], recursive: bool) -> tuple[Manifest, tuple[bytes, ...]]:
    """Return the manifest of files and directories of this host, and where each entry is.

    A source that is a link is followed; links within a directory are copied as links. `NAME/` means what is in the
    directory, without its name.

    Raises:
        TransferError: a source is missing, unreadable, a directory without `recursive`, or something that cannot be
            copied (socket, device, pipe); or two sources have the same name. Names the first five.
    """
    entries: list[Entry] = []
    places: list[bytes] = []
    problems: list[str] = []
    for source in sources:
        path = os.fsencode(source)
        try:
            status = os.stat(path)
            if stat.S_ISDIR(status.st_mode) and not recursive:
                problems.append(f"{shown(path)}: a directory; -r copies it with all that is in it")
                continue
            for name, place in _walk(path, stat.S_ISDIR(status.st_mode)):
                try:
                    entries.append(_entry(name, place, follow=place == path))
                    places.append(place)
                except OSError as error:
                    problems.append(f"{shown(place)}: {error.strerror}")
        except OSError as error:
            problems.append(f"{shown(error.filename or path)}: {error.strerror}")
    names = [entry.path for entry in entries]
    if len(set(names)) < len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        problems.append(f"{shown(twice)}: two sources have this name; they would overwrite each other")
    if problems:
        more = f"\nand {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        raise TransferError("\n".join(problems[:_SHOWN]) + more)
    return Manifest(tuple(entries)), tuple(places)


def shown(path: bytes | str) -> str:
    """Return a name for people: control characters and bytes that are no text are written as escapes."""
    text = os.fsdecode(path)
    return text if text.isprintable() else ascii(text)[1:-1]


def _walk(path: bytes, directory: bool) -> Iterator[tuple[bytes, bytes]]:
    """Yield the name below the destination, and the place, of a source and of all that is in it."""
    stripped = path.rstrip(b"/") or b"/"
    contents_only = directory and (path.endswith(b"/") or os.path.basename(stripped) in (b".", b".."))
    name = os.path.basename(stripped)
    if not contents_only:
        yield name, path
    if not directory:
        return

    def below(place: bytes, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        with os.scandir(place) as found:
            inside = sorted((item.name, item.path, item.is_dir(follow_symlinks=False)) for item in found)
        for each, where, deeper in inside:
            yield prefix + each, where
            if deeper:
                yield from below(where, prefix + each + b"/")

    yield from below(path, b"" if contents_only else name + b"/")


def _entry(name: bytes, place: bytes, follow: bool) -> Entry:
    status = os.stat(place, follow_symlinks=follow)
    mode, mtime = stat.S_IMODE(status.st_mode), status.st_mtime_ns
    if stat.S_ISDIR(status.st_mode):
        return Entry(name, DIRECTORY, mode, mtime)
    if stat.S_ISLNK(status.st_mode):
        return Entry(name, LINK, mode, mtime, target=os.readlink(place))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(0, "neither file, directory nor link; it cannot be copied")
    if not os.access(place, os.R_OK):
        raise OSError(0, "no permission to read it")
    extents: tuple[Extent, ...] = ((0, status.st_size),) if status.st_size else ()
    if status.st_blocks * 512 < status.st_size:
        extents = tuple(_extents(place, status.st_size))
    return Entry(name, FILE, mode, mtime, status.st_size, extents=extents)


def _extents(place: bytes, size: int) -> Iterator[Extent]:
    """Yield where a file with holes has data."""
    file, end = os.open(place, os.O_RDONLY | os.O_CLOEXEC), 0
    try:
        while end < size:
            try:
                start = os.lseek(file, end, os.SEEK_DATA)
            except OSError:  # nothing but a hole follows
                return
            end = os.lseek(file, start, os.SEEK_HOLE)
            yield start, min(end, size) - start
    finally:
        os.close(file)
