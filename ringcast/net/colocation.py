"""Which inboxes can be reached by a socket in the file system: those of the own host, by what is seen there.

A job over hosts talks over tcp, encrypted; what never leaves a host need not be. A rank that has a private directory
there is bound at a socket in it as well, and tells all others its path, which system it runs on, and which file the
socket is. Who finds the same file at that path, on the same system, has no doubt that it is that rank's.

A system is a kernel, by the number that it gave itself when it booted, with one of its network namespaces: hosts that
are emulated on one machine, and containers with addresses of their own, count as hosts. The containers of a pod share
that, but not their files; machines with a common file system share that, but no kernel. Where the kernel does not tell,
nothing is near.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

from ringcast._util import socket_path as socketpath

_BOOT, _NETWORK = Path("/proc/sys/kernel/random/boot_id"), "/proc/self/ns/net"


def system() -> str:
    """Return a name for the system that this process runs on; "" where that is not known."""
    try:
        return system_name(_BOOT.read_text().strip(), os.readlink(_NETWORK))
    except OSError:
        return ""


def system_name(boot: str, network: str) -> str:
    """Return the name of a kernel, by its boot, with a network namespace; it does not give either away.

    >>> len(system_name("8d1c", "net:[4026531840]"))
    16
    """
    return hashlib.sha256(f"{boot} {network}".encode()).hexdigest()[:16]


def socket_path(directory: str, rank: int) -> str:
    """Return where the socket of a rank is to be; "" if there can be none, or others may enter the directory."""
    path = os.path.join(os.path.abspath(directory), f"rank-{rank}")
    return path if directory and socketpath.fits(path) and is_private(os.path.dirname(path)) else ""


def is_private(directory: str) -> bool:
    """Return whether this is a directory that nobody but us may enter."""
    try:
        status = os.stat(directory)
    except (OSError, ValueError):  # which is of a path that can be none
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077


def look(path: str) -> str:
    """Return which file the socket at a path is; "" unless it is one of ours, in a directory that is ours alone."""
    if not is_private(os.path.dirname(path)):
        return ""
    try:
        status = os.lstat(path)
    except (OSError, ValueError):
        return ""
    ours = stat.S_ISSOCK(status.st_mode) and status.st_uid == os.getuid()
    return f"{status.st_dev:x}:{status.st_ino:x}" if ours else ""


def told(own: str, path: str, look: Callable[[str], str] = look) -> str:
    """Return what the others are told of the socket at a path, on the system of this name; "" if it is not there."""
    file = look(path)
    return f"{own} {file} {path}" if own and file else ""


def reached(own: str, all_told: Sequence[str], look: Callable[[str], str] = look) -> dict[int, str]:
    """Return the paths of the sockets that are reached from the system of this name, by rank.

    `all_told` is what each rank has told of its own. It is looked only at what is said to be on the own system.

    >>> seen = {"/a/rank-0": "1:2", "/b/rank-1": "1:3"}
    >>> reached("s", ["s 1:2 /a/rank-0", "s 1:4 /b/rank-1", "t 1:3 /b/rank-1", ""], lambda path: seen.get(path, ""))
    {0: '/a/rank-0'}
    """
    found: dict[int, str] = {}
    for rank, text in enumerate(all_told):
        name, _, rest = text.partition(" ")
        file, _, path = rest.partition(" ")
        if own and file and name == own and look(path) == file:
            found[rank] = path
    return found
