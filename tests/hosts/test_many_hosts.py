"""64 hosts start at once: a starter on this machine stands for them, so that each costs no more than its processes."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.patience import patience

pytestmark = [pytest.mark.long, pytest.mark.timeout(600), pytest.mark.usefixtures("nothing_left")]

HOSTS = [f"h{i}.test" for i in range(64)]
START = 240.0  # seconds that they get: 64 agents and ranks share few processors
SUM = """
import ringcast
comm = ringcast.init()
print(comm.rank, comm.allreduce(comm.rank))
"""


def launch(folder: Path, starter: str, *program: str) -> subprocess.CompletedProcess[str]:
    """Run a job with a rank on each host; the starter has host and command as $1 and $2."""
    path = folder / "starter"
    path.write_text(f"#!/bin/sh\n{starter}\n")
    path.chmod(0o755)
    (folder / "jobs").mkdir()
    command = [sys.executable, "-m", "ringcast_launcher", "--rsh-agent", shlex.quote(str(path)), "-H", ",".join(HOSTS)]
    environment = {**os.environ, "SSH_CONNECTION": "127.0.0.1 1 127.0.0.1 22", "TMPDIR": str(folder / "jobs")}
    limit = patience(START)
    done = subprocess.run(
        [*command, "--start-timeout", f"{limit:g}", "--output", "none", *program],
        env=environment, capture_output=True, text=True, timeout=2 * limit, check=False,
    )  # fmt: skip
    assert list((folder / "jobs").iterdir()) == []
    return done


def test_64_hosts_start_and_communicate(tmp_path: Path) -> None:
    """Each starter waits until all others have been started: one after the other they would wait for ever."""
    (tmp_path / "program.py").write_text(SUM)
    (tmp_path / "started").mkdir()
    count = f'until [ "$(ls "{tmp_path}/started" | wc -l)" -eq {len(HOSTS)} ]; do sleep 0.2; done'
    start = f'touch "{tmp_path}/started/$1"; {count}; exec sh -c "$2"'
    done = launch(tmp_path, start, str(tmp_path / "program.py"))
    assert (done.returncode, done.stderr) == (0, "")
    ranks = range(len(HOSTS))
    assert sorted(done.stdout.splitlines()) == sorted(f"{rank} {sum(ranks)}" for rank in ranks)


def test_one_of_64_hosts_that_cannot_be_started_is_named_in_time(tmp_path: Path) -> None:
    start = time.monotonic()
    done = launch(
        tmp_path, '[ "$1" = h40.test ] && { echo no such host >&2; exit 255; }; exec sh -c "$2"', "sleep", "1000"
    )
    assert time.monotonic() - start < patience(START)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.search(r"host h40\.test: its agent cannot be started \(\S+ …\): no such host\b", done.stderr), done.stderr
