"""The exit code of a process that is ending already: Python itself takes no other one from its exit handlers."""

from __future__ import annotations

import ctypes
import os
import sys


def end_with(code: int) -> None:
    """Let this process end with exit code `code` once Python has ended; call it from a handler of `atexit`.

    The C library calls its own exit handlers after Python's, and the last one registered comes first: that is `_exit`.
    """
    try:
        libc = ctypes.CDLL(None)
        register, leave = libc.__cxa_atexit, ctypes.cast(libc._exit, ctypes.c_void_p)
    except (OSError, AttributeError):  # a system without it: later handlers of Python's are lost
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    register(leave, ctypes.c_void_p(code), None)
