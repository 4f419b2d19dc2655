"""List the files to copy; links in a directory are never followed, not even a link that was laid during the listing."""

from __future__ import annotations

import os
import stat
from array import array
from collections.abc import Iterable, Iterator, Sequence

from ringcast._util.dataclass import dataclass
from ringcast._util.safe_files import Folders, open_regular
from ringcast.errors import TransferError
from ringcast.transfer.manifest import DIRECTORY, FILE, LINK, Entries, Entry, Extent, Manifest, shown

_SHOWN = 5  # problems that an error names, of all
_NEITHER = "neither file, directory nor link; it cannot be copied"


@dataclass(frozen=True, slots=True)
class Root:
    """A file or directory as the user has named it.

    Attributes:
        path: on this host.
        name: the first part of its entries' paths; empty if the content of a directory is copied without its name.
    """

    path: bytes
    name: bytes

    def below(self, entry: bytes) -> bytes:
        """Return the path of an entry below this root; empty for the root itself."""
        return entry[len(self.name) :].lstrip(b"/")

    def place(self, entry: bytes) -> bytes:
        """Return the path of an entry on this host."""
        below = self.below(entry)
        return os.path.join(self.path, below) if below else self.path


@dataclass(frozen=True, slots=True)
class Listing:
    """A manifest, and the places of its entries on this host.

    Attributes:
        manifest: the entries, as they are sent to the other ranks.
        roots: of each entry.
        inodes: of each entry; a file that is opened later must have the inode that was listed.
    """

    manifest: Manifest
    roots: Sequence[Root]
    inodes: Sequence[int]

    def place(self, number: int) -> bytes:
        """Return the path of an entry on this host, for people."""
        return self.roots[number].place(self.manifest.entries[number].path)


def scan(sources: Sequence[str | os.PathLike[str]], recursive: bool) -> Listing:
    """List files and directories of this host.

    A source that is a link is followed; links within a directory are copied as links. `NAME/` means the content of the
    directory, without its name.

    Raises:
        TransferError: a source is missing, unreadable, a directory without `recursive`, or something that cannot be
            copied (socket, device, pipe); or two sources have the same name. Names the first five.
    """
    found = _Found()
    for source in sources:
        found.add(os.fsencode(source), recursive)
    twice = "two sources have this name; they would overwrite each other"
    found.problems += [f"{shown(name)}: {twice}" for name in _twice(found.entries)]
    if problems := found.problems:
        more = f"\nand {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        raise TransferError("\n".join(problems[:_SHOWN]) + more)
    return Listing(Manifest(found.entries, (os.geteuid(), os.getegid())), found.roots, found.inodes)


def kept_mode(status: os.stat_result) -> int:
    """Return the permission bits that may be given to a copy, which belongs to the user of this process.

    Set-user and set-group bits of files of others would let everybody run their programs as this user.
    """
    mode = stat.S_IMODE(status.st_mode)
    if status.st_uid != os.geteuid():
        mode &= ~stat.S_ISUID
    return mode if status.st_gid == os.getegid() else mode & ~stat.S_ISGID


class _Found:
    """The entries that were found so far, and the problems: one line for each file that cannot be copied."""

    def __init__(self) -> None:
        self.entries = Entries()
        self.roots: list[Root] = []
        self.inodes = array("Q")
        self.problems: list[str] = []

    def add(self, path: bytes, recursive: bool) -> None:
        """Add a file, or a directory with all that is in it, by the path that the user gave."""
        name = os.path.basename(path)
        try:
            status = os.stat(path)
            if not stat.S_ISDIR(status.st_mode):
                root = Root(path, name)
                self._append(root, _entry(name, status, path, None), status)
            elif not recursive:
                self.problems.append(f"{shown(path)}: a directory; -r copies it with all that is in it")
            else:
                root = Root(path, b"" if name in (b".", b"..") else name)
                folders = Folders(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), of_anybody=True)
                try:
                    self._add_tree(root, folders)
                finally:
                    folders.close()
        except OSError as error:
            self.problems.append(f"{shown(path)}: {error.strerror}")

    def _add_tree(self, root: Root, folders: Folders) -> None:
        if root.name:
            status = folders.status(b"")
            self._append(root, Entry(root.name, DIRECTORY, kept_mode(status), status.st_mtime_ns), status)
        waiting = self._names(root, folders, b"")
        while waiting:
            below = waiting.pop()
            folder, _, name = below.rpartition(b"/")
            try:
                file = folders.at(folder)
                status = os.stat(name, dir_fd=file, follow_symlinks=False)
                entry = _entry(root.name + b"/" + below if root.name else below, status, name, file)
            except OSError as error:
                self.problems.append(f"{shown(os.path.join(root.path, below))}: {error.strerror}")
                continue
            self._append(root, entry, status)
            if entry.kind == DIRECTORY:
                waiting += self._names(root, folders, below)

    def _names(self, root: Root, folders: Folders, below: bytes) -> list[bytes]:
        """Return the sorted paths of a directory's entries, the last one first."""
        try:
            with folders.readable(below) as file:
                names = sorted(map(os.fsencode, os.listdir(file)), reverse=True)
        except OSError as error:
            self.problems.append(f"{shown(root.place(root.name + b'/' + below))}: {error.strerror}")
            return []
        return [below + b"/" + name for name in names] if below else names

    def _append(self, root: Root, entry: Entry, status: os.stat_result) -> None:
        self.entries.append(entry)
        self.roots.append(root)
        self.inodes.append(status.st_ino)


def _twice(entries: Iterable[Entry]) -> Iterator[bytes]:
    """Yield the paths that occur a second time."""
    seen: set[bytes] = set()
    for entry in entries:
        if entry.path in seen:
            yield entry.path
        seen.add(entry.path)


def _entry(path: bytes, status: os.stat_result, name: bytes, folder: int | None) -> Entry:
    """Return the entry of `name` in a directory; without a directory `name` is a path, and links are followed."""
    mode, mtime = kept_mode(status), status.st_mtime_ns
    if stat.S_ISDIR(status.st_mode):
        return Entry(path, DIRECTORY, mode, mtime)
    if stat.S_ISLNK(status.st_mode):
        return Entry(path, LINK, mode, mtime, target=os.readlink(name, dir_fd=folder))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(0, _NEITHER)
    if not os.access(name, os.R_OK, dir_fd=folder):
        raise OSError(0, "no permission to read it")
    holes = status.st_blocks * 512 < status.st_size
    data = tuple(_extents(name, folder, status.st_size)) if holes else None
    return Entry(path, FILE, mode, mtime, status.st_size, data=data)


def _extents(name: bytes, folder: int | None, size: int) -> Iterator[Extent]:
    """Yield the extents of data in a file with holes."""
    file, end = open_regular(name, folder, follow=folder is None)[0], 0
    try:
        while end < size:
            try:
                start = os.lseek(file, end, os.SEEK_DATA)
            except OSError:  # only a hole follows
                return
            if start >= size:  # the file has grown meanwhile
                return
            end = os.lseek(file, start, os.SEEK_HOLE)
            yield start, min(end, size) - start
    finally:
        os.close(file)
