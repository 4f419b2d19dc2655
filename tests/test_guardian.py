"""Who is watched and stands still is ended with its workers by its guardian; who only waits for long is not."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.usefixtures("nothing_left")

LIMIT = 60.0  # seconds; nothing here takes nearly as long
# Has a guardian of little patience, a worker, and one that the worker has left behind; gives signs of life when asked.
WATCHED = """
import os, subprocess, sys, time
from ringcast_launcher import guardian
guardian._CHILD = guardian._CHILD.replace("main()", "main.__globals__.update(SILENCE=2.0, BEAT=0.1); main()")
guardian.BEAT = 0.1
left = "import subprocess as s; print(s.Popen(['sleep', '1000'], start_new_session=True).pid, flush=True); input()"
with guardian.Guardian(os.environ, speaks=True) as own:
    mark = {"RINGCAST_MARK": sys.argv[1]}
    worker = subprocess.Popen([sys.executable, "-c", left], env=os.environ | mark, stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True)
    own.tell("mark", "=".join(*mark.items()))
    own.tell("worker", str(worker.pid))
    own.tell("directory", sys.argv[1])
    if "watched" in sys.argv:
        own.watch()
    print(own._child.pid, worker.pid, int(worker.stdout.readline()), flush=True)
    while not os.path.exists(f"{sys.argv[1]}/over"):
        own.sign(time.monotonic())
        time.sleep(0.02)
    for one in worker.pid, int(sys.stdin.readline()):
        os.kill(one, 9)
    worker.communicate()
"""


class Watched:
    """A process that is watched or not, its guardian and its workers."""

    def __init__(self, folder: Path, *how: str) -> None:
        self.folder = folder
        command = [sys.executable, "-c", WATCHED, str(folder), *how]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.process = subprocess.Popen(command, text=True, **pipes)
        told = [int(pid) for pid in self.process.stdout.readline().split()]
        self.guardian, *self.workers = (psutil.Process(pid) for pid in told)

    def over(self) -> int:
        """Let it end well, and return its exit code."""
        (self.folder / "over").touch()
        return self.end(f"{self.workers[-1].pid}\n")[0]

    def end(self, last: str = "") -> tuple[int, str]:
        """Return its exit code, and what was said on standard error until the guardian had ended too."""
        _, said = self.process.communicate(last, timeout=LIMIT)
        return self.process.returncode, said

    def close(self) -> None:
        self.process.kill()
        for one in (self.guardian, *self.workers):
            with suppress(psutil.NoSuchProcess):
                one.kill()
        self.process.communicate()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Watched]]:
    made: list[Watched] = []

    def starting(*how: str) -> Watched:
        (folder := tmp_path / "job").mkdir()
        made.append(Watched(folder, *how))
        return made[-1]

    yield starting
    for one in made:
        one.close()


def alive(one: psutil.Process) -> bool:
    return one.is_running() and one.status() != psutil.STATUS_ZOMBIE


def test_who_stands_still_is_ended_after_its_workers(start: Callable[..., Watched]) -> None:
    one = start("watched")
    one.process.send_signal(signal.SIGSTOP)
    code, said = one.end()
    assert code == -signal.SIGKILL
    words = f"process {one.process.pid} stood still for 2 s (stopped, or hung); it was ended with its ranks"
    assert said == f"ringcast: {words}\n"
    assert not any(map(alive, one.workers))
    assert not one.folder.exists()


def test_who_is_not_watched_may_stand_still(start: Callable[..., Watched]) -> None:
    one = start()
    one.process.send_signal(signal.SIGSTOP)
    time.sleep(3)  # longer than it would be borne
    assert all(map(alive, one.workers))
    one.process.send_signal(signal.SIGCONT)
    assert one.over() == 0


def test_only_time_counts_in_which_the_guardian_ran(start: Callable[..., Watched]) -> None:
    """As when a whole machine is stopped, and goes on."""
    one = start("watched")
    one.process.send_signal(signal.SIGSTOP)
    one.guardian.send_signal(signal.SIGSTOP)
    turns = one.guardian.num_ctx_switches().voluntary
    time.sleep(3)  # longer than it would be borne
    one.guardian.send_signal(signal.SIGCONT)
    until(lambda: one.guardian.num_ctx_switches().voluntary > turns)
    one.process.send_signal(signal.SIGCONT)
    assert one.over() == 0


def test_a_guardian_that_is_stopped_stops_nobody(start: Callable[..., Watched]) -> None:
    one = start("watched")
    one.guardian.send_signal(signal.SIGSTOP)
    assert one.over() == 0


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
