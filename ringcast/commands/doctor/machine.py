"""Check one machine: processors, memory, limits, files, and access to other processes' memory."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import socket
import tempfile

import psutil

from ringcast._util import socket_path
from ringcast.commands.doctor.finding import Finding, fail, ok, warn
from ringcast.commands.doctor.question import Question
from ringcast.config.worker import directories
from ringcast.monitoring import jobs
from ringcast.net import fd_limits
from ringcast.procs.libc import reason_not_read, reason_not_shared
from ringcast.procs.portable import processors

RANK_MEMORY = 200_000_000  # bytes of a small rank that imports numpy and ringcast
RANK_THREADS = 6  # of a rank without those of its numerical libraries
TEMPORARY = 50_000_000  # bytes
_FIX = "set TMPDIR to a directory on a local disk"


def check(question: Question) -> list[Finding]:
    """Return the findings of this machine."""
    return [
        judge_processors(processors(), question.here),
        judge_memory(psutil.virtual_memory().available, question.here),
        judge_files(_hard(resource.RLIMIT_NOFILE), question.size),
        judge_processes(None if os.getuid() == 0 else _hard(resource.RLIMIT_NPROC), _threads(), question.here),
        judge_shared_memory(reason_not_shared()),
        check_place(),
        judge_reading(reason_not_read()),
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
    """Judge the limit on processes and threads of this user (None: no limit); `used` of them exist."""
    needed = ranks * RANK_THREADS
    if hard is not None and hard - used < needed:
        text = f"{hard} are allowed and {used} there; {_ranks(ranks)} need {needed} more"
        return fail("processes", text, "raise the limit (ulimit -u; TasksMax= of the service), or end some")
    return ok("processes", f"{'unlimited' if hard is None else hard} are allowed; {used} are there")


def judge_shared_memory(reason: str) -> Finding:
    """Judge the reason why processes cannot share memory; "" if they can."""
    if reason:
        return warn("shared memory", f"{reason}; ranks of one host use ipc", "nothing fails: it is slower")
    return ok("shared memory", "works, with any size of /dev/shm")


def check_place() -> Finding:
    """Check that there is a place for the directory of a job."""
    if problem := socket_path.reason_not(directories()[0]):
        return fail("temporary files", problem, _FIX)
    folders = jobs.bases()
    return check_temporary(folders[0]) if folders else fail("temporary files", "all paths are too long", _FIX)


def check_temporary(base: str) -> Finding:
    """Check that a job can have its directory of sockets: closed to other users, on a file system with sockets."""
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


def judge_reading(reason: str) -> Finding:
    """Judge the reason why a process may not read another one's memory; "" if it may.

    A job runs without this right: ranks of one host then copy large messages through shared memory, twice.
    """
    if reason:
        fix = "in a container: --cap-add SYS_PTRACE; with Yama: sysctl kernel.yama.ptrace_scope=1"
        return warn("ptrace", f"{reason}; large messages on one host are copied twice", fix)
    return ok("ptrace", "process_vm_readv works")


def _hard(which: int) -> int | None:
    hard = resource.getrlimit(which)[1]
    return None if hard == resource.RLIM_INFINITY else hard


def _threads() -> int:
    """Return the number of this user's threads, as the limit on processes counts them."""
    count, user = 0, os.getuid()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            count += process.num_threads() if process.uids().real == user else 0
    return count


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def _ranks(count: int) -> str:
    return "1 rank" if count == 1 else f"{count} ranks"
