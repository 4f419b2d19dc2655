"""The status line and the filter of ranks, of real jobs; the terminal is a real one."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.patience import patience

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("nothing_left")]

LAUNCH = [sys.executable, "-m", "ringcast_launcher"]
LIMIT = 60
PROGRAM = """
import sys, time
from pathlib import Path
import ringcast
comm = ringcast.init()
if comm.rank == 0:
    while not Path(sys.argv[1]).exists():
        time.sleep(0.02)
    print("seen", flush=True)
comm.barrier()
if comm.rank == 1:
    raise ValueError("as wished")
"""


class Watched:
    """A launcher with a terminal, and all that has come to that."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        self._master, terminal = pty.openpty()
        settings = {**os.environ, "TERM": "xterm", "CI": "", **environment}
        self._launcher = subprocess.Popen(
            [*LAUNCH, *arguments], stdout=terminal, stderr=terminal, stdin=subprocess.DEVNULL, env=settings
        )
        os.close(terminal)
        self._came, self.data = threading.Condition(), b""
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._master, 4096)
            except OSError:  # nobody has the terminal any more
                return
            with self._came:
                self.data += data
                self._came.notify()

    def wait_for(self, text: str) -> None:
        with self._came:
            assert self._came.wait_for(lambda: re.search(text.encode(), self.data), patience(LIMIT)), self.data

    def interrupt(self) -> None:
        self._launcher.send_signal(signal.SIGINT)

    def end(self) -> int:
        """Wait for the launcher, kill it if it does not end, and return its exit code."""
        try:
            return self._launcher.wait(patience(LIMIT))
        finally:
            self._launcher.kill()
            self._launcher.wait()
            self._thread.join()
            os.close(self._master)


@contextmanager
def watched(*arguments: str, **environment: str) -> Iterator[Watched]:
    job = Watched(*arguments, **environment)
    try:
        yield job
    except BaseException:
        job.interrupt()
        job.end()
        raise


@pytest.fixture
def program(tmp_path: Path) -> str:
    (tmp_path / "program.py").write_text(PROGRAM)
    return str(tmp_path / "program.py")


def test_a_long_job_has_a_line_that_is_gone_for_output_and_at_the_end_also_of_a_failure(
    program: str, tmp_path: Path
) -> None:
    with watched("-n", "3", program, str(tmp_path / "go")) as job:
        job.wait_for(r"\r\x1b\[K3 ranks up \(of 3\) · #1 barrier on 2, 1 outside · [0-9.]+ k?B/s · 00:00:\d\d")
        (tmp_path / "go").touch()
        assert job.end() == 1
    assert re.search(rb"00:00:\d\d\r\x1b\[K\x1b\[36m\[0\]\x1b\[0m seen\r\n", job.data)
    assert job.data.rpartition(b"ranks up")[2].count(b"\r\x1b[K") == 1
    assert job.data.rstrip().endswith(b"failed: ValueError: as wished")


def test_no_color_is_respected(program: str, tmp_path: Path) -> None:
    Path(program).write_text("print('end')")
    with watched("-n", "1", program, NO_COLOR="1") as job:
        assert job.end() == 0
    erased = rb"(\r\x1b\[K[^\r\x1b]*)*\r\x1b\[K"  # lines of the status, which a slow start has
    assert re.sub(erased, b"", job.data) == b"[0] end\r\n"


def launch(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*LAUNCH, *arguments], capture_output=True, text=True, timeout=patience(LIMIT))


def test_only_some_ranks_are_shown_but_every_failure_is(program: str) -> None:
    Path(program).write_text(
        "import os, sys\nr = os.environ['RANK']\n"
        "print(r)\nprint(r, file=sys.stderr)\nif r == '3':\n    raise ValueError(r)\n"
    )
    done = launch("-n", "4", "--ranks-filter", "0,2", program)
    assert done.returncode == 1
    assert set(done.stdout.splitlines()) <= {"[0] 0", "[2] 2"}
    assert not re.search(r"^\[[13]\]", done.stderr, re.MULTILINE)
    assert re.search(r"^ValueError: 3\n(.*\n)*ringcast-launch: rank 3 .* failed", done.stderr, re.MULTILINE)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["x"], "--ranks-filter 'x': 'x' is no rank; expected are ranks and ranges such as 0,2-3"),
        (["4"], "--ranks-filter '4': there is no rank 4 in a job of 4; the last one is 3"),
        (["0", "--output", "dir=logs"], "--ranks-filter: only with --output tag or none; files have the output of all"),
    ],
)
def test_filters_that_cannot_be(arguments: list[str], text: str) -> None:
    done = launch("-n", "4", "--ranks-filter", *arguments, "true")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"ringcast-launch: {text}")
