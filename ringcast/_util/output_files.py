"""Write result files whole or not at all: a reader finds the old file or the new one, never a part.

Their names are known beforehand, and others may write in the directory (/tmp): so nothing is written through a symbolic
link that lies there, or into a file that another user has made.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import IO


def reason_not(path: Path) -> str:
    """Return why no file can be written at `path`, or ""; asked before hours of measuring."""
    if path.is_dir() or not path.parent.is_dir():
        return f"{path}: no file can be written there"
    if _is_written_directly(path):
        allowed = os.access(path, os.W_OK)
    else:
        ours = path.is_symlink() or not path.exists() or os.access(path, os.W_OK)
        allowed = ours and os.access(path.parent, os.W_OK | os.X_OK)
    return "" if allowed else f"{path}: no permission to write there"


def image_reason_not(path: Path) -> str:
    """Return why matplotlib could not draw into a file of that name, or ""."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        from ringcast._util.optional import how_to_install

        return f"needs matplotlib: {how_to_install('matplotlib')}"
    known = Figure().canvas.get_supported_filetypes()
    return "" if path.suffix[1:] in known else f"{path}: expected a file *.{', *.'.join(known)}"


def write_whole(path: str | os.PathLike[str], write: Callable[[IO[bytes]], object]) -> None:
    """Let `write` write a new file, then put it in the place of `path`; a device or a pipe is written directly.

    A symbolic link is replaced, as is a file; but one to a device or a pipe, as /dev/stdout is, is followed unless
    another user has made it. A file of ours keeps its permissions.

    Raises:
        OSError: the file cannot be written; the old file is unchanged.
    """
    target = Path(path)
    if _is_written_directly(target):
        with _open_directly(target) as file:
            write(file)
        return
    part = target.with_name(f".ringcast-{os.urandom(8).hex()}")
    new = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        with open(new, "wb") as file:
            write(file)
            if (mode := _own_mode(target)) is not None:
                os.fchmod(new, mode)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a file that holds `text`, as `write_whole` does; characters that cannot be encoded become "?"."""
    write_whole(path, lambda file: file.write(text.encode("utf-8", "replace")))


def _is_written_directly(path: Path) -> bool:
    """Return whether `path` leads to a character device, or to another device or a pipe by a name of root or ours."""
    if _is_of_system(path) and os.path.lexists(path):  # /dev/stdout leads nowhere if standard output is closed
        return True
    try:
        named, meant = path.lstat(), path.stat()
    except OSError:  # there is no such file
        return False
    if stat.S_ISREG(meant.st_mode) or stat.S_ISDIR(meant.st_mode):
        return False
    return stat.S_ISCHR(meant.st_mode) or named.st_uid in (0, os.getuid())


def _is_of_system(path: Path) -> bool:
    """Return whether the path is a device's name, or an open file's: directly in /dev, in /dev/fd or in /proc."""
    folder = os.path.realpath(path.parent)
    return folder in ("/dev", "/dev/fd") or folder.startswith("/proc/")  # /dev/fd is a link to /proc on Linux only


def _open_directly(path: Path) -> IO[bytes]:
    """Open a device, a pipe, or a file that is open already (/dev/stdout); refuse a file that was put there meanwhile.

    If /dev/stdout is redirected to a plain file, the text goes to its current position and moves it, so that later
    output follows; an open file of another process is written at its end.
    """
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(file).st_mode):
        if not _is_of_system(path):
            os.close(file)
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        if (ours := _own_descriptor(path)) is not None:
            os.dup2(ours, file, inheritable=False)
    return open(file, "wb")


def _own_descriptor(path: Path) -> int | None:
    """Return the descriptor of this process that the name means, as /dev/stdout means 1; None if it means none."""
    if path.is_symlink() and os.path.realpath(path.parent) == "/dev":
        path = path.parent / path.readlink()
    folder = os.path.realpath(path.parent)
    return int(path.name) if folder == f"/proc/{os.getpid()}/fd" and path.name.isdecimal() else None


def _own_mode(path: Path) -> int | None:
    """Return the permissions of a file of ours; None if there is no file, or it is not ours."""
    try:
        status = path.lstat()
    except OSError:
        return None
    ours = stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid()
    return stat.S_IMODE(status.st_mode) if ours else None
