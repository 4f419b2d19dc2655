"""Manifest: what is copied, as plain data that travels to every rank before the first byte of content."""

from __future__ import annotations

import os
import stat
from array import array
from collections.abc import Iterable, Iterator, Sequence

import msgpack

from ringcast._util.dataclass import dataclass
from ringcast.errors import TransferError

FILE, DIRECTORY, LINK = "file", "directory", "link"
_KINDS = (FILE, DIRECTORY, LINK)
_USUAL = b"", None  # target and data of most entries
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
        data: the extents of a file with holes, in order; None: it has none.
    """

    path: bytes
    kind: str
    mode: int
    mtime: int
    size: int = 0
    target: bytes = b""
    data: tuple[Extent, ...] | None = None

    @property
    def extents(self) -> tuple[Extent, ...]:
        """The data of a file, in order: without holes one extent, of an empty file none."""
        if self.data is not None:
            return self.data
        return ((0, self.size),) if self.size else ()


PART = b".ringcast-part"  # how the name of a file ends that is not whole


class Entries(Sequence[Entry]):
    """Many entries in some 80 bytes each, and their names; an entry is made when it is asked for."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._paths: list[bytes] = []
        self._kinds, self._modes = bytearray(), array("H")
        self._mtimes, self._sizes = array("q"), array("q")
        self._rare: dict[int, tuple[bytes, tuple[Extent, ...] | None]] = {}  # targets, and data between holes
        for entry in entries:
            self.append(entry)

    def append(self, entry: Entry) -> None:
        if entry.target or entry.data is not None:
            self._rare[len(self._paths)] = entry.target, entry.data
        self._paths.append(entry.path)
        self._kinds.append(_KINDS.index(entry.kind))
        self._modes.append(entry.mode)
        self._mtimes.append(entry.mtime)
        self._sizes.append(entry.size)

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, number: int) -> Entry:  # type: ignore[override] # nobody needs slices
        path, kind = self._paths[number], _KINDS[self._kinds[number]]
        target, data = self._rare.get(number, _USUAL)
        return Entry(path, kind, self._modes[number], self._mtimes[number], self._sizes[number], target, data)


@dataclass(frozen=True, slots=True)
class Manifest:
    """All entries, each directory before what is in it; their contents follow each other in one stream of bytes."""

    entries: Sequence[Entry]

    @property
    def nbytes(self) -> int:
        """Length of the stream: all data of all files, without holes."""
        return sum(length for entry in self.entries for _, length in entry.extents)

    def encode(self) -> bytes:
        packer = msgpack.Packer(autoreset=False)  # one by one: a list of all would need more memory than the entries
        packer.pack_array_header(len(self.entries))
        for e in self.entries:
            packer.pack((e.path, _KINDS.index(e.kind), e.mode, e.mtime, e.size, e.target, e.data))
        packed: bytes = packer.bytes()
        return packed

    @classmethod
    def decode(cls, data: bytes | memoryview) -> Manifest:
        """Return the manifest of another rank.

        Raises:
            TransferError: an entry would lie outside of the destination, or below something that is no directory.
        """
        unpacker = msgpack.Unpacker(use_list=False, max_buffer_size=len(data))
        unpacker.feed(data)
        entries = Entries()
        for _ in range(unpacker.read_array_header()):
            path, kind, mode, mtime, size, target, extents = unpacker.unpack()
            entries.append(Entry(path, _KINDS[kind], mode & 0o7777, mtime, size, target, extents))
        manifest = cls(entries)
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
    """Return the manifest of files and directories of this host, and what stands before each entry's path here.

    A source that is a link is followed; links within a directory are copied as links. `NAME/` means what is in the
    directory, without its name.

    Raises:
        TransferError: a source is missing, unreadable, a directory without `recursive`, or something that cannot be
            copied (socket, device, pipe); or two sources have the same name. Names the first five.
    """
    entries = Entries()
    bases: list[bytes] = []
    problems: list[str] = []
    for source in sources:
        path = os.fsencode(source)
        try:
            status = os.stat(path)
            if stat.S_ISDIR(status.st_mode) and not recursive:
                problems.append(f"{shown(path)}: a directory; -r copies it with all that is in it")
                continue
            for base, name in _walk(path, stat.S_ISDIR(status.st_mode)):
                place = base + name
                try:
                    entries.append(_entry(name, place, follow=place == path))
                    bases.append(base)
                except OSError as error:
                    problems.append(f"{shown(place)}: {error.strerror}")
        except OSError as error:
            problems.append(f"{shown(error.filename or path)}: {error.strerror}")
    twice = "two sources have this name; they would overwrite each other"
    problems += [f"{shown(name)}: {twice}" for name in _twice(entries)]
    if problems:
        more = f"\nand {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        raise TransferError("\n".join(problems[:_SHOWN]) + more)
    return Manifest(entries), tuple(bases)


def _twice(entries: Iterable[Entry]) -> Iterator[bytes]:
    """Yield paths that were there before."""
    seen: set[bytes] = set()
    for entry in entries:
        if entry.path in seen:
            yield entry.path
        seen.add(entry.path)


def shown(path: bytes | str) -> str:
    """Return a name for people: control characters and bytes that are no text are written as escapes."""
    text = os.fsdecode(path)
    return text if text.isprintable() else ascii(text)[1:-1]


def _walk(path: bytes, directory: bool) -> Iterator[tuple[bytes, bytes]]:
    """Yield a source and all that is in it: what stands before the name here, alike for all, and the name there."""
    name = os.path.basename(path)
    contents_only = directory and name in (b"", b".", b"..")
    base = os.path.join(path, b"") if contents_only else path[: len(path) - len(name)]
    if not contents_only:
        yield base, name
    if not directory:
        return

    def below(folder: bytes) -> Iterator[tuple[bytes, bytes]]:
        with os.scandir(base + folder) as found:
            inside = sorted((item.name, item.is_dir(follow_symlinks=False)) for item in found)
        for each, deeper in inside:
            yield base, folder + each
            if deeper:
                yield from below(folder + each + b"/")

    yield from below(b"" if contents_only else name + b"/")


def _entry(name: bytes, place: bytes, follow: bool) -> Entry:
    status = os.stat(place, follow_symlinks=follow)
    mode, mtime = stat.S_IMODE(status.st_mode), status.st_mtime_ns
    if stat.S_ISDIR(status.st_mode):
        return Entry(name, DIRECTORY, mode, mtime)
    if stat.S_ISLNK(status.st_mode):
        return Entry(name, LINK, mode, mtime, target=os.readlink(place))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(0, "neither file, directory nor link; it cannot be copied")
    if name.endswith(PART):
        raise OSError(0, "is part of a copy that was broken off; finish that copy, or remove it")
    if not os.access(place, os.R_OK):
        raise OSError(0, "no permission to read it")
    holes = status.st_blocks * 512 < status.st_size
    data = tuple(_extents(place, status.st_size)) if holes else None
    return Entry(name, FILE, mode, mtime, status.st_size, data=data)


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
