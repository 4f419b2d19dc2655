"""Detect ranks on the same host, which can be reached by an ipc socket in the file system.

A job over several hosts uses tcp, encrypted; traffic within a host needs no encryption. A rank that has a private
directory on its host binds an ipc socket there as well, and advertises its path, the system that the rank runs on, and
the socket's device and inode. A rank on the same system that finds the same file at that path can use it.

A system is a kernel, identified by its boot ID, with one of its network namespaces: hosts that are emulated on one
machine, and containers with addresses of their own, count as hosts. The containers of a pod share the system, but not
their files; machines with a common file system share files, but no kernel. Where the boot ID is not known, all ranks
use tcp.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable, Sequence
from random import Random

from ringcast._util import socket_path as socketpath
from ringcast.procs.portable import content

_BOOT, _NETWORK = "/proc/sys/kernel/random/boot_id", "/proc/self/ns/net"


def system() -> str:
    """Return the name of the system that this process runs on; "" where it is not known."""
    try:
        return system_name(content(_BOOT).decode().strip(), os.readlink(_NETWORK))
    except OSError:
        return ""


def host() -> str:
    """Return the name of the system that this process runs on; the hostname where the system is not known."""
    return system() or socket.gethostname()


def kernel() -> str:
    """Return the name of this host's kernel, whatever its namespaces; "" where it is not known."""
    try:
        return system_name(content(_BOOT).decode().strip())
    except OSError:
        return ""


def system_name(boot: str, network: str = "") -> str:
    """Return a hash of a kernel's boot ID and perhaps a network namespace; it reveals neither.

    >>> len(system_name("8d1c", "net:[4026531840]"))
    16
    """
    hashed = Random(f"{boot} {network}")  # by SHA-512; to load hashlib, with OpenSSL, takes longer than a rank's Hello
    return f"{hashed.getrandbits(64):016x}"


def socket_path(directory: str, rank: int) -> str:
    """Return the path for a rank's socket; "" if it is too long for one, or the directory is not private."""
    path = os.path.join(os.path.abspath(directory), f"rank-{rank}")
    return path if directory and socketpath.fits(path) and is_private(os.path.dirname(path)) else ""


def is_private(directory: str) -> bool:
    """Return whether only this user may enter the directory."""
    try:
        status = os.stat(directory)
    except (OSError, ValueError):  # ValueError: a null byte in the path
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077


def identify(path: str) -> str:
    """Return device and inode of the socket at a path; "" unless it is this user's, in a private directory."""
    if not is_private(os.path.dirname(path)):
        return ""
    try:
        status = os.lstat(path)
    except (OSError, ValueError):
        return ""
    ours = stat.S_ISSOCK(status.st_mode) and status.st_uid == os.getuid()
    return f"{status.st_dev:x}:{status.st_ino:x}" if ours else ""


def advertisement(own: str, path: str, identify: Callable[[str], str] = identify) -> str:
    """Return a line by which other ranks recognise the socket at a path of system `own`; "" if there is no socket."""
    file = identify(path)
    return f"{own} {file} {path}" if own and file else ""


def reachable(own: str, advertisements: Sequence[str], identify: Callable[[str], str] = identify) -> dict[int, str]:
    """Return the paths of the sockets that can be reached from system `own`, by rank.

    `advertisements` has one entry for each rank. Only files of sockets on the own system are looked at.

    >>> seen = {"/a/rank-0": "1:2", "/b/rank-1": "1:3"}
    >>> reachable("s", ["s 1:2 /a/rank-0", "s 1:4 /b/rank-1", "t 1:3 /b/rank-1", ""], lambda path: seen.get(path, ""))
    {0: '/a/rank-0'}
    """
    found: dict[int, str] = {}
    for rank, text in enumerate(advertisements):
        name, _, rest = text.partition(" ")
        file, _, path = rest.partition(" ")
        if own and file and name == own and identify(path) == file:
            found[rank] = path
    return found
