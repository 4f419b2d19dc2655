"""Arrays that ranks of real jobs share: ranks that are killed leave nothing, and limits of the system are errors."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from support import needs
from support.fleets import QUIET
from support.patience import patience
from support.places import SUPPORT
from support.seccomp import MEMFD_CREATE

pytestmark = [needs.shared_memory, pytest.mark.usefixtures("nothing_left")]

LAUNCH = [sys.executable, "-m", "ringcast_launcher"]
LIMIT = 110.0  # seconds

KILLED = """
import os, signal, sys, traceback

import numpy as np
import ringcast
from ringcast.collectives import shared_memory
from ringcast.procs import host_memory

FILES = shared_memory.__file__, host_memory.__file__


def dies_at(place):
    \"\"\"Have this process be killed at a line of the modules that make the memory.\"\"\"
    left = iter(range(place, -1, -1))

    def line(frame, event, argument):
        if event == "line" and not next(left):
            os.kill(os.getpid(), signal.SIGKILL)
        return line

    sys.settrace(lambda frame, event, argument: line if frame.f_code.co_filename in FILES else None)


def use(comm):
    root = comm.size - 1
    table = comm.bcast_shared(np.arange(500_000) if comm.rank == root else None, root)
    assert table[-1] == 499_999
    counts = comm.shared_array(500_000, int, fill=1)
    assert counts.sum() == 500_000


def left():
    maps = open("/proc/self/maps").read()
    files = [os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")]
    return maps.count("ringcast-array") + sum("ringcast-array" in name for name in files)


comm = ringcast.init()
first, places = sys.argv[1] == "first", map(int, sys.argv[2:])
for place in places:
    if comm.rank == (0 if first else comm.size - 1):
        dies_at(place)
    try:
        while True:
            use(comm)
    except (ringcast.PeerFailed, ringcast.Revoked) as error:
        traceback.clear_frames(error.__traceback__)  # which have arrays
    comm = comm.shrink()
    use(comm)
assert comm.allreduce(left()) == 0
print("nothing is left")
"""

LIMITED = """
import os, resource, sys

import ringcast

comm = ringcast.init()
comm.shared_array(1000)
comm.barrier()
kind, room = sys.argv[1], int(sys.argv[2])
if comm.rank == int(sys.argv[3]):
    limit = room
    if kind == "RLIMIT_AS":
        limit += int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    if kind == "RLIMIT_NOFILE":
        limit = max(int(name) for name in os.listdir("/proc/self/fd")) - 1
    number = getattr(resource, kind)
    resource.setrlimit(number, (limit, resource.getrlimit(number)[1]))
try:
    comm.shared_array(100_000_000, "u1")
except ringcast.SharedMemoryError as error:
    print(error.peer, error.cause)
comm.barrier()
"""

DENIED = """
import ringcast

comm = ringcast.init()
try:
    print(comm.shared_array(3).sum())
except ringcast.SharedMemoryError as error:
    print(error.cause)
"""


@contextmanager
def group_of(limit: int) -> Iterator[Path]:
    """Make a control group with a limit of its memory, of either version; without one the test is skipped."""
    first = Path("/sys/fs/cgroup/memory")
    folder = (first if first.is_dir() else first.parent) / f"ringcast-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        needs.without(f"no control group can be made: {error}")
    try:
        file = folder / ("memory.limit_in_bytes" if first.is_dir() else "memory.max")
        if not file.exists():
            needs.without(f"{folder.parent} does not limit memory")
        file.write_text(str(limit))
        yield folder
    finally:
        folder.rmdir()


def launch(folder: Path, program: str, *arguments: str, before: Sequence[str] = (), **more: str) -> list[str]:
    """Run a job, which must end well, and return what it printed."""
    file = folder / "program.py"
    file.write_text(program)
    options = [*arguments[: arguments.index("--")], str(file), *arguments[arguments.index("--") + 1 :]]
    done = subprocess.run(
        [*before, *LAUNCH, "--timeout", f"{patience(100):g}", "--output", "none", *options],
        env={**os.environ, **QUIET, **more},
        capture_output=True,
        text=True,
        timeout=patience(LIMIT),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("shift", range(0, 12, 2))
@pytest.mark.parametrize("who", ["first", "last"])
def test_a_rank_that_is_killed_at_any_line_leaves_nothing(who: str, shift: int, tmp_path: Path) -> None:
    places = [str(shift + step) for step in range(0, 160, 25)]
    job = "-n", str(len(places) + 2), "--on-failure", "continue"
    before = set(os.listdir("/dev/shm"))
    assert launch(tmp_path, KILLED, *job, "--", who, *places) == ["nothing is left"] * 2
    assert {name for name in os.listdir("/dev/shm") if "ringcast" in name} <= before


@pytest.mark.parametrize(
    ("kind", "room", "victim", "words"),
    [
        ("RLIMIT_FSIZE", 1 << 20, 0, "File too large"),
        ("RLIMIT_AS", 50 << 20, 0, "Cannot allocate memory"),
        ("RLIMIT_AS", 50 << 20, 2, "Cannot allocate memory"),
        ("RLIMIT_NOFILE", 0, 0, "memfd_create: Too many open files"),
        ("RLIMIT_NOFILE", 0, 2, "Too many open files"),
    ],
)
def test_a_limit_of_one_rank_is_an_error_of_all(kind: str, room: int, victim: int, words: str, tmp_path: Path) -> None:
    printed = launch(tmp_path, LIMITED, "-n", "3", "--", kind, str(room), str(victim))
    assert printed == [f"{victim} {words}"] * 3


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOSYS])
def test_a_container_that_forbids_memfd_is_an_error_that_says_so(number: int, tmp_path: Path) -> None:
    before = sys.executable, str(SUPPORT / "seccomp.py"), str(MEMFD_CREATE), str(number)
    printed = launch(tmp_path, DENIED, "-n", "2", "--", before=before)
    assert printed == [f"memfd_create: {os.strerror(number)}"] * 2


def test_on_a_mac_only_one_rank_of_a_host_can_have_one(tmp_path: Path) -> None:
    path = {"PYTHONPATH": str(SUPPORT / "elsewhere")}
    assert launch(tmp_path, DENIED, "-n", "1", "--", **path) == ["0.0"]
    printed = launch(tmp_path, DENIED, "-n", "2", "--", **path)
    assert (
        printed
        == ["darwin has no memfd_create; one rank on each host can have such arrays, and bcast works everywhere"] * 2
    )


def test_the_limit_of_a_control_group_is_an_error(tmp_path: Path) -> None:
    """Else the kernel would kill a rank."""
    needs.root()
    program = DENIED.replace("shared_array(3)", "shared_array(500 << 20, 'u1')")
    with group_of(400 << 20) as folder:
        before = "sh", "-c", f'echo $$ > {folder}/cgroup.procs && exec "$@"', "sh"
        printed = launch(tmp_path, program, "-n", "2", "--", before=before)
    assert len(printed) == 2
    assert all(re.fullmatch(r"only [\d.]+ \w+ of memory are free", line) for line in printed), printed
