"""Makes Python on Linux lack what a Mac lacks; Python reads this file at its start, if PYTHONPATH has its folder.

That is as near as Linux comes to a Mac. Programs in C, as `ps`, still see /proc, and the sockets are Linux's.
"""

import builtins
import ctypes
import fcntl
import io
import os
import re
import resource
import select
import signal
import socket
import sys
from typing import Any

MISSING: dict[Any, tuple[str, ...]] = {
    os: (
        *("memfd_create", "eventfd", "eventfd_read", "eventfd_write", "EFD_CLOEXEC", "EFD_NONBLOCK", "EFD_SEMAPHORE"),
        *("pidfd_open", "sched_getaffinity", "sched_setaffinity", "pipe2", "posix_fallocate", "waitid", "O_PATH"),
        *("copy_file_range", "splice", "MFD_CLOEXEC", "MFD_ALLOW_SEALING", "P_PIDFD", "setns", "unshare"),
    ),
    select: ("epoll", *(name for name in dir(select) if name.startswith("EPOLL"))),
    signal: ("SIGRTMIN", "SIGRTMAX", "pidfd_send_signal", "sigwaitinfo", "sigtimedwait", "SIGPWR", "SIGSTKFLT"),
    socket: (
        "TCP_INFO",
        "TCP_USER_TIMEOUT",
        "TCP_KEEPIDLE",
        "SO_PEERCRED",
        "SO_DOMAIN",
        "SO_PROTOCOL",
        "SO_BINDTODEVICE",
    ),
    fcntl: ("F_ADD_SEALS", "F_SEAL_SHRINK", "F_SEAL_GROW", "F_SEAL_SEAL", "F_SETPIPE_SZ"),
    resource: ("prlimit",),
}
SYMBOLS = ("prctl", "syscall", "process_vm_readv", "__errno_location")  # of the C library

for _module, _names in MISSING.items():
    for _name in _names:
        if hasattr(_module, _name):
            delattr(_module, _name)


def _of_proc(path: object) -> bool:
    text = os.fsdecode(path) if isinstance(path, (str, bytes, os.PathLike)) else ""
    return text == "/proc" or text.startswith("/proc/")


def _hide_proc(event: str, arguments: tuple[object, ...]) -> None:
    if event in ("open", "os.listdir", "os.scandir") and arguments and _of_proc(arguments[0]):
        raise FileNotFoundError(2, "No such file or directory", arguments[0])


def _without_proc(call: Any) -> Any:
    def checked(path: Any, *args: Any, **options: Any) -> Any:
        if _of_proc(path):
            raise FileNotFoundError(2, "No such file or directory", path)
        return call(path, *args, **options)

    return checked


def _symbol(library: ctypes.CDLL, name: str, usual: Any = ctypes.CDLL.__getattr__) -> Any:
    if name in SYMBOLS:
        raise AttributeError(f"symbol not found: {name}")
    return usual(library, name)


def _open_file(path: object) -> int | None:
    """Return the descriptor that a path in /dev/fd means."""
    text = os.fsdecode(path) if isinstance(path, (str, bytes, os.PathLike)) else ""
    return int(text[len("/dev/fd/") :]) if re.fullmatch(r"/dev/fd/\d+", text) else None


def _like_a_copy(call: Any) -> Any:
    """Have a path in /dev/fd open a file that is open at its present position, as `dup` does."""

    def opened(path: Any, *args: Any, **options: Any) -> Any:
        if (file := _open_file(path)) is None:
            return call(path, *args, **options)
        return os.dup(file) if call is os_open else call(os.dup(file), *args, **options)

    return opened


def _lstat(path: Any, *args: Any, **options: Any) -> Any:
    """Take /dev/fd for a folder of its own: it is no link."""
    return (os.stat if path in ("/dev/fd", "/dev/fd/") else os_lstat)(path, *args, **options)


sys.addaudithook(_hide_proc)
for _name in ("stat", "lstat", "readlink", "access"):
    setattr(os, _name, _without_proc(getattr(os, _name)))
os_open, os_lstat = os.open, os.lstat
os.open, os.lstat = _like_a_copy(os.open), _lstat
builtins.open = io.open = _like_a_copy(open)
ctypes.CDLL.__getattr__ = _symbol  # type: ignore[method-assign]
sys.platform = "darwin"
