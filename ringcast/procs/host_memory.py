"""Make memory that processes of one host share: a memfd, which has no name, so that no end of a process leaves it.

It is gone with the last process that maps it. Other processes open it through /proc, which the kernel allows to those
of the same user. Its pages are allocated when it is made, and its size is sealed: no access to it can fail later.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import sys
from typing import NamedTuple

from ringcast._util.sizes import readable
from ringcast.procs.free_memory import free_memory
from ringcast.procs.libc import PROTECTED

_AT_ONCE = 256 << 20  # bytes that are allocated without a look at signals, and at the memory that is left
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL if hasattr(fcntl, "F_SEAL_SHRINK") else 0
_NONE = -1  # in place of a descriptor
_SHORTAGE = errno.EMFILE, errno.ENFILE, errno.ENOMEM
_APART = (
    "the memory of the host's first rank is not in the /proc of this rank: "
    "do they run in different PID namespaces, as of containers?"
)
_CLOSED = f"the process of the host's first rank lets no other process open its memory: {PROTECTED}"


class Place(NamedTuple):
    """The place of a memory in /proc, and its identity."""

    pid: int
    descriptor: int
    device: int
    inode: int


NOWHERE = Place(0, 0, 0, 0)


class HostMemory:
    """A memory of so many bytes that this process has open."""

    def __init__(self, file: int, nbytes: int) -> None:
        self._file, self._nbytes = file, nbytes
        self._anonymous: mmap.mmap | None = None  # without a file, all mappings are this one

    @property
    def place(self) -> Place:
        """The place where others find it; NOWHERE if they cannot."""
        if self._file == _NONE:
            return NOWHERE
        status = os.fstat(self._file)
        return Place(os.getpid(), self._file, status.st_dev, status.st_ino)

    def mapped(self, *, writeable: bool = True) -> mmap.mmap | bytearray:
        """Return the memory, as a mapping that outlasts this object.

        Raises:
            OSError: there are no addresses, or no descriptors left.
        """
        if not self._nbytes:  # which cannot be mapped
            return bytearray()
        try:
            if self._file == _NONE:
                self._anonymous = self._anonymous or mmap.mmap(_NONE, self._nbytes)
                return self._anonymous
            return mmap.mmap(self._file, self._nbytes, access=mmap.ACCESS_DEFAULT if writeable else mmap.ACCESS_READ)
        except (OverflowError, ValueError) as error:
            raise OSError(errno.ENOMEM, str(error)) from None

    def duplicate(self) -> int | None:
        """Return another descriptor of it; None where there is none.

        Raises:
            OSError: there are no descriptors left.
        """
        return None if self._file == _NONE else os.dup(self._file)

    def close(self) -> None:
        """Close it; mappings stay."""
        if self._file != _NONE:
            os.close(self._file)


def make(nbytes: int, *, alone: bool) -> HostMemory:
    """Make a memory of zeros; `alone`: no other process is to find it.

    Raises:
        OSError: the system has no such memory, or no room for it.
    """
    if not hasattr(os, "memfd_create"):
        if alone:
            return HostMemory(_NONE, nbytes)
        there = "one rank on each host can have such arrays, and bcast works everywhere"
        raise OSError(errno.ENOSYS, f"{sys.platform} has no memfd_create; {there}")
    _check_room(nbytes)
    file = _memfd()
    try:
        for start in range(0, nbytes, _AT_ONCE):
            size = min(_AT_ONCE, nbytes - start)
            _check_room(size)
            os.posix_fallocate(file, start, size)
        if _SEALS:
            fcntl.fcntl(file, fcntl.F_ADD_SEALS, _SEALS)
    except BaseException:
        os.close(file)
        raise
    return HostMemory(file, nbytes)


def open_at(place: Place, nbytes: int) -> HostMemory:
    """Open the memory that another process has made, and still has open.

    Raises:
        OSError: the kernel does not let this process open it, or there are no descriptors left.
    """
    try:
        file = os.open(f"/proc/{place.pid}/fd/{place.descriptor}", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in _SHORTAGE:
            raise
        raise OSError(error.errno, _CLOSED if error.errno == errno.EACCES else _APART) from None
    status = os.fstat(file)
    if (status.st_dev, status.st_ino) != (place.device, place.inode):
        os.close(file)
        raise OSError(errno.ENOENT, _APART)
    return HostMemory(file, nbytes)


def _memfd() -> int:
    try:
        return os.memfd_create("ringcast-array", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except OSError as error:
        raise OSError(error.errno, f"memfd_create: {error.strerror}") from None  # as containers may forbid it


def _check_room(nbytes: int) -> None:
    free = free_memory()
    if free is not None and nbytes > free:
        raise OSError(errno.ENOMEM, f"only {readable(free)} of memory are free")
