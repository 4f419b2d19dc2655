"""Describe the files of a copy: plain data that every rank gets before the first byte of content."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any

import msgpack

from ringcast._util.dataclass import dataclass
from ringcast._util.printable import printable
from ringcast.errors import TransferError

FILE, DIRECTORY, LINK = "file", "directory", "link"
_KINDS = (FILE, DIRECTORY, LINK)
_USUAL = b"", None  # target and data of most entries
_SECOND = 10**9  # ns
_LARGEST = 2**63 - 1  # bytes of all files, with their holes

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
        target: the path to which a link leads.
        data: the extents of a file with holes, in order; None: the file has no holes.
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


PART = b".ringcast-part"  # the end of a part file's name


class Entries(Sequence[Entry]):
    """Many entries in some 80 bytes each, plus their names; an `Entry` is made when an item is read."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._paths: list[bytes] = []
        self._kinds, self._modes = bytearray(), array("H")
        self._seconds, self._nanoseconds = array("q"), array("I")  # in two parts: a time may be after 2262
        self._sizes = array("q")
        self._rare: dict[int, tuple[bytes, tuple[Extent, ...] | None]] = {}  # targets, and data between holes
        for entry in entries:
            self.append(entry)

    def append(self, entry: Entry) -> None:
        if entry.target or entry.data is not None:
            self._rare[len(self._paths)] = entry.target, entry.data
        self._paths.append(entry.path)
        self._kinds.append(_KINDS.index(entry.kind))
        self._modes.append(entry.mode)
        seconds, nanoseconds = divmod(entry.mtime, _SECOND)
        self._seconds.append(seconds)
        self._nanoseconds.append(nanoseconds)
        self._sizes.append(entry.size)

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, number: int) -> Entry:  # type: ignore[override] # slices are not needed
        path, kind = self._paths[number], _KINDS[self._kinds[number]]
        mtime = self._seconds[number] * _SECOND + self._nanoseconds[number]
        target, data = self._rare.get(number, _USUAL)
        return Entry(path, kind, self._modes[number], mtime, self._sizes[number], target, data)


@dataclass(frozen=True, slots=True)
class Manifest:
    """All entries, each directory before its content; the files' contents follow each other in one stream of bytes.

    Attributes:
        entries: files, directories and links.
        owner: user and group of the process that listed them. The set-user bit is listed only for files of this user,
            the set-group bit only for files of this group; copies that belong to others do not get the bits.
    """

    entries: Sequence[Entry]
    owner: tuple[int, int] = (-1, -1)

    @property
    def nbytes(self) -> int:
        """Length of the stream: all data of all files, without holes."""
        return sum(length for entry in self.entries for _, length in entry.extents)

    def encode(self) -> bytes:
        packer = msgpack.Packer(autoreset=False)  # one by one: a list of all would need more memory than the entries
        packer.pack(self.owner)
        packer.pack_array_header(len(self.entries))
        for e in self.entries:
            packer.pack((e.path, _KINDS.index(e.kind), e.mode, divmod(e.mtime, _SECOND), e.size, e.target, e.data))
        packed: bytes = packer.bytes()
        return packed

    @classmethod
    def decode(cls, data: bytes | memoryview) -> Manifest:
        """Return the manifest of another rank.

        Raises:
            TransferError: an entry would lie outside of the destination, or below an entry that is no directory; or
                `data` is no manifest.
        """
        unpacker = msgpack.Unpacker(use_list=False, max_buffer_size=len(data))
        try:
            unpacker.feed(data)
            uid, gid = unpacker.unpack()
            entries = Entries(_decoded(unpacker.unpack()) for _ in range(unpacker.read_array_header()))
        except (ValueError, TypeError, OverflowError, IndexError, msgpack.UnpackException) as error:
            raise TransferError(f"the list of files is damaged ({error!r})") from None
        manifest = cls(entries, (int(uid), int(gid)))
        manifest.check()
        return manifest

    def check(self) -> None:
        """Raise TransferError unless every entry lies below the destination, in a directory of the manifest."""
        nbytes = 0
        seen: set[bytes] = set()
        directories: set[bytes] = set()  # their paths are checked: of an entry in them only the name is left
        for entry in self.entries:
            folder, slash, name = entry.path.rpartition(b"/")
            if name in (b"", b".", b"..") or b"\0" in name or entry.path in seen:
                raise TransferError(f"{shown(entry.path)}: no path below the destination, or there twice")
            if slash and folder not in directories:
                raise TransferError(f"{shown(entry.path)}: its directory is not in the list of files")
            seen.add(entry.path)
            if entry.kind == DIRECTORY:
                directories.add(entry.path)
            nbytes += entry.size
        if nbytes > _LARGEST:
            raise TransferError(f"{nbytes:,} bytes are more than can be copied at once")


def _decoded(fields: tuple[Any, ...]) -> Entry:
    """Return the entry that was packed as `fields`.

    Raises:
        ValueError, TypeError, IndexError: `fields` are not an entry.
    """
    path, kind, mode, (seconds, nanoseconds), size, target, extents = fields
    end = 0
    for start, length in extents or ():
        if not (type(start) is type(length) is int and end <= start < start + length <= size):
            raise ValueError(f"data from {start} to {start + length}, of {size} bytes")
        end = start + length
    if (
        size < 0
        or kind < 0
        or not (isinstance(path, bytes) and isinstance(target, bytes) and 0 <= nanoseconds < _SECOND)
    ):
        raise ValueError("no entry")
    return Entry(path, _KINDS[kind], mode & 0o7777, seconds * _SECOND + nanoseconds, size, target, extents)


def shown(path: bytes | str) -> str:
    """Return a path as text for messages: control characters and bytes that are no text become escapes."""
    return printable(path)
