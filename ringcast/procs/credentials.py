"""Decide whether the kernel lets two processes open each other's files through /proc, by the credentials of both.

The rule is in ptrace(2), "Ptrace access mode checking": both have the same user and group, and the opened process has
no capability that the opener does not have in effect; with CAP_SYS_PTRACE the opener may open any. Both ranks of a pair
must decide alike, although the kernel may let only one of them open the other's files. So each decides by the
credentials of both, before either tries.
"""

from __future__ import annotations

import errno
import os
import zlib
from contextlib import suppress
from typing import NamedTuple

_SYS_PTRACE = 1 << 19


class Credentials(NamedTuple):
    """Facts of a process that the kernel compares. Namespaces and label are numbers; 0 where there is none."""

    uid: int
    gid: int
    pid_namespace: int
    user_namespace: int
    label: int  # of a security module, such as AppArmor or SELinux
    permitted: int  # capabilities, a bit each …
    effective: int  # … and those in effect


def own() -> Credentials:
    """Return the credentials of this process.

    Raises:
        OSError: there are no descriptors left, so they cannot be read.
    """
    permitted, effective = _capabilities()
    return Credentials(os.getuid(), os.getgid(), _namespace("pid"), _namespace("user"), _label(), permitted, effective)


def reason_not(ours: Credentials, theirs: Credentials) -> str:
    """Return why two processes cannot open each other's files; empty if no obstacle is known.

    Both processes get a reason, or both get none; only the words differ.
    """
    if ours.uid != theirs.uid:
        return "it is another user's"
    if ours.pid_namespace != theirs.pid_namespace:
        return "it is in another PID namespace, as of a container"
    if ours.user_namespace != theirs.user_namespace:
        return "it is in another user namespace, as of a container"
    if ours.label != theirs.label:
        return "a security module (AppArmor, SELinux) keeps it apart"
    if _lets(ours, theirs) and _lets(theirs, ours):
        return ""
    return "it has another group" if ours.gid != theirs.gid else "it has more, or fewer, capabilities"


def _lets(opener: Credentials, opened: Credentials) -> bool:
    """Return whether the kernel lets one process open the files of another one of its user."""
    if opener.effective & _SYS_PTRACE:
        return True
    return opener.gid == opened.gid and not opened.permitted & ~opener.effective


def _namespace(kind: str) -> int:
    with suppress(OSError):
        return os.stat(f"/proc/self/ns/{kind}").st_ino
    return 0


def _label() -> int:
    return zlib.crc32(_read("/proc/self/attr/current"))


def _capabilities() -> tuple[int, int]:
    """Return the permitted and the effective capabilities; none where the system does not show them."""
    lines = (line.partition(b":") for line in _read("/proc/self/status").splitlines())
    sets = {name: value for name, _, value in lines if name.startswith(b"Cap")}
    return int(sets.get(b"CapPrm", b"0"), 16), int(sets.get(b"CapEff", b"0"), 16)


def _read(path: str) -> bytes:
    """Return the content of a file in /proc; empty where this system does not have the file."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise
        return b""
