"""A watched process that stands still is ended with its workers by its watchdog; one that merely waits is not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from ringcast_launcher.system import watchdog
from support.patience import patience
from support.processes import alive

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("nothing_left")]

LIMIT = 60.0  # seconds; nothing here takes nearly as long
SILENCE = 2.0  # seconds without a sign of life that are borne
LONG = 10.0  # the same, of who is to be borne
# Has a watchdog of little patience, a worker, and one that the worker has left behind. Files let it give no signs of
# life (mute), wait (stuck), start another worker of which it does not tell (again), and end (over).
WATCHED = """
import fcntl, os, subprocess, sys, termios, time
from contextlib import suppress
from ringcast_launcher.system import watchdog
folder, patience, *how = sys.argv[1:]
watchdog._CHILD = watchdog._CHILD.replace("main()", f"main.__globals__.update({patience}); main()")
left = "import subprocess as s; print(s.Popen(['sleep', '1000'], start_new_session=True).pid, flush=True); input()"
asked = lambda name: os.path.exists(f"{folder}/{name}")
with watchdog.Watchdog(os.environ, speaks=True) as own:
    mark = {"RINGCAST_MARK": folder}
    worker = subprocess.Popen([sys.executable, "-c", left], env=os.environ | mark, stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    own.tell("tag", "=".join(*mark.items()))
    own.tell("worker", str(worker.pid))
    own.tell("directory", f"{folder}/made")
    own.tell("file", f"key {folder}/key")
    if "watched" in how:
        own.watch()
    while any(fcntl.ioctl(own._child.stdin, termios.FIONREAD, bytes(4))):  # until it has heard that
        time.sleep(0.01)
    print(own._child.pid, worker.pid, int(worker.stdout.readline()), flush=True)
    while not asked("over"):
        if not asked("mute"):
            own.sign()
        time.sleep(0.02)
        if asked("again"):
            os.unlink(f"{folder}/again")
            print(subprocess.Popen(["sleep", "1000"], env=os.environ | mark, start_new_session=True).pid, flush=True)
    if "silently" in how:  # as if there had been no room for the last word
        own._child.stdin.close()
        os._exit(own._child.wait())
    for one in worker.pid, int(sys.stdin.readline()):
        with suppress(ProcessLookupError):
            os.kill(one, 9)
    worker.communicate()
"""


class Watched:
    """A process that is watched or not, its watchdog and its workers."""

    def __init__(self, folder: Path, patience: str, *how: str) -> None:
        self.folder = folder
        (folder / "made").mkdir(parents=True)
        command = [sys.executable, "-c", WATCHED, str(folder), patience, *how]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.process = subprocess.Popen(command, text=True, **pipes)
        told = [int(pid) for pid in self.process.stdout.readline().split()]
        self.watchdog, *self.workers = (psutil.Process(pid) for pid in told)

    def ask(self, name: str) -> None:
        """Have it do something else from now on."""
        (self.folder / name).touch()

    def over(self) -> tuple[int, str]:
        """Let it end well; return its exit code, and what was said."""
        self.ask("over")
        return self.end(f"{self.workers[1].pid}\n")

    @property
    def words(self) -> str:
        """The words that are printed when a process was ended."""
        how = f"stood still for {SILENCE:g} s (stopped, or hung); it was ended with its ranks"
        return f"ringcast: process {self.process.pid} {how}\n"

    def end(self, last: str = "") -> tuple[int, str]:
        """Return its exit code, and what was said on standard error until the watchdog had ended too."""
        _, said = self.process.communicate(last, timeout=patience(LIMIT))
        return self.process.returncode, said

    def close(self) -> None:
        self.process.kill()
        for one in (self.watchdog, *self.workers):
            with suppress(psutil.NoSuchProcess):
                one.kill()
        self.process.communicate()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Watched]]:
    made: list[Watched] = []

    def starting(*how: str, silence: float = SILENCE, grace: float = 10 * LIMIT) -> Watched:
        patience = f"SILENCE={silence}, BEAT=0.1, GRACE={grace}"
        made.append(Watched(tmp_path / "job", patience, *how))
        return made[-1]

    yield starting
    for one in made:
        one.close()


def test_who_stands_still_is_ended_after_its_workers(start: Callable[..., Watched]) -> None:
    one = start("watched")
    one.process.send_signal(signal.SIGSTOP)
    assert one.end() == (-signal.SIGKILL, one.words)
    assert not any(map(alive, one.workers))
    assert not (one.folder / "made").exists()


def test_who_hangs_is_ended_after_some_grace(start: Callable[..., Watched]) -> None:
    one = start("watched", grace=0.5)
    one.ask("mute")
    assert one.end() == (-signal.SIGKILL, one.words)
    assert not any(map(alive, one.workers))


def test_who_ends_by_itself_after_a_silence_may(start: Callable[..., Watched]) -> None:
    """An agent that hears nothing gives no signs of life, and ends; that takes as long as its workers hold it up."""
    one = start("watched")
    one.ask("mute")
    until(lambda: not any(map(alive, one.workers)))
    assert one.over() == (0, "")


def test_who_ends_by_itself_after_a_silence_starts_no_other_workers(start: Callable[..., Watched]) -> None:
    one = start("watched")
    one.ask("mute")
    until(lambda: not any(map(alive, one.workers)))
    one.ask("again")
    one.workers.append(psutil.Process(int(one.process.stdout.readline())))
    until(lambda: not alive(one.workers[-1]))
    assert one.over() == (0, "")


def test_who_goes_on_after_a_silence_is_ended(start: Callable[..., Watched]) -> None:
    one = start("watched")
    one.ask("mute")
    until(lambda: not any(map(alive, one.workers)))
    (one.folder / "mute").unlink()
    assert one.end() == (-signal.SIGKILL, one.words)


def test_an_end_is_no_silence(start: Callable[..., Watched]) -> None:
    """The pipe can end without a word also if all went well: it was full, and the watchdog stopped."""
    one = start("watched", "silently", silence=LIMIT)
    one.ask("over")
    assert one.end() == (0, "")
    assert not any(map(alive, one.workers))
    assert not (one.folder / "made").exists()


def test_a_file_system_that_hangs_keeps_no_workers_alive(start: Callable[..., Watched]) -> None:
    """A file that is to go may be on another machine: opening it can take for ever, as here that of a pipe."""
    one = start()
    os.mkfifo(one.folder / "key")
    one.process.kill()
    until(lambda: not any(map(alive, one.workers)))
    until(lambda: not (one.folder / "made").exists())
    assert alive(one.watchdog)
    (one.folder / "key").open("wb").close()
    assert one.end() == (-signal.SIGKILL, "")


def test_who_is_not_watched_may_stand_still(start: Callable[..., Watched]) -> None:
    one = start()
    one.process.send_signal(signal.SIGSTOP)
    time.sleep(SILENCE + 1)  # longer than it would be borne
    assert all(map(alive, one.workers))
    one.process.send_signal(signal.SIGCONT)
    assert one.over() == (0, "")


@pytest.mark.long
def test_only_time_counts_in_which_the_watchdog_ran(start: Callable[..., Watched]) -> None:
    """As when a whole machine is stopped, and goes on."""
    one = start("watched", silence=LONG)
    one.process.send_signal(signal.SIGSTOP)
    until(lambda: psutil.Process(one.process.pid).status() == psutil.STATUS_STOPPED)
    waits_again(one.watchdog)  # it has heard the last sign
    one.watchdog.send_signal(signal.SIGSTOP)
    until(lambda: one.watchdog.status() == psutil.STATUS_STOPPED)
    time.sleep(LONG + 1)  # longer than it would be borne
    one.watchdog.send_signal(signal.SIGCONT)
    waits_again(one.watchdog)
    one.process.send_signal(signal.SIGCONT)
    assert one.over() == (0, "")


def test_a_watchdog_that_is_stopped_stops_nobody(start: Callable[..., Watched]) -> None:
    one = start("watched", silence=LONG)
    one.watchdog.send_signal(signal.SIGSTOP)
    assert one.over() == (0, "")


def test_a_watched_process_that_has_ended_already_is_not_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its number may mean another one; and who is its watchdog's parent now has nothing to do with it."""
    killed: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: killed.append(pid))
    monkeypatch.setattr(os, "getppid", lambda: 4711)
    assert not watchdog._kill(4712)
    assert killed == []
    assert watchdog._kill(4711)
    assert killed == [4711]


@pytest.mark.parametrize("error", [ProcessLookupError, PermissionError])
def test_a_watched_process_that_cannot_be_killed_is_no_error(
    error: type[OSError], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(pid: int, number: int) -> None:
        raise error

    monkeypatch.setattr(os, "kill", refused)
    assert not watchdog._kill(os.getppid())


def waits_again(one: psutil.Process) -> None:
    """Wait until it has waited a few times: each is a switch, as are its stop, and the rest of a wait after that."""
    turns = one.num_ctx_switches().voluntary
    until(lambda: one.num_ctx_switches().voluntary >= turns + 5)


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + patience(LIMIT)
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
