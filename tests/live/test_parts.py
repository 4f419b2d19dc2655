"""Communicators of parts of a job of processes: requests in them, and a rank of one of them that is killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.patience import patience

pytestmark = pytest.mark.usefixtures("nothing_left")

SUMS = """
import ringcast

comm = ringcast.init()
part = comm.split(comm.rank % 2, -comm.rank)
request = part.iallreduce(comm.rank)
assert request.wait() == sum(r for r in range(comm.size) if r % 2 == comm.rank % 2)
assert len(comm.split_by_host().members) == comm.size
"""

ONE_DIES = """
import os, signal
import ringcast

comm = ringcast.init()
part = comm.split(comm.rank % 2, -comm.rank)
if comm.rank % 2:
    try:
        while True:
            part.barrier()
            if comm.rank == 3:  # whose last messages may be lost with it
                os.kill(os.getpid(), signal.SIGKILL)
    except (ringcast.PeerFailed, ringcast.Revoked):
        part = part.shrink()
while 3 not in comm.get_failed():  # of which the others hear as well
    pass
print("rank", comm.rank, part.members, part.iallreduce(comm.rank).wait())
part.free()
"""


def launch(folder: Path, program: str, size: int, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text(program)
    command = [sys.executable, "-m", "ringcast_launcher", "-n", str(size), *options, "program.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=patience(60), check=False)


@pytest.mark.parametrize("size", [1, 2, 6])
@pytest.mark.parametrize("transport", ["shm", "ipc", "tcp"])
def test_a_request_in_a_part(tmp_path: Path, size: int, transport: str) -> None:
    done = launch(tmp_path, SUMS, size, "--transport", transport)
    assert done.returncode == 0, done.stderr


def test_a_rank_that_is_killed_ends_its_part_and_no_other(tmp_path: Path) -> None:
    done = launch(tmp_path, ONE_DIES, 6, "--on-failure", "continue", "--ranks-filter", "0-5")
    lines = sorted(line.partition("] ")[2] for line in done.stdout.splitlines())
    expected = {0: "(4, 2, 0) 6", 1: "(5, 1) 6", 2: "(4, 2, 0) 6", 4: "(4, 2, 0) 6", 5: "(5, 1) 6"}
    assert lines == [f"rank {rank} {words}" for rank, words in expected.items()], done.stderr
