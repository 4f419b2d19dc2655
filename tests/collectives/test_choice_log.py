"""RINGCAST_DEBUG=info: a line for each stage on standard error, of rank 0 only."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from support.patience import patience

PROGRAM = """
import numpy as np, ringcast
comm = ringcast.init()
comm.allreduce(np.ones(1000))
comm.bcast(np.ones(5000) if comm.rank == 1 else None, root=1)
comm.allgather({})
"""
LINE = re.compile(r"ringcast: (.*), (\d+) blocks, (\d+) rounds: predicted (\d+\.\d{3}) ms, took (\d+\.\d{3}) ms")


def test_every_stage_is_one_line_of_rank_0(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-m", "ringcast_launcher", "-n", "3", str(tmp_path / "program.py")],
        capture_output=True,
        text=True,
        timeout=patience(60),
        env={**os.environ, "RINGCAST_DEBUG": "info"},
    )
    assert done.returncode == 0, done.stderr
    lines = [line.removeprefix("[0] ") for line in done.stderr.splitlines() if line.startswith("[")]
    found = [LINE.fullmatch(line) for line in lines]
    assert all(found), lines
    assert [match[1].partition(" by ")[0] for match in found if match] == [
        "allreduce of 8000 bytes",
        "bcast of objects",  # the root's description
        "bcast of 40000 bytes",
        "allgather of objects",
    ]
    assert all(float(match[5]) > 0 for match in found if match)
