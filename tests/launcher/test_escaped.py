"""A process that left its session, cleared its environment and lost its parent still belongs to its rank."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from ringcast.procs import process_tree
from support.fleets import QUIET
from support.patience import of_patient_launcher, patience

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("nothing_left")]

LAUNCH = [sys.executable, "-m", "ringcast_launcher", "--output", "none"]
LIMIT = 60.0  # seconds; nothing here takes nearly as long
# Starts a program that nothing leads to: `ways` are those to get away. It holds no file of ours.
ESCAPE = """
import os, subprocess, sys
def escape(way):
    end = ["sh", "-c", "echo $$; exec sleep 1000 </dev/null >/dev/null 2>&1"]
    if way == "a child":  # as long as the rank lives
        escaped = subprocess.Popen(end, env={}, cwd="/", start_new_session=True, stdout=subprocess.PIPE)
        return escaped.stdout.readline().decode().strip()
    if way == "twice forked":
        return subprocess.check_output(["env", "-i", "setsid", "-f", *end]).decode().strip()
    if way == "with a child":
        end = "sleep 1000 </dev/null >/dev/null 2>&1 & echo $! $$; exec sleep 1000 </dev/null >/dev/null 2>&1"
        return subprocess.check_output(["env", "-i", "setsid", "-f", "setsid", "-f", "sh", "-c", end]).decode().strip()
    raise ValueError(way)
"""
WAYS = ["a child", "twice forked", "with a child"]


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="rc-") as name:
        (Path(name) / "jobs").mkdir()
        yield Path(name)


def launch(folder: Path, program: str, *arguments: str) -> subprocess.Popen[str]:
    (folder / "program.py").write_text(ESCAPE + program)
    environment = {**os.environ, **QUIET, **of_patient_launcher(), "TMPDIR": str(folder / "jobs")}
    command = [*LAUNCH, *arguments, str(folder / "program.py")]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def read(launcher: subprocess.Popen[str], count: int) -> list[int]:
    """Return the process numbers that the ranks have told, after as many lines."""
    assert launcher.stdout is not None
    return [int(word) for _ in range(count) for word in launcher.stdout.readline().split()]


def hold(pids: list[int]) -> list[int]:
    """Return files that can be read when these processes have ended."""
    return [os.pidfd_open(pid) for pid in pids]


def assert_end(held: list[int], seconds: float = LIMIT) -> None:
    try:
        deadline = time.monotonic() + seconds
        for file in held:
            poller = select.poll()  # by then there may be more files than select takes
            poller.register(file, select.POLLIN)
            assert poller.poll(1000 * max(0.0, deadline - time.monotonic())), "it lives"
    finally:
        for file in held:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(file, signal.SIGKILL)
            os.close(file)


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("way", WAYS)
def test_nothing_escapes_from_a_launcher_that_is_killed(folder: Path, way: str, ranks: int) -> None:
    program = f"print(escape({way!r}), flush=True)\nimport time; time.sleep(1000)"
    launcher = launch(folder, program, "-n", str(ranks))
    held = hold(read(launcher, ranks))
    launcher.kill()
    launcher.communicate()
    assert_end(held)
    gone(folder)


def test_nothing_escapes_while_a_launcher_is_killed(folder: Path) -> None:
    """Ranks that start such programs all the time: also one that was started last, and has told nobody."""
    program = f"""
with open({str(folder / "told")!r}, "a") as file:
    print("begins", flush=True)
    while True:
        pid = escape("twice forked")
        print(pid, file=file, flush=True)
"""
    launcher = launch(folder, program, "-n", "2")
    assert launcher.stdout is not None
    assert [launcher.stdout.readline() for _ in range(2)] == ["begins\n"] * 2
    sleepers = {"name": "sleep", "args": ["sleep", "1000"]}
    while (folder / "told").read_text().count("\n") < 20:
        time.sleep(0.01)
    watchdog = child(launcher.pid, "ringcast_launcher.system.watchdog")
    imprints = {imprint(int(pid)) for pid in (folder / "told").read_text().split()}
    launcher.kill()
    launcher.communicate()
    watchdog.wait(patience(LIMIT))
    left = [
        p.pid
        for p in psutil.process_iter(["name"])
        if p.info["name"] == sleepers["name"] and imprint(p.pid) in imprints
    ]
    held = hold(left)
    assert_end(held, 0)
    assert left == []


def test_what_a_rank_has_let_escape_ends_before_the_others_hear_of_its_end(folder: Path) -> None:
    program = f"""
