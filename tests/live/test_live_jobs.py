"""Jobs seen from outside while they run and when they have failed: `ringcast ps`, tables, stacks, last words."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from ringcast.monitoring import jobs
from ringcast.monitoring.live import look
from ringcast_launcher.hosts import stacks
from support.patience import patience
from support.terminals import on_terminal

pytestmark = pytest.mark.usefixtures("nothing_left")

LIMIT = 60  # seconds until a test gives up; nothing here takes nearly as long

UNTIL_GO = """
import os, time, ringcast
comm = ringcast.init()
comm.allreduce(comm.rank)
while comm.rank == 0 and not os.path.exists("go"):
    time.sleep(0.01)
comm.barrier()
"""


@pytest.fixture
def tmp_path(short_path: Path) -> Path:
    """A short one: the directories of jobs are looked for in it."""
    return short_path


class Outside:
    """Jobs in a folder of their own, and the commands that look for them there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "jobs").mkdir()
        self._environment = {**os.environ, "TMPDIR": str(folder / "jobs"), "OMP_NUM_THREADS": "1"}
        self._started: list[subprocess.Popen[str]] = []

    def launch(self, *arguments: str, program: str) -> subprocess.Popen[str]:
        (self.folder / "program.py").write_text(program)
        command = [sys.executable, "-m", "ringcast_launcher", *arguments, "program.py"]
        process = subprocess.Popen(
            command,
            cwd=self.folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._started.append(process)
        return process

    def ps(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "ringcast", "ps", *arguments]
        return subprocess.run(
            command, env=self._environment, capture_output=True, text=True, timeout=patience(LIMIT), check=False
        )

    def state(self, launcher: subprocess.Popen[str], wanted: Callable[[list[dict[str, Any]]], bool]) -> dict[str, Any]:
        """Return what ps tells of a job as soon as its ranks are as wanted."""
        deadline = time.monotonic() + patience(LIMIT)
        while time.monotonic() < deadline:
            for job in jobs.running():
                if job.launcher == launcher.pid and wanted(states := [asdict(state) for state in look(job)]):
                    return {"job": job.name, **asdict(job), "ranks": states}
            assert launcher.poll() is None, launcher.communicate()
        raise AssertionError("the ranks have never been as wanted")

    def end(self, launcher: subprocess.Popen[str]) -> tuple[int, list[str]]:
        """Return the exit code and the lines of standard error."""
        _, errors = launcher.communicate(timeout=patience(LIMIT))
        return launcher.returncode, errors.splitlines()

    def close(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.communicate()


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Outside]:
    made = Outside(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "jobs"))
    yield made
    made.close()


def in_barrier(*ranks: int) -> Callable[[list[dict[str, Any]]], bool]:
    """Whether these ranks are in the barrier of UNTIL_GO, and have written down that they wait."""
    return lambda states: all(states[r]["operation"] == "#2 barrier" and states[r]["waits"] for r in ranks)


def test_ps_shows_a_job_while_it_runs(outside: Outside) -> None:
    assert outside.ps().returncode == 1
    assert outside.ps().stderr.startswith("ringcast ps: no job of yours runs on this machine")
    launcher = outside.launch("-n", "3", program=UNTIL_GO)
    job = outside.state(launcher, in_barrier(1, 2))
    first, second, third = job["ranks"]
    assert (job["launcher"], len(job["pids"])) == (launcher.pid, 3)
    assert (first["state"], first["operation"], first["waiting_for"]) == ("done", "#1 allreduce", ())
    assert (second["state"], second["rounds"]) == ("running", 3)
    assert 0 in second["waiting_for"] + third["waiting_for"]
    assert second["since"] >= 1
    assert all(rank["memory"] > 1_000_000 and rank["pid"] == pid for rank, pid in zip(job["ranks"], job["pids"]))  # noqa: B905
    for arguments in [], [job["job"]], [str(launcher.pid)]:
        heading, columns, *rows = outside.ps(*arguments).stdout.splitlines()
        assert heading.startswith(f"job {job['job']}: 3 ranks for ")
        assert columns.split() == ["rank", "pid", "operation", "round", "waits", "for", "since", "memory", "cpu"]
        assert [row.split()[:2] for row in rows] == [[str(r), str(pid)] for r, pid in enumerate(job["pids"])]
        assert "after #1 allreduce" in rows[0]
    none = outside.ps("none-such")
    assert none.returncode == 1
    assert none.stderr == f"ringcast ps: there is no job none-such; there are: {job['job']} (launcher {launcher.pid})\n"
    (outside.folder / "go").touch()
    assert outside.end(launcher)[0] == 0
    assert outside.ps().returncode == 1


def test_ps_watches_a_job_until_it_ends(outside: Outside) -> None:
    launcher = outside.launch("-n", "2", program=UNTIL_GO)
    outside.state(launcher, in_barrier(1))
    command = [sys.executable, "-m", "ringcast", "ps"]
    with on_terminal("--watch", str(launcher.pid), command=command, TMPDIR=str(outside.folder / "jobs")) as watching:
        watching.wait_for("#2 barrier", times=2)
        (outside.folder / "go").touch()
        assert outside.end(launcher)[0] == 0
        assert watching.end() == 0
    assert b"\x1b[?1049l" in watching.data  # the terminal is as it was


