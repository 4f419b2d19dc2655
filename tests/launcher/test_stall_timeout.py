"""Native code that waits and holds the interpreter for longer than a silent rank usually may."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.patience import patience

HOLD = """
import ctypes
import ringcast
comm = ringcast.init()
if comm.rank == comm.size - 1:
    ctypes.PyDLL(None).sleep(SECONDS)  # unlike CDLL, it keeps the interpreter's lock
print(comm.allreduce(1))
"""


def launch(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RINGCAST_")}
    command = [sys.executable, "-m", "ringcast_launcher", "--output", "none", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=patience(100), env=environment, check=False)


@pytest.mark.long
def test_a_native_wait_of_14_s(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(HOLD.replace("SECONDS", str(int(patience(14)))))
    sizes = 1, 2, 3
    with ThreadPoolExecutor(2 * len(sizes)) as pool:  # all of them wait
        patient = [pool.submit(launch, "-n", str(p), "--stall-timeout", "86400", str(program)) for p in sizes]
        short = [pool.submit(launch, "-n", str(p), str(program)) for p in sizes]
    for p, done in zip(sizes, (future.result() for future in patient), strict=True):
        assert (done.returncode, done.stdout) == (0, f"{p}\n" * p), done.stderr
    for p, failed in zip(sizes, (future.result() for future in short), strict=True):
        assert failed.returncode == 1
        assert f"rank {p - 1} " in failed.stderr
        assert "perhaps a deadlock in native code" in failed.stderr


@pytest.mark.parametrize("seconds", ["0", "3", "-1", "nan", "inf", "86401", "x", ""])
def test_times_that_are_none(seconds: str) -> None:
    done = launch("-n", "1", f"--stall-timeout={seconds}", "true")
    assert (done.returncode, done.stdout) == (2, "")
    assert "argument --stall-timeout: " in done.stderr
