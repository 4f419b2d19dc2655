"""Ranks whose threads, sockets and waits gevent or eventlet has replaced are refused, and none hangs."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

import ringcast
from ringcast.errors import UsageError
from ringcast.procs import green_threads
from support.patience import patience

pytestmark = pytest.mark.usefixtures("nothing_left")

PATCHED = """
from gevent import monkey
monkey.patch_all()
import ringcast
ringcast.init()
"""
PATCHED_LATE = """
import ringcast
comm = ringcast.init()
from gevent import monkey
monkey.patch_all()
comm.allreduce(1)
"""
AS_ADVISED = """
import gevent
from gevent import monkey
monkey.patch_all(thread=False, socket=False, select=False, queue=False, time=False)
import ringcast
comm = ringcast.init()
ticks = []
other = gevent.spawn(ticks.append, 1)
total = comm.allreduce(comm.rank + 1) + comm.iallreduce(1).wait()
other.join()
print("total", total, ticks)
"""


def launch(folder: Path, program: str, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text(program)
    command = [sys.executable, "-W", "ignore", "-m", "ringcast_launcher", *options, "program.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=patience(60), check=False)


def test_pythons_own_calls_are_accepted() -> None:
    assert green_threads.patched_by() is None
    green_threads.refuse("rank 0")


@pytest.mark.parametrize("module", ["gevent.hub", "eventlet.greenthread", "gevent", "eventlet"])
def test_each_library_is_found_and_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    def sleep(seconds: float) -> None:
        raise AssertionError(seconds)

    sleep.__module__ = module
    monkeypatch.setattr(time, "sleep", sleep)
    library = module.partition(".")[0]
    with pytest.raises(UsageError, match=rf"rank 3: {library} has replaced .*; do not patch this process, or "):
        green_threads.refuse("rank 3")
    with pytest.raises(UsageError, match=f"a cluster of processes: {library} has replaced"):
        ringcast.cluster(2)


def test_wrappers_of_debuggers_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    def sleep(seconds: float) -> None:
        raise AssertionError(seconds)

    sleep.__module__ = "geventually.profiler"
    monkeypatch.setattr(time, "sleep", sleep)
    assert green_threads.patched_by() is None


@pytest.mark.live
@pytest.mark.parametrize("transport", ["shm", "sockets", "tcp"])
@pytest.mark.parametrize("program", [PATCHED, PATCHED_LATE], ids=["before init", "after init"])
def test_a_rank_on_gevents_calls_ends_with_the_reason(tmp_path: Path, transport: str, program: str) -> None:
    done = launch(tmp_path, program, "-n", "2", "--transport", transport)
    assert done.returncode == 1, done.stderr
    assert "UsageError: " in done.stderr
    assert "gevent has replaced Python's threads, sockets and waits" in done.stderr


@pytest.mark.live
@pytest.mark.parametrize("transport", ["shm", "sockets", "tcp"])
def test_a_rank_works_beside_gevent_as_the_error_advises(tmp_path: Path, transport: str) -> None:
    done = launch(tmp_path, AS_ADVISED, "-n", "2", "--transport", transport)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[0] total 5 [1]", "[1] total 5 [1]"]


def test_one_rank_alone_needs_no_threads(tmp_path: Path) -> None:
    program = PATCHED + "\nprint(ringcast.init().allreduce(2))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=patience(60), check=False
    )
    assert (done.stdout, done.returncode) == ("2\n", 0), done.stderr