def test_watching_needs_a_terminal(outside: Outside) -> None:
    launcher = outside.launch("-n", "2", program=UNTIL_GO)
    outside.state(launcher, in_barrier(1))
    refused = outside.ps("--watch")
    assert refused.returncode == 2
    assert "--watch: standard output is no terminal" in refused.stderr
    (outside.folder / "go").touch()
    assert outside.end(launcher)[0] == 0


def test_ps_shows_all_jobs_but_not_those_whose_launcher_was_killed(outside: Outside) -> None:
    launchers = [outside.launch("-n", "1", program=UNTIL_GO) for _ in range(2)]
    for launcher in launchers:
        outside.state(launcher, lambda states: states[0]["operation"] == "#1 allreduce")
    assert {job["launcher"] for job in json.loads(outside.ps("--json").stdout)} == {each.pid for each in launchers}
    launchers[0].kill()
    launchers[0].communicate()
    assert [job["launcher"] for job in json.loads(outside.ps("--json").stdout)] == [launchers[1].pid]
    (outside.folder / "go").touch()
    assert outside.end(launchers[1])[0] == 0


DESCRIBED = {"size": 2, "launcher": 1, "command": ["true"], "started": 2.5, "pids": [3, 4], "ranks": [0, 1]}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (json.dumps(DESCRIBED), 1),
        ("", 0),
        ("[" * 100_000, 0),
        ("null", 0),
        (json.dumps(DESCRIBED | {"launcher": "1"}), 0),
        (json.dumps(DESCRIBED | {"pids": [None]}), 0),
        (json.dumps(DESCRIBED | {"size": None}), 0),
        (json.dumps({"launcher": 1}), 0),
    ],
)
def test_only_a_locked_directory_with_a_description_is_a_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, found: int
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = tmp_path / "ringcast-job-x"
    folder.mkdir()
    (folder / "job.json").write_text(text)
    assert jobs.running() == []
    with (folder / "lock").open("w") as lock:
        assert jobs.running() == []
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert [(job.name, job.directory, job.pids) for job in jobs.running()] == [("x", str(folder), (3, 4))] * found
    assert jobs.running() == []


def test_a_signal_prints_the_table_and_the_job_goes_on(outside: Outside) -> None:
    launcher = outside.launch("-n", "2", program=UNTIL_GO)
    outside.state(launcher, in_barrier(1))
    launcher.send_signal(signal.SIGRTMIN + 5)
    assert launcher.stderr is not None
    table = []
    while len(table) < 3:
        line = launcher.stderr.readline()
        if table or line.startswith("rank "):
            table.append(line)
    assert table[0].split()[:3] == ["rank", "pid", "operation"]
    assert "after #1 allreduce" in table[1]
    assert "#2 barrier" in table[2]
    (outside.folder / "go").touch()
    assert outside.end(launcher)[0] == 0


@pytest.mark.parametrize(("transport", "file"), [("shm", "record.txt"), ("ipc", "record.txt"), ("tcp", "record.json")])
def test_what_a_killed_rank_was_doing_is_told(outside: Outside, transport: str, file: str) -> None:
    arguments = ("-n", "3", "--transport", transport, "--flight-recorder", str(outside.folder / file))
    launcher = outside.launch(*arguments, program=UNTIL_GO)
    job = outside.state(launcher, in_barrier(1, 2))
    os.kill(job["pids"][1], signal.SIGKILL)
    code, errors = outside.end(launcher)
    assert code == 128 + signal.SIGKILL
    assert errors[-1].endswith("failed: killed by SIGKILL")
    told = {line.split(":")[1].strip(): line for line in errors if line.startswith("ringcast-launch: rank ")}
    assert "in #2 barrier (by census), round " in told["rank 1"]
    assert "failed in #2 barrier" in told["rank 2"]
    assert "program.py:7" in told["rank 1"]
    text = (outside.folder / file).read_text()
    if file.endswith(".json"):
        last = json.loads(text)["ranks"][1]["entries"][-1]
        assert (last["number"], last["collective"], last["state"]) == (2, "barrier", "running")
    else:
        assert "! #2 barrier (by census): running on rank 1, at " in text
        assert "  #1 allreduce (object (), by doubling): done on all ranks" in text


def test_a_job_that_ends_well_writes_no_record(outside: Outside) -> None:
    (outside.folder / "go").touch()
    launcher = outside.launch("-n", "2", "--flight-recorder", "record.txt", program=UNTIL_GO)
    code, errors = outside.end(launcher)
    assert code == 0
    assert not [line for line in errors if "rank 0" in line]
    assert not (outside.folder / "record.txt").exists()


STUCK = {
    "sleep": "time.sleep(1000)",
    "C code that holds the interpreter": "sum(itertools.repeat(0))",
    "a lock": "threading.Lock().acquire() and lock.acquire()",
    "a collective": "comm.barrier()",
}
SHORT = "C code that holds the interpreter"  # of these the one that is tried without the long tests