import ringcast
comm = ringcast.init()
if comm.rank == 1:
    with open({str(folder / "told")!r}, "w") as file:
        file.write(escape("twice forked"))
    os.kill(os.getpid(), 9)
try:
    while True:
        comm.barrier()
except (ringcast.PeerFailed, ringcast.Revoked):
    comm.revoke()
pid = open({str(folder / "told")!r}).read()
print(os.path.exists(f"/proc/{{pid}}") and " Z " not in open(f"/proc/{{pid}}/stat").read(), flush=True)
comm = comm.shrink()
comm.barrier()
"""
    launcher = launch(folder, program, "-n", "3", "--on-failure", "continue")
    out, err = launcher.communicate(timeout=patience(LIMIT))
    assert launcher.returncode == 0, err
    assert out.splitlines() == ["False"] * 2


def test_a_watchdog_is_no_member_of_the_job_in_which_its_launcher_runs(folder: Path) -> None:
    """A job in a job: when the outer launcher is killed, the watchdog of the inner one ends the inner one."""
    inner = folder / "inner.py"
    inner.write_text(ESCAPE + "print(escape('twice forked'), flush=True)\nimport time; time.sleep(1000)")
    program = f"""
command = [sys.executable, "-m", "ringcast_launcher", "--output", "none", "-n", "2", {str(inner)!r}]
own = {{name: value for name, value in os.environ.items() if not name.startswith("RINGCAST_")}}
raise SystemExit(subprocess.run(command, env=own).returncode)
"""
    launcher = launch(folder, program, "-n", "1")
    held = hold(read(launcher, 2))
    rank = child(launcher.pid, "program.py")
    within = child(rank.pid, "inner.py")
    deadline = time.monotonic() + patience(LIMIT)
    while imprint(child(within.pid, "ringcast_launcher.system.watchdog").pid) == imprint(rank.pid):
        assert time.monotonic() < deadline, "it carries the imprint of the outer job"
        time.sleep(0.01)
    launcher.kill()
    launcher.communicate()
    assert_end(held)


def test_imprints_are_handed_on_and_differ(folder: Path) -> None:
    program = "print(os.getpid(), escape('twice forked'), flush=True)\nimport time; time.sleep(1000)"
    first, second = launch(folder, program, "-n", "2"), launch(folder, program, "-n", "1")
    told = [read(first, 1), read(first, 1), read(second, 1)]
    carried = [{imprint(pid) for pid in pids} for pids in told]
    watchdogs = [imprint(child(one.pid, "ringcast_launcher.system.watchdog").pid) for one in (first, second)]
    for launcher in first, second:
        launcher.terminate()
        launcher.communicate()
    assert [len(one) for one in carried] == [1, 1, 1]
    assert len(set.union(*carried)) == 3
    assert not set(watchdogs) & set.union(*carried)


def test_without_imprints_nobody_is_a_member_by_one() -> None:
    assert process_tree.members((), (), range(0)) == set()
    assert process_tree.members((), (), process_tree.new_imprints()) == set()


def imprint(pid: int) -> str:
    """Return the limit on file locks of a process; "" if it is gone."""
    try:
        lines = Path(f"/proc/{pid}/limits").read_text().splitlines()
    except OSError:
        return ""
    return next((line.split()[3] for line in lines if line.startswith("Max file locks")), "")


def child(parent: int, words: str) -> psutil.Process:
    (found,) = [one for one in psutil.Process(parent).children() if words in " ".join(one.cmdline())]
    return found


def gone(folder: Path) -> None:
    """Wait until the watchdog has removed the directory."""
    deadline = time.monotonic() + patience(LIMIT)
    while os.listdir(folder / "jobs"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
