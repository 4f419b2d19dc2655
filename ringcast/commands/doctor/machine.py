"""Checks of one machine: processors, memory, limits, files, and access to other processes' memory."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import resource
import shutil
import socket
import tempfile
from pathlib import Path

import psutil

from ringcast._util import socket_path
from ringcast.commands.doctor.finding import Finding, fail, ok, warn
from ringcast.commands.doctor.question import Question
from ringcast.config.worker import directories
from ringcast.monitoring import jobs
from ringcast.net import fd_limits

RANK_MEMORY = 200_000_000  # bytes of a rank that imports numpy and ringcast and does a little
RANK_THREADS = 6  # of a rank without those of its numerical libraries
SHARED_MEMORY = 64 << 20  # bytes; what a container gets if nobody asks for more
TEMPORARY = 50_000_000  # bytes
_FIX = "set TMPDIR to a directory on a local disk"

_YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")


def check(question: Question) -> list[Finding]:
    """Return what was found on this machine."""
    shared = Path("/dev/shm")
    return [
        judge_processors(len(os.sched_getaffinity(0)), question.here),
        judge_memory(psutil.virtual_memory().available, question.here),
        judge_files(_hard(resource.RLIMIT_NOFILE), question.size),
        judge_processes(None if os.getuid() == 0 else _hard(resource.RLIMIT_NPROC), _threads(), question.here),
        judge_shared_memory(shutil.disk_usage(shared).total if shared.is_dir() else None),
        check_place(),
        judge_peeking(int(_YAMA.read_text()) if _YAMA.exists() else None, _readv_error()),
    ]


def judge_processors(count: int, ranks: int) -> Finding:
    """Judge the processors that this process may use."""
    if ranks > count:
        text = f"{count} for {ranks} ranks, which will wait for each other"
        return warn("processors", text, "start fewer ranks on this host")
    return ok("processors", f"{count} for {_ranks(ranks)}")


def judge_memory(available: int, ranks: int) -> Finding:
    """Judge the free memory in bytes."""
    if available < ranks * RANK_MEMORY:
        text = f"{_size(available)} are free for {_ranks(ranks)}"
        return warn("memory", text, f"start fewer ranks; each needs some {_size(RANK_MEMORY)} before it has any data")
    return ok("memory", f"{_size(available)} are free")


def judge_files(hard: int | None, size: int) -> Finding:
    """Judge the hard limit on open files (None: there is none) for a job of `size` ranks."""
    least, most = fd_limits.files_needed(fd_limits.neighbours(size)), fd_limits.files_needed(size - 1)
    fix = "raise the hard limit: LimitNOFILE= of the service, or /etc/security/limits.conf"
    if hard is not None and hard < least:
        return fail("open files", f"{hard} are allowed; a rank of {size} needs {least}", fix)
    if hard is not None and hard < most:
        return warn("open files", f"{hard} are allowed; a rank that talks to all {size} needs {most}", fix)
    return ok("open files", f"{'unlimited' if hard is None else hard} are allowed; {most} are enough")


def judge_processes(hard: int | None, used: int, ranks: int) -> Finding:
    """Judge the limit on processes and threads of this user (None: there is none), of which `used` exist."""
    needed = ranks * RANK_THREADS
    if hard is not None and hard - used < needed:
        text = f"{hard} are allowed and {used} there; {_ranks(ranks)} need {needed} more"
        return fail("processes", text, "raise the limit (ulimit -u; TasksMax= of the service), or end some")
    return ok("processes", f"{'unlimited' if hard is None else hard} are allowed; {used} are there")


def judge_shared_memory(total: int | None) -> Finding:
    """Judge the size of /dev/shm in bytes; None: there is none."""
    if total is None or total < SHARED_MEMORY:
        text = "there is none" if total is None else f"has {_size(total)}"
        return warn("/dev/shm", text, "mount -o remount,size=1g /dev/shm, or docker run --shm-size 1g")
    return ok("/dev/shm", f"has {_size(total)}")


def check_place() -> Finding:
    """Look whether there is a place for the directory of a job."""
    if problem := socket_path.reason_not(directories()[0]):
        return fail("temporary files", problem, _FIX)
    folders = jobs.bases()
    return check_temporary(folders[0]) if folders else fail("temporary files", "all paths are too long", _FIX)


def check_temporary(base: str) -> Finding:
    """Look whether a job can have its directory of sockets: one that others may not enter, in which sockets work."""
    try:
        with tempfile.TemporaryDirectory(prefix="ringcast-doctor-", dir=base) as made:
            mode = os.stat(made).st_mode & 0o777
            with socket.socket(socket.AF_UNIX) as probe:
                probe.bind(f"{made}/socket")
            free = shutil.disk_usage(made).free
    except OSError as error:
        return fail("temporary files", f"{base}: {error.strerror or error}", _FIX)
    if mode & 0o077:
        return fail("temporary files", f"{base}: private directories get mode {mode:o}", _FIX)
    if free < TEMPORARY:
        return warn("temporary files", f"{base} has {_size(free)} left", "remove old files")
    return ok("temporary files", f"{base}: private directories and sockets work, {_size(free)} are free")


def judge_peeking(scope: int | None, error: int) -> Finding:
    """Judge whether a process may read another one's memory: Yama's scope, and the errno of process_vm_readv (0: fine).

    Nothing fails without; ranks on one host then exchange large messages through sockets.
    """
    if error:
        text = f"process_vm_readv: {os.strerror(error)}"
        return warn("ptrace", text, "in a container: --cap-add SYS_PTRACE; messages go through sockets otherwise")
    if scope is not None and scope > 1:
        text = f"Yama's ptrace_scope is {scope}: only administrators may read other processes"
        return warn("ptrace", text, "sysctl kernel.yama.ptrace_scope=1; messages go through sockets otherwise")
    return ok("ptrace", f"process_vm_readv works{'' if scope is None else f', ptrace_scope is {scope}'}")


def _hard(which: int) -> int | None:
    hard = resource.getrlimit(which)[1]
    return None if hard == resource.RLIM_INFINITY else hard


def _threads() -> int:
    """Return the threads of this user, which is what the limit on processes counts."""
    count, user = 0, os.getuid()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            count += process.num_threads() if process.uids().real == user else 0
    return count


class _Piece(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def _readv_error() -> int:
    """Return the errno of reading this process's own memory by process_vm_readv; 0 if that works."""
    source, target = ctypes.create_string_buffer(b"x"), ctypes.create_string_buffer(1)
    theirs, mine = _Piece(ctypes.addressof(source), 1), _Piece(ctypes.addressof(target), 1)
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        done = libc.process_vm_readv(os.getpid(), ctypes.byref(mine), 1, ctypes.byref(theirs), 1, 0)
    except AttributeError:
        return errno.ENOSYS
    return 0 if done == 1 else ctypes.get_errno()


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def _ranks(count: int) -> str:
    return "1 rank" if count == 1 else f"{count} ranks"
