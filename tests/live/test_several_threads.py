"""Ranks whose calls come from several threads, as processes: how they end, and what is known to wait for ever."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.patience import patience

pytestmark = pytest.mark.usefixtures("nothing_left")

ENDS = """
import threading
import ringcast

comm = ringcast.init(threads="multiple")
begun, told = threading.Event(), []

def wait_for_ever():
    begun.set()
    try:
        comm.recv(comm.rank, tag=8)
    except ringcast.UsageError as error:
        told.append(error)

thread = threading.Thread(target=wait_for_ever)
thread.start()
begun.wait()
comm.barrier()
while comm.rank and comm.rank - 1 not in comm.get_failed():  # they leave one after the other
    pass
comm.finalize()
thread.join()
print("told" if told else "not told")
"""

ALONE = """
import ringcast

comm = ringcast.init(threads="multiple")
comm.recv((comm.rank + 1) % comm.size)
"""


def launch(folder: Path, program: str, size: int) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text(program)
    command = [sys.executable, "-m", "ringcast_launcher", "-n", str(size), "program.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=patience(60), check=False)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_who_leaves_while_a_thread_waits_harms_nobody(tmp_path: Path, size: int) -> None:
    done = launch(tmp_path, ENDS, size)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if "not" in line] == []


def test_ranks_of_one_thread_that_wait_for_each_other_are_named(tmp_path: Path) -> None:
    done = launch(tmp_path, ALONE, 3)
    assert done.returncode == 1
    assert "rank 0 -> 1 -> 2 (all in recv with any tag at program.py:5) -> rank 0" in done.stderr
