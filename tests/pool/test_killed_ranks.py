"""Ranks of a job that are workers of a pool, and one of them is killed in the middle."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.patience import patience

pytestmark = pytest.mark.live

PROGRAM = """
import os, random, signal, sys, threading
import numpy as np
import ringcast

comm, chance = ringcast.init(), random.Random(int(sys.argv[1]))
made, data = ringcast.Pool, np.zeros(1 << 18)
victim, seconds = chance.randrange(1, comm.size), chance.random() * 0.15
with made(comm) as pool:
    if pool is not None:
        assert list(pool.map(begin, [(victim, seconds)] * 30, chunksize=1)) == [None] * 30
        assert list(pool.map(lambda n: n, range(300), chunksize=2)) == list(range(300))
        assert not any(pool.map(lambda n: data[n], range(100)))
        assert [pool.submit_ranks(2, lambda comm: comm.allreduce(1)).result() for _ in range(5)] == [[2, 2]] * 5
        while pool.size > 2:
            pool.submit(abs, 1).result()
print("left")
"""
BEGIN = """
import os, signal, threading

def begin(order):
    import ringcast
    victim, seconds = order
    if ringcast.init().rank == victim and not any(each.name == "end" for each in threading.enumerate()):
        end = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL))
        end.name, end.daemon = "end", True
        end.start()
"""


@pytest.mark.parametrize("seed", range(3))
def test_the_others_do_its_tasks_and_the_job_ends_well(seed: int, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(BEGIN + PROGRAM)
    launch = [sys.executable, "-m", "ringcast_launcher", "-n", "4", "--on-failure", "continue", "--output", "none"]
    done = subprocess.run(
        [*launch, str(program), str(seed)], capture_output=True, text=True, timeout=patience(60), check=False
    )
    assert (done.returncode, done.stdout) == (0, "left\n" * 3), done.stdout + done.stderr
