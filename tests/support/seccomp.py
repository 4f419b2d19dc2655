"""A filter by which a process denies itself, and all that it starts, one system call of x86-64; as containers do.

`python seccomp.py NUMBER ERRNO COMMAND ...` runs a command with that.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys

PROCESS_VM_READV, MEMFD_CREATE = 310, 319
_NO_NEW_PRIVILEGES, _SET_SECCOMP, _FILTER = 38, 22, 2  # of prctl
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06  # instructions: the number of the call is at 0 of what they look at
_ERRNO, _ALLOW = 0x00050000, 0x7FFF0000


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_void_p))


def deny(number: int, error: int) -> None:
    """Have this system call fail with this error from now on, for ever."""
    steps = (_LOAD, 0, 0, 0), (_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ERRNO | error), (_RETURN, 0, 0, _ALLOW)
    code = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *step) for step in steps))
    program, libc = _Program(len(steps), ctypes.addressof(code)), ctypes.CDLL(None, use_errno=True)
    for words in (_NO_NEW_PRIVILEGES, 1, 0, 0, 0), (_SET_SECCOMP, _FILTER, ctypes.addressof(program), 0, 0):
        if libc.prctl(*map(ctypes.c_ulong, words)):
            raise OSError(ctypes.get_errno(), "prctl")


if __name__ == "__main__":
    deny(int(sys.argv[1]), int(sys.argv[2]))
    os.execvp(sys.argv[3], sys.argv[3:])
