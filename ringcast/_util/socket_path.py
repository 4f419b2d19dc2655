"""Directories for Unix sockets: the system allows their paths 107 bytes, and temporary directories may be longer."""

from __future__ import annotations

import os
import stat

LONGEST = 107  # bytes that the path of a socket may have (sun_path, without the zero behind it)
REMEDY = "set TMPDIR to a directory in which you can make files"


def fits(path: str) -> bool:
    """Return whether a socket can have this path, and others can be told of it in a line of text.

    >>> fits("/tmp/rank-3"), fits("/tmp/two\\nlines/rank-3"), fits("/" + 107 * "x")
    (True, False, False)
    """
    return is_text(path) and path.isprintable() and len(os.fsencode(path)) <= LONGEST


def is_text(path: str) -> bool:
    """Return whether a path can be told: the names of files may be any bytes."""
    try:
        return bool(path.encode())
    except UnicodeEncodeError:
        return False


def reason_not(given: str) -> str:
    """Return why no job can start, and what to set, or nothing; `given` is what TMPDIR says, "" for nothing."""
    problem = given and _problem(given)
    if given and not problem and temporary() != os.path.abspath(given):  # which Python has tried
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

    That is the temporary directory, unless the paths would be too long; then those that every system, or session, has.

    Args:
        below: the longest path that a socket will have in there.
        session: the directory of the user's session (XDG_RUNTIME_DIR); "" for none.
    """
    own = temporary()
    if own and not open_to_all(own) and fits(os.path.join(own, below)):
        return [own]
    return [each for each in elsewhere(session) if fits(os.path.join(each, below))]


def everywhere(session: str) -> list[str]:
    """Return all folders that `folders` may have returned to this user, as far as they are there."""
    return list(dict.fromkeys(folder for folder in [temporary(), *elsewhere(session)] if folder))


def temporary() -> str:
    """Return the directory for temporary files; "" if there is none."""
    import tempfile  # with all that it imports takes 3 ms, for which no rank waits

    try:
        return tempfile.gettempdir()
    except FileNotFoundError:
        return ""


def elsewhere(session: str) -> list[str]:
    """Return the short directories in which nobody can take the place of what we make there."""
    return [folder for folder in ("/tmp", session, "/dev/shm") if os.path.isabs(folder) and _is_safe(folder)]


def open_to_all(folder: str | os.PathLike[str]) -> str:
    """Return the directory, of a path and those above it, in which everybody can rename what others made, or "".

    It is writable for all, and not sticky: another user can put a directory of his in the place of ours.
    """
    path = os.path.realpath(folder)
    while True:
        mode = os.stat(path).st_mode if os.path.exists(path) else 0
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            return path
        if path == (path := os.path.dirname(path)):
            return ""


def _is_safe(folder: str) -> bool:
    """Return whether only its owner can rename what is made there: who else may write has no right to (sticky)."""
    try:
        status = os.stat(folder)
    except (OSError, ValueError):
        return False
    ours = status.st_uid in (0, os.getuid()) and (not status.st_mode & 0o022 or bool(status.st_mode & stat.S_ISVTX))
    return ours and not _problem(folder)


def _problem(folder: str) -> str:
    """Return why no file can be made in a folder, or nothing."""
    if not os.path.isdir(folder):
        return "there is no such directory"
    if found := open_to_all(folder):
        return f"all users can rename what is in {found} (chmod +t it)"
    return "" if os.access(folder, os.W_OK | os.X_OK) else "no permission to write there"