def stacks_of(errors: list[str], ranks: str) -> str:
    """Return what stands under the heading of ranks."""
    lines = errors[errors.index(f"{ranks}:") + 1 :]
    end = next(i for i, line in enumerate(lines) if not line.startswith("  "))
    return "\n".join(lines[:end])


@pytest.mark.parametrize(
    "where", [SHORT, *(pytest.param(way, marks=pytest.mark.long) for way in STUCK if way != SHORT)]
)
def test_a_timeout_prints_the_stacks_of_all_ranks(outside: Outside, where: str) -> None:
    program = f"""
import itertools, sys, threading, time, ringcast
lock = threading.Lock()
lock.acquire()
comm = ringcast.init()
def stuck():
    {STUCK[where]}
if comm.rank == 1:
    stuck()
time.sleep(1000)
"""
    limit = f"{patience(8):g}"
    code, errors = outside.end(outside.launch("-n", "2", "--timeout", limit, program=program))
    assert code == 124
    assert f"the job did not end within {limit} s; still running: ranks 0, 1" in errors[-1]
    assert 'program.py", line 10 in <module>' in stacks_of(errors, "rank 0")
    assert 'program.py", line 7 in stuck' in stacks_of(errors, "rank 1")
    assert 'program.py", line 9 in <module>' in stacks_of(errors, "rank 1")


WAIT = """
import time, ringcast
comm = ringcast.init()
if comm.rank == 2:
    time.sleep(1000)
comm.sendrecv(None, None, 2)
"""


def test_a_timeout_shows_each_place_once_and_at_last_who_waits_for_whom(outside: Outside) -> None:
    code, errors = outside.end(outside.launch("-n", "4", "--timeout", f"{patience(8):g}", program=WAIT))
    assert code == 124
    assert errors[-1].endswith("still running: ranks 0, 1, 2, 3; rank 2 is in no call; ranks 0, 1, 3 wait for rank 2")
    file = f'    File "{outside.folder}/program.py", line'
    assert stacks_of(errors, "rank 2") == f"{file} 5 in <module>"
    assert stacks_of(errors, "ranks 0, 1, 3") == f"{file} 6 in <module>\n    ... in sendrecv of ringcast"


@pytest.mark.long
def test_with_verbose_all_frames_of_all_threads_are_shown(outside: Outside) -> None:
    code, errors = outside.end(outside.launch("-v", "-n", "4", "--timeout", f"{patience(8):g}", program=WAIT))
    assert code == 124
    assert "sendrecv" in stacks_of(errors, "rank 1")
    assert "(most recent call first)" in stacks_of(errors, "rank 2")


def test_a_rank_that_has_not_joined_has_no_stacks(outside: Outside) -> None:
    program = "import time\ntime.sleep(1000)"
    code, errors = outside.end(outside.launch("-n", "2", "--timeout", f"{patience(1):g}", program=program))
    assert code == 124
    assert stacks_of(errors, "ranks 0, 1") == NO_STACKS


NO_STACKS = "  no stacks: it has not called ringcast.init, or has ended"


def test_who_has_become_another_program_is_not_sent_the_signal(tmp_path: Path) -> None:
    become = "import os, sys\nfrom ringcast.monitoring.stacks import listen\nlisten(sys.argv[1], 0)\n"
    become += "os.execlp('sh', 'sh', '-c', '{}')"
    script = "echo ready; read line; echo $line"
    process = subprocess.Popen(
        [sys.executable, "-c", become.format(script), str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert stacks.collect(str(tmp_path), {0: process.pid}) == {0: f"{NO_STACKS}\n"}
        assert process.communicate("alive\n", timeout=patience(LIMIT))[0] == "alive\n"
        assert process.returncode == 0
    finally:
        process.kill()
        process.communicate()


def test_stacks_of_a_stranger_are_not_asked_for(tmp_path: Path) -> None:
    (tmp_path / "stacks-0").write_text(f"{os.getpid()}\n")  # not of the worker's session
    process = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    try:
        assert stacks.collect(str(tmp_path), {0: process.pid}) == {0: f"{NO_STACKS}\n"}
        (tmp_path / "stacks-0").write_text("no number\n")
        assert stacks.collect(str(tmp_path), {0: process.pid}) == {0: f"{NO_STACKS}\n"}
    finally:
        process.kill()
        process.wait()


def test_a_stopped_rank_does_not_hold_up_the_launcher(tmp_path: Path) -> None:
    listen = "import sys, time\nfrom ringcast.monitoring.stacks import listen\nlisten(sys.argv[1], 0)\n"
    then = "print(flush=True)\ntime.sleep(1000)"
    process = subprocess.Popen(
        [sys.executable, "-c", listen + then, str(tmp_path)], stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGSTOP)
        start = time.monotonic()
        assert "no stacks: it did not answer within a second" in stacks.collect(str(tmp_path), {0: process.pid})[0]
        assert 1 <= time.monotonic() - start < 10
    finally:
        process.kill()
        process.communicate()
