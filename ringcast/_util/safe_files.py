"""Open files and directories where other users can write: by descriptor, never through a link of another user.

A name is looked up once, in a directory that is open; the opened file is then judged by its descriptor. Nothing here
relies on the kernel's own protection (fs.protected_symlinks and the like), which may be off.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

OPEN = 32  # directories that a `Folders` keeps open
_LINKS = 40  # followed on the way to a directory; the kernel follows as many
_NEVER_THROUGH = os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | _NEVER_THROUGH  # the directory need not be readable
_FOREIGN = "belongs to another user, and lies where everybody can write"
_EXCHANGED = "another directory has taken its place meanwhile"


def is_foreign(folder: os.stat_result, entry: os.stat_result) -> bool:
    """Return whether another user may have put an entry into a directory that all users share.

    In a directory in which everybody can write, or that is sticky, each entry should belong to us, to root or to the
    owner of the directory. In other directories the owner is responsible for the entries.
    """
    for_all = folder.st_mode & (stat.S_IWOTH | stat.S_ISVTX)
    return bool(for_all) and entry.st_uid not in (0, os.geteuid(), folder.st_uid)


def is_ours(folder: os.stat_result, file: os.stat_result) -> bool:
    """Return whether a file in a directory is a regular file of this user, so that it may be kept, and written to.

    Where others can write, a file with several names does not count: they can give a private file of ours a name there.
    """
    if not stat.S_ISREG(file.st_mode) or file.st_uid != os.geteuid():
        return False
    return file.st_nlink == 1 or (folder.st_uid in (0, os.geteuid()) and not folder.st_mode & 0o022)


def open_regular(
    name: bytes | str, folder: int | None = None, access: int = os.O_RDONLY, *, follow: bool = False
) -> tuple[int, os.stat_result]:
    """Open a regular file that is there, and return its descriptor and status; it never waits, as for a pipe.

    Args:
        name: of the file, or a path whose directories are trusted.
        folder: descriptor of the directory; None for the working directory.
        access: O_RDONLY, O_WRONLY or O_RDWR, and flags.
        follow: whether a link is followed, for names that the user gave.

    Raises:
        OSError: the file cannot be opened, or is a link, pipe, device or directory.
    """
    links = 0 if follow else os.O_NOFOLLOW
    file = os.open(name, access | links | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, dir_fd=folder)
    status = os.fstat(file)
    if not stat.S_ISREG(status.st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, "is no regular file")
    return file, status


def open_new(name: bytes | str, folder: int | None = None) -> int:
    """Make a file that only its owner can read and write, and return its descriptor.

    Raises:
        FileExistsError: something has that name, if only a link.
        OSError: the file cannot be made.
    """
    return os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | _NEVER_THROUGH, 0o600, dir_fd=folder)


def open_folder(path: bytes | str, *, make: bool = False) -> int:
    """Return the descriptor of the directory at a path; for lookups (O_PATH), not to list it.

    Links on the way are followed, unless others could have laid them. With `make` missing directories are made.

    Raises:
        PermissionError: a directory or link on the way is foreign (see `is_foreign`).
        OSError: the directory cannot be opened, or made.
    """
    path = os.fsencode(path)
    folder = os.open(b"/" if path.startswith(b"/") else b".", _FOLDER)
    left, links = path.split(b"/")[::-1], 0
    try:
        while left:
            name = left.pop()
            if name in (b"", b"."):
                continue
            try:
                below = _entered(folder, name, make)
            except NotADirectoryError:
                target, links = _target(folder, name), links + 1
                if links > _LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from None
                left += target.split(b"/")[::-1]
                if not target.startswith(b"/"):
                    continue
                below = os.open(b"/", _FOLDER)
            os.close(folder)
            folder = below
    except BaseException:
        os.close(folder)
        raise
    return folder


def _entered(folder: int, name: bytes, make: bool) -> int:
    try:
        return _open_below(folder, os.fstat(folder), name)
    except FileNotFoundError:
        if not make:
            raise
    with suppress(FileExistsError):  # another process has made it
        os.mkdir(name, dir_fd=folder)
    return _open_below(folder, os.fstat(folder), name)


def _open_below(folder: int, status: os.stat_result, name: bytes) -> int:
    below = os.open(name, _FOLDER, dir_fd=folder)
    if name != b".." and is_foreign(status, os.fstat(below)):
        os.close(below)
        raise PermissionError(errno.EPERM, f"{os.fsdecode(name)!r} {_FOREIGN}")
    return below


def _target(folder: int, name: bytes) -> bytes:
    """Return the target of a link, unless another user could have laid it, or could replace it."""
    status, link = os.fstat(folder), os.stat(name, dir_fd=folder, follow_symlinks=False)
    if not stat.S_ISLNK(link.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    replaceable = status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX
    if replaceable or is_foreign(status, link):
        raise PermissionError(errno.EPERM, f"the link {os.fsdecode(name)!r} {_FOREIGN}")
    return os.readlink(name, dir_fd=folder)


class Folders:
    """Directories below a root, each opened from the one above it; some stay open, in the order of their last use.

    A directory that is opened again must have the same inode: another user can exchange their directory for a link.
    """

    def __init__(self, root: int, *, of_anybody: bool = False) -> None:
        """Take over the descriptor of the root; `of_anybody`: foreign directories are opened too, to read in them."""
        self._of_anybody = of_anybody
        self._open = {b"": (root, os.fstat(root))}
        self._inodes: dict[bytes, int] = {}

    def at(self, path: bytes) -> int:
        """Return the descriptor of a directory below the root (b"" is the root), valid until the next call.

        Raises:
            OSError: the directory cannot be opened, is a link, is foreign (see `is_foreign`), or was exchanged.
        """
        return self._at(path)[0]

    def status(self, path: bytes) -> os.stat_result:
        """Return the status that a directory had when it was opened.

        Raises:
            OSError: as `at`.
        """
        return self._at(path)[1]

    @contextmanager
    def readable(self, path: bytes) -> Iterator[int]:
        """Open a directory so that it can be listed, and its mode and times be set.

        Raises:
            OSError: as `at`, or it may not be read.
        """
        file = os.open(b".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self.at(path))
        try:
            yield file
        finally:
            os.close(file)

    def close(self) -> None:
        """Close all open directories."""
        while self._open:
            os.close(self._open.popitem()[1][0])

    def _at(self, path: bytes) -> tuple[int, os.stat_result]:
        found = self._open.get(path)
        if found is None:
            return self._walk(path)
        if path:
            self._open[path] = self._open.pop(path)  # the last ones used are at the end
        return found

    def _walk(self, path: bytes) -> tuple[int, os.stat_result]:
        """Open a directory, and those above it that are not open."""
        above = path
        while above not in self._open:
            above = above.rpartition(b"/")[0]
        found = self._at(above)
        while above != path:
            end = path.find(b"/", len(above) + 1)
            below = path if end < 0 else path[:end]
            found = self._enter(*found, below[len(above) :].lstrip(b"/"))
            self._keep(below, found)
            above = below
        return found

    def _enter(self, folder: int, status: os.stat_result, name: bytes) -> tuple[int, os.stat_result]:
        file = os.open(name, _FOLDER, dir_fd=folder) if self._of_anybody else _open_below(folder, status, name)
        return file, os.fstat(file)

    def _keep(self, path: bytes, found: tuple[int, os.stat_result]) -> None:
        inode = found[1].st_ino
        if self._inodes.setdefault(path, inode) != inode:
            os.close(found[0])
            raise OSError(errno.EBUSY, _EXCHANGED)
        if len(self._open) > OPEN:
            oldest = next(each for each in self._open if each)  # the root stays
            os.close(self._open.pop(oldest)[0])
        self._open[path] = found
