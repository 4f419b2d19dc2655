"""Make system calls that the standard library lacks: futexes, and reads of another process's memory.

The calls go through ctypes, on Linux for x86-64 only; elsewhere `reason_not_futexes` says why there are none.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import signal
import sys
from contextlib import suppress
from functools import lru_cache

from ringcast.procs.portable import content

_FUTEX, _WAIT, _WAKE = 202, 0, 1  # numbers of x86-64
_ALL = (1 << 31) - 1
_SET_PTRACER = 0x59616D61  # of prctl: which other processes may read this one's memory, where Yama is strict
_SET_PDEATHSIG = 1  # of prctl: the signal that comes when the parent ends
_GET_DUMPABLE, _DUMPABLE = 3, 1  # of prctl: whether others of this user may look into this process
PROTECTED = "it is protected, as programs with the set-user bit are, or by prctl(PR_SET_DUMPABLE)"
_YAMA = "/proc/sys/kernel/yama/ptrace_scope"
_prctl = getattr(ctypes.PyDLL(None), "prctl", None)  # looked up before any fork
_BLOCKED = {errno.EPERM, errno.ENOSYS, errno.EACCES}


class _Piece(ctypes.Structure):
    """A piece of memory, as `struct iovec` has it."""

    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


@lru_cache(maxsize=1)
def reason_not_shared() -> str:
    """Return why this process cannot share memory with others of its user; empty if it can."""
    reason = reason_not_futexes()
    if reason:
        return reason
    if prctl(_GET_DUMPABLE, 0, 0, 0, 0) != _DUMPABLE:
        return f"others may not open the files of this process: {PROTECTED}"
    try:
        descriptor = os.memfd_create("ringcast", os.MFD_CLOEXEC)
        try:
            os.close(os.open(f"/proc/{os.getpid()}/fd/{descriptor}", os.O_RDWR | os.O_CLOEXEC))
        finally:
            os.close(descriptor)
    except OSError as error:
        return f"memory cannot be shared through /proc: {error.strerror}"
    return ""


def prctl(option: int, *arguments: object) -> int | None:
    """Set or get a property of this process; None where the system has no such call."""
    return None if _prctl is None else int(_prctl(option, *arguments))


def end_with_parent() -> None:
    """Have this process, and the program that it becomes, get SIGTERM when its parent ends; only on Linux."""
    if sys.platform.startswith("linux"):
        prctl(_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def reason_not_read() -> str:
    """Return why no process of this system may read another's memory; empty if no obstacle is known.

    A read also needs the same user, and a process that is not protected (as programs with the set-user bit are).
    """
    if not sys.platform.startswith("linux"):
        return f"{sys.platform} has no process_vm_readv"
    with suppress(OSError, ValueError):
        if int(content(_YAMA)) > 1:
            return f"{_YAMA} leaves that to administrators"
    probe = bytearray(b"?")
    try:
        ForeignMemory(os.getpid()).read(address_of(memoryview(b := bytearray(b"!"))), memoryview(probe))
    except OSError as error:
        return f"process_vm_readv: {error.strerror}"
    return "" if probe == b else "process_vm_readv does not work"


def reason_not_futexes() -> str:
    """Return why no process of this system can share memory as ranks do; empty if no obstacle is known.

    Ranks rely on the order in which x86 processors make writes to shared memory visible.
    """
    if not sys.platform.startswith("linux"):
        return f"{sys.platform} has no futexes"
    if platform.machine() != "x86_64" or ctypes.sizeof(ctypes.c_void_p) != 8:
        return f"it is written for x86-64 processors, not {platform.machine()}"
    if not hasattr(os, "memfd_create"):
        return "this Python has no memfd_create"
    return ""


@lru_cache(maxsize=1)
def _waiting() -> ctypes.CDLL:
    """Return the C library for calls that may wait: other threads go on."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.process_vm_readv.restype = ctypes.c_ssize_t
    libc.process_vm_readv.argtypes = (
        ctypes.c_int,
        ctypes.POINTER(_Piece),
        ctypes.c_ulong,
        ctypes.POINTER(_Piece),
        ctypes.c_ulong,
        ctypes.c_ulong,
    )
    return libc


@lru_cache(maxsize=1)
def _short() -> ctypes.PyDLL:
    """Return the C library for calls that never wait, without letting other threads go on."""
    return ctypes.PyDLL(None)


def address_of(buffer: memoryview) -> int:
    """Return the address of writable memory."""
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))


class Futex:
    """A 32-bit word in shared memory for which processes wait."""

    def __init__(self, word: memoryview) -> None:
        self._wait, self._wake = _waiting().syscall, _short().syscall
        self._word = ctypes.c_uint32.from_buffer(word)
        self.address = ctypes.addressof(self._word)
        self._address = ctypes.c_void_p(self.address)
        self._time = _Timespec()
        self._limit = ctypes.byref(self._time)

    def wait(self, value: int, seconds: float) -> None:
        """Wait while the word has this value, at most `seconds` seconds; return early on a signal."""
        whole = int(seconds)
        self._time.seconds, self._time.nanoseconds = whole, int((seconds - whole) * 1e9)
        self._wait(_FUTEX, self._address, _WAIT, ctypes.c_uint32(value), self._limit, None, 0)

    def wake(self) -> None:
        """Wake all waiting processes."""
        self._wake(_FUTEX, self._address, _WAKE, _ALL, None, None, 0)


class ForeignMemory:
    """The memory of another process of this user."""

    def __init__(self, pid: int) -> None:
        self._pid, self._read = pid, _waiting().process_vm_readv
        self._here, self._there = _Piece(), _Piece()

    def read(self, address: int, view: memoryview) -> None:
        """Fill `view` with the bytes at `address`: one copy, by the kernel.

        Raises:
            PermissionError: this process may not read the other's memory.
            ProcessLookupError: there is no such process any more.
            OSError: there is no such memory (EFAULT).
        """
        size, here, there = len(view), self._here, self._there
        at = address_of(view) if size else 0
        while size:
            here.base, here.size, there.base, there.size = at, size, address, size
            count = self._read(self._pid, here, 1, there, 1, 0)
            if count <= 0:
                number = ctypes.get_errno() if count else errno.EFAULT
                raise OSError(errno.EPERM if number in _BLOCKED else number, os.strerror(number))
            at, address, size = at + count, address + count, size - count


def let_family_read() -> None:
    """Let this process's parent and all its descendants read its memory, also where Yama allows only ancestors that.

    Any process of this user may do so anyway where /proc/sys/kernel/yama/ptrace_scope is 0 or absent.
    """
    prctl(_SET_PTRACER, ctypes.c_ulong(os.getppid()), 0, 0, 0)
