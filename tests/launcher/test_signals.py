"""Signals to the launcher: which it passes on, which end the job, and which are the same one on several nodes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ringcast.procs.portable import STACKS
from ringcast.procs.timing import TIMING
from ringcast_launcher.decide.same_signal import LAUNCHER, WINDOW, SameSignal
from ringcast_launcher.plan import slurm
from ringcast_launcher.system.signals import CAUGHT, ENDING, PASSED_ON
from support.patience import patience

HARMLESS = {signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH}
STOPPING = {signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}
CRASHES = {"SIGILL", "SIGTRAP", "SIGABRT", "SIGBUS", "SIGFPE", "SIGSEGV", "SIGSYS"}
LIMIT = 60  # seconds until a test gives up
SAVE = """
import os, signal, time, ringcast
comm = ringcast.init()
came = []
for number in signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGRTMIN + 3:
    signal.signal(number, lambda number, frame: came.append(number))
comm.barrier()
print("ready", flush=True)
while not comm.allreduce(len(came), ringcast.MAX):
    time.sleep(0.01)
print("saving", flush=True)
while not os.path.exists("go"):
    time.sleep(0.01)
print("saved", came[0], flush=True)
"""
OF_PYTHON = {signal.SIGPIPE, signal.SIGXFSZ}  # which it ignores


def test_every_signal_that_would_kill_the_launcher_without_a_word_is_caught() -> None:
    crashes = {getattr(signal, name) for name in CRASHES}
    deadly = signal.valid_signals() - HARMLESS - STOPPING - crashes - OF_PYTHON - {signal.SIGKILL}
    assert set(CAUGHT) == deadly
    assert set(ENDING).isdisjoint(PASSED_ON)
    assert set(CAUGHT) == {*ENDING, *PASSED_ON, STACKS}


def test_one_request_to_all_nodes_is_one_signal_and_two_to_one_node_are_two() -> None:
    same = SameSignal()
    told = [same.is_new(source, signal.SIGTERM, 10.0 + 0.1 * i) for i, source in enumerate((1, LAUNCHER, 2, 0, 2, 1))]
    assert told == [True, False, False, False, True, False]
    assert same.is_new(LAUNCHER, signal.SIGUSR1, 10.3)
    assert same.is_new(3, signal.SIGUSR1, 10.4 + WINDOW)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("ClusterName=c\nKillWait=90\n", 90.0),
        ("killwait = 7 # short\n", 7.0),
        ("#KillWait=90\n", TIMING.grace_period),
        ("", TIMING.grace_period),
        (None, TIMING.grace_period),
    ],
)
def test_slurms_grace_period_is_read_from_its_file(tmp_path: Path, text: str | None, seconds: float) -> None:
    conf = tmp_path / "slurm.conf"
    if text is not None:
        conf.write_text(text)
    assert slurm.kill_wait({"SLURM_CONF": str(conf)}) == seconds


@pytest.mark.parametrize("period", [0.0, 1.0, 5.0, 10.0, 30.0, 3600.0])
def test_ranks_have_at_least_half_of_the_grace_period_and_the_launcher_the_rest(period: float) -> None:
    left = TIMING.within(period)
    assert period / 2 <= left <= period
    assert left == period / 2 or period - left == TIMING.ending


class Started:
    """Launchers that run in a folder; each is killed at the end."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, self._stack = folder, stack

    def launch(self, *arguments: str, program: str, **variables: str) -> subprocess.Popen[str]:
        (self.folder / "program.py").write_text(program)
        process = subprocess.Popen(
            [sys.executable, "-m", "ringcast_launcher", *arguments, "program.py"],
            cwd=self.folder,
            env={**os.environ, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        return process


def said(process: subprocess.Popen[str], words: str, ranks: int = 2) -> None:
    """Wait until so many ranks have said that, each on a line."""
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(ranks)]
    assert all(words in line for line in lines), lines


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    with ExitStack() as stack:
        yield Started(tmp_path, stack)


@pytest.mark.live
@pytest.mark.parametrize(
    "number",
    [pytest.param(signal.SIGUSR2, marks=pytest.mark.smoke), signal.SIGUSR1, signal.SIGALRM, signal.SIGRTMIN + 3],
)
def test_a_signal_reaches_all_ranks_and_the_job_goes_on(started: Started, number: int) -> None:
    job = started.launch("-n", "2", program=SAVE)
    said(job, "ready")
    job.send_signal(number)
    said(job, "saving")
    (started.folder / "go").touch()
    output, _ = job.communicate(timeout=patience(LIMIT))
    assert sorted(output.splitlines()) == [f"[0] saved {int(number)}", f"[1] saved {int(number)}"]
    assert job.returncode == 0


@pytest.mark.live
@pytest.mark.parametrize(("option", "variable"), [((), {}), (("--grace", "50"), {}), ((), {"RINGCAST_GRACE": "50"})])
def test_ranks_save_their_state_after_sigterm(
    started: Started, option: tuple[str, ...], variable: dict[str, str]
) -> None:
    job = started.launch("-n", "2", *option, program=SAVE, **variable)
    said(job, "ready")
    job.send_signal(signal.SIGTERM)
    said(job, "saving")
    (started.folder / "go").touch()
    output, error = job.communicate(timeout=patience(LIMIT))
    assert sorted(output.splitlines()) == ["[0] saved 15", "[1] saved 15"]
    assert job.returncode == 143
    assert error.splitlines()[-1] == "ringcast-launch: ended by SIGTERM"


@pytest.mark.live
@pytest.mark.parametrize("signals", [1, 2])
def test_the_grace_period_ends_by_itself_or_by_a_second_signal(started: Started, signals: int) -> None:
    grace = {1: patience(1), 2: 1000}[signals]
    job = started.launch("-n", "2", "--grace", f"{grace:g}", program=SAVE)
    said(job, "ready")
    job.send_signal(signal.SIGTERM)
    said(job, "saving")
    for _ in range(1, signals):
        job.send_signal(signal.SIGTERM)
    output, error = job.communicate(timeout=patience(LIMIT))
    assert (job.returncode, output) == (143, "")
    assert error.splitlines()[-1] == "ringcast-launch: ended by SIGTERM"


@pytest.mark.live
def test_a_rank_without_a_handler_dies_and_the_last_line_says_of_what(started: Started) -> None:
    program = "import time\nprint('ready', flush=True)\ntime.sleep(1000)"
    job = started.launch("-n", "2", program=program)
    said(job, "ready")
    job.send_signal(signal.SIGUSR1)
    _, error = job.communicate(timeout=patience(LIMIT))
    assert job.returncode == 128 + signal.SIGUSR1
    assert error.splitlines()[-1].endswith("failed: killed by SIGUSR1, passed on by the launcher")
