"""Choose directories for Unix sockets, whose paths may have 107 bytes; the temporary directory's path may be longer."""

from __future__ import annotations

import os
import stat

LONGEST = 107  # bytes of a socket's path (sun_path, without the zero byte behind it)
REMEDY = "set TMPDIR to a directory in which you can make files"


def fits(path: str) -> bool:
    """Return whether a socket can have this path, and the path can be sent to others in a line of text.

    >>> fits("/tmp/rank-3"), fits("/tmp/two\\nlines/rank-3"), fits("/" + 107 * "x")
    (True, False, False)
    """
    return is_text(path) and path.isprintable() and len(os.fsencode(path)) <= LONGEST


def is_text(path: str) -> bool:
    """Return whether a path can be encoded as UTF-8: the names of files may be any bytes."""
    try:
        return bool(path.encode())
    except UnicodeEncodeError:
        return False


def reason_not(given: str) -> str:
    """Return why no job can start, and what to set, or ""; `given` is the value of TMPDIR, "" if it is not set."""
    problem = given and _problem(given)
    if given and not problem and temporary() != os.path.abspath(given):  # Python has tried TMPDIR first
        problem = "no file can be made there"
    if problem:
        return f"TMPDIR={given}: {problem}; {REMEDY}, or unset it"
    if not (own := temporary()):
        return f"there is no directory for temporary files; {REMEDY}, with a short path"
    if not (problem := _problem(own)):
        return ""
    # In a container even /tmp may be a volume of mode 0777.
    example = "".join(f", as {folder}" for folder in elsewhere("")[:1])
    return f"{own}: {problem}; {REMEDY}{example}"


def folders(below: str, session: str) -> list[str]:
    """Return the folders in which a directory with sockets may be made, the best first.

    It is the temporary directory, unless paths in it would be too long or other users could exchange it; then the
    folders of `elsewhere` in which the paths fit.

    Args:
        below: the longest path of a socket, relative to the folder.
        session: the directory of the user's session (XDG_RUNTIME_DIR); "" for none.
    """
    own = temporary()
    if own and not open_to_all(own) and fits(os.path.join(own, below)):
        return [own]
    return [each for each in elsewhere(session) if fits(os.path.join(each, below))]


def everywhere(session: str) -> list[str]:
    """Return all existing folders that `folders` may have returned to this user."""
    return list(dict.fromkeys(folder for folder in [temporary(), *elsewhere(session)] if folder))


def temporary() -> str:
    """Return the directory for temporary files; "" if there is none."""
    import tempfile  # takes 3 ms with its own imports; ranks do not need it

    try:
        return tempfile.gettempdir()
    except FileNotFoundError:
        return ""


def elsewhere(session: str) -> list[str]:
    """Return the directories with short paths in which no other user can replace a file of ours."""
    return [folder for folder in ("/tmp", session, "/dev/shm") if os.path.isabs(folder) and _is_safe(folder)]


def open_to_all(folder: str | os.PathLike[str]) -> str:
    """Return the first directory, from `folder` upwards, in which every user can rename others' files; "" if none.

    Such a directory is writable for all, and not sticky: another user can put a directory in the place of ours.
    """
    path = os.path.realpath(folder)
    while True:
        mode = os.stat(path).st_mode if os.path.exists(path) else 0
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            return path
        if path == (path := os.path.dirname(path)):
            return ""


def _is_safe(folder: str) -> bool:
    """Return whether we can make files in a folder, and no other user but root can rename them."""
    try:
        status = os.stat(folder)
    except (OSError, ValueError):
        return False
    ours = status.st_uid in (0, os.getuid()) and (not status.st_mode & 0o022 or bool(status.st_mode & stat.S_ISVTX))
    return ours and not _problem(folder)


def _problem(folder: str) -> str:
    """Return why no file can be made safely in a folder, or ""."""
    if not os.path.isdir(folder):
        return "there is no such directory"
    if found := open_to_all(folder):
        return f"all users can rename what is in {found} (chmod +t it)"
    return "" if os.access(folder, os.W_OK | os.X_OK) else "no permission to write there"
