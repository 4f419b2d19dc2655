"""Random faults of random jobs on emulated hosts, which the launcher starts by ssh."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path

from support.beds import set_link
from support.fleets import AGENT, Fleet, finished, until
from support.patience import patience

from .fault import Fault
from .jobs import TESTS

START = 120.0  # seconds that a busy machine gets until the fault strikes
BUSY = 20.0  # seconds that a busy machine adds to the bounds of the documents
ENDED = 4.5  # seconds from the notice to the end of the job, where ranks ignore all but SIGKILL
NOTICED = {"SIGSTOP": 8.0, "link cut": 13.0, "agent killed": 13.0, "agent stopped": 13.0}  # all others: one second
GONE = 15.0  # seconds until nothing may be left on a host


class Faults:
    """The hosts, on which one job after the other is played."""

    def __init__(self, hosts: Fleet) -> None:
        self._hosts = hosts

    def play(self, seed: int, folder: Path) -> str:
        """Run the job of a seed, and end one of its ranks; return in a few words what it was.

        Raises:
            AssertionError: the job did not end as it should, or left something behind.
            TimeoutExpired: it did not end.
        """
        fault = Fault.drawn(seed)
        try:
            done, seconds = self._struck(fault, seed, folder)
            judge(fault, done)
            limit = patience(bound(fault))
            assert seconds < limit, f"the job ended {seconds:.1f} s after the fault, not within {limit:g} s"
            self._hosts.assert_empty(GONE)
        except Exception as error:
            error.add_note(str(fault))
            raise
        finally:
            set_link(self._hosts.bed, fault.host, "up")
            self._hosts.clear()
        return f"{fault.way}, {seconds:.1f} s"

    def _struck(self, fault: Fault, seed: int, folder: Path) -> tuple[subprocess.CompletedProcess[str], float]:
        """Return what became of the job, and how long after the fault."""
        then = "continue" if fault.go_on else "abort"
        options = ["-H", fault.names, "--on-failure", then, "--output", "none", "--wdir", str(TESTS)]
        with self._hosts.started(*options, "-m", "soak.doomed", str(seed), str(folder)) as process:
            until(lambda: (folder / "now").exists() or process.poll() is not None, START)
            assert (folder / "now").exists(), f"the job ended before the fault\n{process.communicate()[1]}"
            self._strike(fault)
            done = finished(process, bound(fault) + BUSY)
            return done, time.monotonic() - float((folder / "now").read_text())

    def _strike(self, fault: Fault) -> None:
        """Do what a rank cannot do itself."""
        if fault.way == "link cut":
            set_link(self._hosts.bed, fault.host, "down")
        elif fault.way.startswith("agent"):
            agent = self._hosts.pid_of(fault.host, AGENT)
            os.kill(agent, signal.SIGKILL if fault.way == "agent killed" else signal.SIGSTOP)


def bound(fault: Fault) -> float:
    """Return within how many seconds a job has ended."""
    return NOTICED.get(fault.way, 1.0) + ENDED + BUSY


def judge(fault: Fault, done: subprocess.CompletedProcess[str]) -> None:
    """Assert that a job ended as it should.

    Raises:
        AssertionError: with all that was printed.
    """
    said = done.stdout + done.stderr
    assert done.returncode == fault.code, f"exit code {done.returncode}, not {fault.code}\n{said}"
    named = [int(rank) for rank in re.findall(r"^ringcast-launch: rank (\d+) \(h\d+, pid \d+\) ", done.stderr, re.M)]
    assert set(named) <= fault.lost, f"not only rank {fault.lost} is named\n{said}"
    if fault.go_on:
        lines = [f"{rank} {fault.survivors}" for rank in fault.survivors]
        assert sorted(done.stdout.splitlines()) == sorted(lines), f"not all that were left finished\n{said}"
    if fault.code:
        assert re.search(r"^ringcast-launch: rank \d+ \(h\d+, pid \d+\) (failed|exited).*\n\Z", done.stderr, re.M), said
