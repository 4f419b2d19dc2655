"""Measure the constants by which ringcast chooses algorithms on a bed, as the bed's links are new."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ringcast.commands.bench.bed import Bed, BedError
from ringcast.commands.bench.workers import start_workers

PATIENCE = 240.0  # seconds, four times as long as needed
_OF_THE_USER = ("RINGCAST_CONFIG", "RINGCAST_DEBUG")  # the user's settings for the later measurements


def calibrate(bed: Bed, path: Path) -> None:
    """Run `ringcast calibrate` on the hosts and let it write its file to `path`.

    Raises:
        BedError: the command failed, or did not end in time; the text has its last lines of output.
    """
    env = {name: value for name, value in os.environ.items() if name not in _OF_THE_USER}
    argv = [sys.executable, "-P", "-m", "ringcast", "calibrate", "-o", str(path)]
    with tempfile.TemporaryFile() as log:
        workers = start_workers(bed, argv, env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            deadline = time.monotonic() + PATIENCE
            codes = [worker.wait(max(0.0, deadline - time.monotonic())) for worker in workers]
        except subprocess.TimeoutExpired:
            raise BedError(f"ringcast calibrate has not come to an end in {PATIENCE:g} s") from None
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()
        if any(codes):
            log.seek(0)
            words = log.read().decode(errors="replace").strip()[-500:]
            raise BedError(f"ringcast calibrate failed: {words}")
