"""Jobs where Linux's own things are missing, as on a Mac: they run, and a rank that fails still ends them.

`support/elsewhere` takes these things away from all of Python's processes but the watchdog, which reads no PYTHONPATH.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support import needs
from support.fleets import QUIET
from support.patience import patience
from support.places import SUPPORT

pytestmark = pytest.mark.usefixtures("nothing_left")

LIMIT = 110.0  # seconds; nothing here takes nearly as long
LAUNCH = ["-m", "ringcast_launcher", "-n", "3"]
PROGRAM = """
import os, signal, subprocess, sys
import numpy as np
import ringcast

comm = ringcast.init()
assert sys.platform == "darwin" and not hasattr(os, "eventfd") and not os.path.exists("/proc/self")
total = comm.allreduce(np.full(300_000, comm.rank))
assert (total == 3).all()
if comm.rank == 1 and "raise" in sys.argv:
    raise ValueError("a wrong number")
if comm.rank == 1 and "kill" in sys.argv:
    os.kill(os.getpid(), signal.SIGKILL)
if comm.rank == 1 and "stop" in sys.argv:
    os.kill(os.getpid(), signal.SIGSTOP)
if comm.rank == 1 and "child" in sys.argv:
    subprocess.Popen(["sleep", "1000"])  # holds the output of its rank
    raise ValueError("a wrong number")
comm.barrier()
print("done")
"""
CLUSTER = """
import os, signal
import ringcast

def killed(comm):
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    comm.barrier()

with ringcast.cluster(3) as cluster:
    print(cluster.run(lambda comm: comm.allreduce(comm.rank)))
    try:
        cluster.run(killed)
    except ringcast.RunFailed as error:
        print(str(error).partition("\\n")[0])
"""


def python(*argv: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run Python as it is where Linux's own things are missing."""
    environment = {**os.environ, **QUIET, "PYTHONPATH": str(SUPPORT / "elsewhere"), "TMPDIR": str(cwd)}
    return subprocess.run(
        [sys.executable, *argv],
        env=environment,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=patience(LIMIT),
        check=False,
    )


@pytest.fixture
def folder(short_path: Path) -> Path:
    (short_path / "program.py").write_text(PROGRAM)
    return short_path


@pytest.mark.parametrize("options", [[], ["--transport", "ipc"], ["--transport", "tcp"]], ids=" ".join)
def test_a_job_runs(folder: Path, options: list[str]) -> None:
    done = python(*LAUNCH, *options, "program.py", cwd=folder)
    assert sorted(done.stdout.splitlines()) == ["[0] done", "[1] done", "[2] done"], done.stderr
    assert done.returncode == 0


def test_a_rank_that_raises_ends_the_job(folder: Path) -> None:
    done = python(*LAUNCH, "program.py", "raise", cwd=folder)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ringcast-launch: rank 1 (")
    assert last.endswith("failed: ValueError: a wrong number")
    assert "done" not in done.stdout


def test_a_rank_that_is_killed_ends_the_job(folder: Path) -> None:
    done = python(*LAUNCH, "program.py", "kill", cwd=folder)
    assert done.returncode == 137
    assert done.stderr.splitlines()[-1].endswith("failed: killed by SIGKILL")
    assert "done" not in done.stdout


def test_a_rank_that_is_stopped_is_ended_by_the_timeout(folder: Path) -> None:
    done = python(*LAUNCH, "--timeout", "20", "program.py", "stop", cwd=folder)  # on Linux it fails within ten
    assert done.returncode == 124
    assert done.stderr.splitlines()[-1].startswith("ringcast-launch: timeout: the job did not end within 20 s")
    assert "no stacks: darwin has no signal for them" in done.stderr


def test_what_a_rank_has_started_ends_with_it(folder: Path) -> None:
    done = python(*LAUNCH, "program.py", "child", cwd=folder)  # waits for the end of the output too
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith("failed: ValueError: a wrong number")


@pytest.mark.parametrize(
    ("transport", "remedy"),
    [("shm", "darwin has no futexes; use ipc"), ("sockets", "darwin has no epoll; use tcp")],
)
def test_a_transport_that_is_not_there_is_refused(folder: Path, transport: str, remedy: str) -> None:
    done = python(*LAUNCH, "--transport", transport, "program.py", cwd=folder)
    refusal = f"ringcast-launch: --transport {transport}: {remedy}, or leave the choice to the launcher\n"
    assert (done.returncode, done.stderr) == (2, refusal)


def test_why_memory_is_not_shared_is_told(folder: Path) -> None:
    done = python(*LAUNCH, "--verbose", "program.py", cwd=folder)
    assert "ranks talk over ipc; they cannot share memory: darwin has no futexes" in done.stderr


@pytest.mark.parametrize("backend", ["processes", "threads"])
def test_a_function_runs_on_ranks(folder: Path, backend: str) -> None:
    call = f"print(ringcast.run(lambda comm: comm.allgather(comm.rank), 3, backend={backend!r}))"
    done = python("-c", f"import ringcast; {call}", cwd=folder)
    assert done.stdout == "[[0, 1, 2], [0, 1, 2], [0, 1, 2]]\n", done.stderr


def test_a_cluster_names_the_rank_that_was_killed(folder: Path) -> None:
    (folder / "cluster.py").write_text(CLUSTER)
    done = python("cluster.py", cwd=folder)
    assert done.stdout == "[3, 3, 3]\nrank 1: killed by SIGKILL\n", done.stderr


def test_threads_of_a_rank_may_all_make_calls(folder: Path) -> None:
    program = "comm = ringcast.init(threads='multiple'); print(comm.allreduce(1))"
    done = python(*LAUNCH, "--output", "none", "python", "-c", f"import ringcast; {program}", cwd=folder)
    assert done.stdout == "3\n3\n3\n", done.stderr


TREE = """
import os, subprocess, sys
from ringcast.procs import process_tree

os.setsid()
shell = subprocess.Popen(["sh", "-c", "sleep 1000 & echo $!; wait"], start_new_session=True, stdout=subprocess.PIPE)
inner = int(shell.stdout.readline())
found = process_tree.members({shell.pid}, ())
assert found == {shell.pid, inner}, (found, shell.pid, inner)
process_tree.kill(lambda: process_tree.members({shell.pid}, ()))
shell.wait()  # killed, or at its end because the inner one was killed first
while process_tree.members({inner}, ()):
    pass  # until its new parent has taken note of its end
print("none left")
"""


def test_processes_are_found_by_what_ps_prints(folder: Path) -> None:
    needs.programs([] if shutil.which("ps") else ["ps"], "procps")
    done = python("-c", TREE, cwd=folder)
    assert done.stdout == "none left\n", done.stderr


def test_windows_is_refused_in_one_sentence(tmp_path: Path) -> None:
    sentence = "ringcast does not run on Windows: use Linux, for instance in WSL"
    disguise = "import sys; sys.platform = 'win32'; "
    library = subprocess.run([sys.executable, "-c", f"{disguise}import ringcast"], capture_output=True, text=True)
    assert library.stderr.splitlines()[-1] == f"ImportError: {sentence}"
    command = [sys.executable, "-c", f"{disguise}import ringcast_launcher"]
    launcher = subprocess.run(command, capture_output=True, text=True)
    assert (launcher.returncode, launcher.stderr) == (1, f"ringcast-launch: {sentence}\n")
