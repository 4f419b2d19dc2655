"""A series of looks tells stuck processes from computing ones; /proc is read for real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from ringcast.procs.liveness import Activity, Computing, Hung, Judgement, Limits, LivenessMonitor
from ringcast.procs.procfs import activity, look_at
from support.patience import patience

LIMITS = Limits()
STILL = Activity("SS", 1.0, 5000)


def watch(looks: Callable[[float], Activity], until: float, heard: Callable[[float], float] = lambda _: 0.0,
          wake: float = 0.25) -> list[tuple[float, Judgement]]:  # fmt: skip
    """Return what is said of rank 7, last heard at `heard(now)`, when the owner wakes up every `wake` seconds."""
    silence, found, now = LivenessMonitor(), [], 0.0
    while now <= until:
        for rank in silence.suspects({7: heard(now)}, now):
            judgement = silence.judge(rank, now - heard(now), looks(now), now)
            if judgement is not None:
                found.append((now, judgement))
                if isinstance(judgement, Hung):
                    return found
        now += wake
    return found


@pytest.mark.parametrize("wake", [0.1, 0.25, 0.5, 0.7, 1.0])
@pytest.mark.parametrize("states", ["S", "T", "TTT", "SSSS", "SI"])
def test_who_does_nothing_is_stuck_within_ten_seconds_of_its_last_word(states: str, wake: float) -> None:
    ((at, judgement),) = watch(lambda _: replace(STILL, states=states), 20, wake=wake)
    assert isinstance(judgement, Hung)
    assert LIMITS.silence + LIMITS.idle <= at <= 10
    assert ("it was stopped (state T)" in judgement.cause) == (set(states) == {"T"})


def test_who_speaks_is_not_looked_at() -> None:
    assert watch(lambda _: pytest.fail("nobody has to look"), 100, heard=lambda now: now - 2.9) == []


@pytest.mark.parametrize(
    "looks",
    [
        lambda now: replace(STILL, seconds=now),
        lambda now: replace(STILL, seconds=now * 0.2),
        lambda now: replace(STILL, bytes=int(now * 10_000)),
        lambda _: replace(STILL, states="SR"),
        lambda _: replace(STILL, states="D"),
        lambda _: replace(STILL, traced=True),
    ],
    ids=["computes", "computes a little", "reads", "waits for a processor", "waits for a disk", "is traced"],
)
def test_who_is_silent_but_active_is_named_once_a_minute(looks: Callable[[float], Activity]) -> None:
    found = watch(looks, 200)
    assert [round(time) for time, _ in found] == [60, 120, 180]
    assert all(isinstance(judgement, Computing) for _, judgement in found)


def test_what_waits_for_the_interpreters_lock_is_no_activity() -> None:
    looks = lambda now: replace(STILL, seconds=now * 0.01, bytes=int(now * 50), states="SR" if now % 5 == 4 else "SS")  # noqa: E731
    assert isinstance(watch(looks, 20)[-1][1], Hung)


def test_the_time_begins_anew_with_every_activity() -> None:
    found = watch(lambda now: replace(STILL, seconds=min(now, 30.0)), 60)
    ((at, judgement),) = found
    assert isinstance(judgement, Hung)
    assert 35 <= at <= 37


def test_a_word_forgives_everything() -> None:
    assert watch(lambda _: STILL, 100, heard=lambda now: now - now % 7) == []


def test_who_was_away_itself_blames_nobody() -> None:
    silence = LivenessMonitor()
    assert silence.suspects({0: 0.0}, 3.5) == [0]
    assert silence.judge(0, 3.5, STILL, 3.5) is None
    assert silence.suspects({0: 0.0}, 5000.0) == [0]
    for now in (5000.0, 5000.5):  # looks after a long time in which none was possible
        assert not isinstance(silence.judge(0, now, STILL, now), Hung)


# What /proc says.


@pytest.fixture
def python() -> Iterator[Callable[[str], int]]:
    """Return a function that runs a program in the background, and returns its process number once it has begun."""
    running: list[subprocess.Popen[bytes]] = []

    def run(program: str) -> int:
        running.append(
            subprocess.Popen([sys.executable, "-c", "print(flush=True)\n" + program], stdout=subprocess.PIPE)
        )
        assert running[-1].stdout is not None
        running[-1].stdout.readline()
        return running[-1].pid

    yield run
    for process in running:
        process.kill()
        process.communicate()


def eventually(pid: int, wanted: Callable[[Activity, Activity], bool]) -> None:
    """Look at a process until what is wanted is seen, at most 20 s."""
    first, deadline = activity([pid]), time.monotonic() + patience(20)
    while not wanted(first, activity([pid])):
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.usefixtures("nothing_left")
def test_a_process_that_computes_reads_sleeps_or_is_stopped(python: Callable[[str], int]) -> None:
    eventually(python("while True: pass"), lambda first, now: now.seconds > first.seconds and "R" in now.states)
    eventually(python("while True: open('/dev/zero', 'rb').read(100)"), lambda first, now: now.bytes > first.bytes)
    pid = python("import time; time.sleep(60)")
    eventually(pid, lambda _, now: now.states == "S" and not now.traced)
    os.kill(pid, signal.SIGSTOP)
    eventually(pid, lambda _, now: now.states == "T")


def test_what_has_ended_counts_nothing(python: Callable[[str], int]) -> None:
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    assert activity([int(ended.stdout)]) == Activity("", 0.0, 0)


def test_what_the_children_of_a_stopped_rank_do_does_not_count() -> None:
    command = [sys.executable, "-c", "while True: pass"]
    with subprocess.Popen(command) as rank, subprocess.Popen(command) as child:
        try:
            assert len(look_at({rank.pid, child.pid}, rank.pid).states) == 2
            rank.send_signal(signal.SIGSTOP)
            os.waitpid(rank.pid, os.WUNTRACED)
            assert look_at({rank.pid, child.pid}, rank.pid).states == "T"
            assert len(look_at({rank.pid, child.pid}, 0).states) == 2
        finally:
            rank.kill()
            child.kill()
