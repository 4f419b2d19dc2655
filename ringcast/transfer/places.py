"""Find the names of a manifest's entries, and of their part files, in the directories of the destination.

A directory is opened from the one above it, so that no link leads out of the destination, and each name is used with
the descriptor of its directory. An existing file is used only if it belongs to this user and still has the inode that
was seen first.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ringcast._util.safe_files import Folders, is_ours, open_folder, open_regular
from ringcast.transfer.manifest import FILE, PART, Manifest

_LONG_NAME = 240  # bytes: names may have 255, and part files have 15 more
_IN_THE_WAY = "belongs to another user, and cannot be replaced"


class Places:
    """The paths of a manifest's entries below their destination, by number."""

    def __init__(self, manifest: Manifest, target: bytes) -> None:
        self.base, self._names = placed(manifest, target)
        self._taken = {name for name in self._names if name.endswith(PART)}  # by entries: no names for part files
        self._prefix = os.path.join(self.base, b"")
        self._opened: Folders | None = None

    def root(self) -> int:
        """Return the descriptor of the destination directory, which is made if it is missing.

        Raises:
            OSError: the directory cannot be made, or others could exchange it (see `open_folder`).
        """
        if self._opened is None:
            self._opened = Folders(open_folder(self.base, make=True))
        return self._opened.at(b"")

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
        self._opened = None

    def path(self, number: int) -> bytes:
        """Return the path of an entry, for messages."""
        return self._prefix + self._names[number]

    def folder(self, number: int) -> bytes:
        """Return the path of the directory that an entry lies in, below the destination."""
        return self._names[number].rpartition(b"/")[0]

    def spot(self, number: int) -> tuple[int, bytes, bytes]:
        """Return the descriptor of an entry's directory, and the names of the entry and its part file.

        The descriptor is valid until the next call for another directory.

        No entry has the name of a part file: a source may have part files of its own.
        """
        path = self._names[number]
        folder, slash, name = path.rpartition(b"/")
        part = b".%b%b" % (name if len(name) <= _LONG_NAME else _hashed(name), PART)
        while self._taken and folder + slash + part in self._taken:
            part = b".%b%b" % (_hashed(part), PART)
        return self._folders.at(folder), name, part

    def enter(self, number: int) -> bool:
        """Open the directory that an entry describes, and remember which one it is; return False if there is none.

        Raises:
            OSError: something else is there, or others could exchange it (see `is_foreign`).
        """
        there = self.status(number)
        if there is None:
            return False
        if not stat.S_ISDIR(there.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, "is there, and no directory")
        self._folders.at(self._names[number])
        return True

    def make_folder(self, number: int) -> None:
        """Make the directory that an entry describes, with mode 0o700; nothing may have that name yet."""
        folder, name, _ = self.spot(number)
        os.mkdir(name, 0o700, dir_fd=folder)
        self._folders.at(self._names[number])

    @contextmanager
    def open_folder(self, number: int) -> Iterator[int]:
        """Open the directory of an entry, so that its mode and times can be set."""
        with self._folders.readable(self._names[number]) as file:
            yield file

    def status(self, number: int) -> os.stat_result | None:
        """Return the status of the file, directory or link with the name of an entry; None if there is none."""
        folder, name, _ = self.spot(number)
        try:
            return os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def check_replaceable(self, number: int, there: os.stat_result) -> None:
        """Raise PermissionError if the file in an entry's place is another user's, in a sticky directory of others."""
        above, user = self._folders.status(self.folder(number)), os.geteuid()
        if above.st_mode & stat.S_ISVTX and there.st_uid != user and user not in (0, above.st_uid):
            raise PermissionError(errno.EPERM, _IN_THE_WAY)

    def is_own(self, number: int, status: os.stat_result) -> bool:
        """Return whether a file in the directory of an entry is a regular one of this user (see `is_ours`)."""
        return is_ours(self._folders.status(self.folder(number)), status)

    def own(self, number: int) -> os.stat_result | None:
        """Return the status of the file with the name of an entry; None if this user has no such regular file."""
        folder, name, _ = self.spot(number)
        return self._if_own(number, folder, name)

    def own_part(self, number: int) -> os.stat_result | None:
        """Return the status of the part file of an entry; None if this user has no such regular file."""
        folder, _, name = self.spot(number)
        return self._if_own(number, folder, name)

    def open_own(self, number: int, inode: int, access: int = os.O_RDONLY, *, part: bool = False) -> int | None:
        """Open the file that has the name of an entry, or its part file, and had this inode before.

        Returns:
            Its descriptor; None if the file is gone, is another one, or belongs to another user.

        Raises:
            OSError: the file cannot be opened, or its directory is gone.
        """
        folder, *names = self.spot(number)
        try:
            file, status = open_regular(names[part], folder, access)
        except FileNotFoundError:
            if not os.fstat(folder).st_nlink:
                raise
            return None
        if status.st_ino == inode and self.is_own(number, status):
            return file
        os.close(file)
        return None

    def link(self, number: int) -> tuple[bytes, int] | None:
        """Return target and time of change (ns) of the link in an entry's place; None if this user has none there."""
        there = self.status(number)
        if there is None or not stat.S_ISLNK(there.st_mode) or there.st_uid != os.geteuid():
            return None
        folder, name, _ = self.spot(number)
        return os.readlink(name, dir_fd=folder), there.st_mtime_ns

    def make_link(self, number: int, target: bytes) -> None:
        """Make the link of an entry; it replaces a file or link of that name."""
        folder, name, part = self.spot(number)
        with suppress(FileNotFoundError):
            os.unlink(part, dir_fd=folder)
        os.symlink(target, part, dir_fd=folder)
        os.rename(part, name, src_dir_fd=folder, dst_dir_fd=folder)

    @property
    def _folders(self) -> Folders:
        assert self._opened is not None
        return self._opened

    def _if_own(self, number: int, folder: int, name: bytes) -> os.stat_result | None:
        try:
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return None
        return found if self.is_own(number, found) else None


def placed(manifest: Manifest, target: bytes) -> tuple[bytes, list[bytes]]:
    """Return the destination directory, and the name of each entry in it.

    A single file gets the name of the target, unless that is a directory or ends with "/".
    """
    names = [entry.path for entry in manifest.entries]
    single = len(names) == 1 and manifest.entries[0].kind == FILE
    if not single or target.endswith(b"/") or os.path.isdir(target):
        return target, names
    folder, name = os.path.split(target)
    return folder or b".", [name]


def _hashed(name: bytes) -> bytes:
    """Return a name of fixed length in place of a long one: its SHA-256."""
    return hashlib.sha256(name).hexdigest().encode()
