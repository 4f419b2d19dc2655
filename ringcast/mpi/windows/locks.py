"""Locks between the ranks that share a window: of the kernel, on the memory's file, which end with the process.

A lock belongs to the rank's own open file of the memory (an open file description, see fcntl(2)), so ranks that are
threads of one process exclude each other too. The byte of a rank's number is locked; no content of the memory is
concerned.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct

_FLOCK = struct.Struct("hhqqi4x")  # type, whence, start, length, pid
_SET = getattr(fcntl, "F_OFD_SETLK", 37)  # the number of Linux, also where Python was built without its name
_TAKEN = errno.EAGAIN, errno.EACCES


class LockFile:
    """The open file of the memory that a rank locks by."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    def locks(self, first: int, count: int, *, exclusive: bool) -> bool:
        """Lock the bytes of some ranks if no other rank has a lock that excludes it; return whether it did."""
        try:
            self._set(fcntl.F_WRLCK if exclusive else fcntl.F_RDLCK, first, count)
        except OSError as error:
            if error.errno in _TAKEN:
                return False
            raise
        return True

    def unlock(self, first: int, count: int) -> None:
        """Unlock the bytes of some ranks."""
        self._set(fcntl.F_UNLCK, first, count)

    def _set(self, kind: int, first: int, count: int) -> None:
        if self._descriptor is not None:  # else this rank is alone
            fcntl.fcntl(self._descriptor, _SET, _FLOCK.pack(kind, os.SEEK_SET, first, count, 0))

    def close(self) -> None:
        """Close the file, and end its locks."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    __del__ = close  # of a window that another rank could not have
