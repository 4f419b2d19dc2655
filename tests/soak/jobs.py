"""Random jobs on one machine: their ranks are threads, or processes that talk over ipc or tcp."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from random import Random

import ringcast
from support.patience import patience

from . import program

TESTS = Path(__file__).parents[1]
SIZES = (1, 2, 2, 3, 3, 4, 5, 5, 6, 7, 8, 9, 11, 13, 16)
LIMIT = 200.0  # seconds until a job on a busy machine must have ended
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def play(seed: int, folder: Path) -> str:
    """Run the job of a seed; return in a word what it was.

    Args:
        seed: of the job.
        folder: an empty directory for its temporary files, which is empty afterwards.

    Raises:
        AssertionError: a wrong result, or it did not end as it should.
        RingcastError: as the ranks of a job on threads do.
    """
    random = Random(f"job {seed}")
    size, transport = random.choice(SIZES), random.choice(["threads", "shm", "sockets", "ipc", "tcp"])
    if transport == "threads":
        ringcast.run(program.job, size, args=(seed,), backend="threads")
    else:
        launch("soak.program", seed, folder, "-n", str(size), "--transport", transport)
    return f"{transport} -n {size}"


def launch(module: str, argument: int, folder: Path, *options: str) -> None:
    """Run a module on ranks that are processes, with an empty directory for its files.

    Raises:
        AssertionError: it has failed, has said something, or has left something.
    """
    command = [sys.executable, "-m", "ringcast_launcher", *options, "--output", "none", "--wdir", str(TESTS)]
    done = subprocess.run(
        [*command, "--timeout", f"{patience(LIMIT):g}", "-m", module, str(argument)],
        env={**ENVIRONMENT, "TMPDIR": str(folder)}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=patience(LIMIT) + 60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout + done.stderr) == (0, ""), f"exit code {done.returncode}\n{done.stderr}"
    assert not list(folder.iterdir()), f"left: {list(folder.iterdir())}"
