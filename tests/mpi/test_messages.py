"""Messages between ranks, in MPI's names: their laws hold in jobs of any size."""

from __future__ import annotations

import subprocess
import sys

import pytest

from support import needs
from support.patience import patience
from support.places import ROOT

PROGRAM = ROOT / "tests/support/programs/messages_of_mpi.py"


@pytest.mark.parametrize("n", [1, 3, *(pytest.param(n, marks=pytest.mark.live) for n in (2, 5))])
def test_the_laws_of_messages(n: int) -> None:
    command = [sys.executable, "-m", "ringcast_launcher", "-n", str(n), sys.executable, str(PROGRAM)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(60), check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert len({line.partition(" ")[2] for line in done.stdout.splitlines()}) == 1


def test_a_job_that_takes_no_objects_refuses_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGCAST_NO_PICKLE", "1")
    program = """
from ringcast import MPI
for call in lambda: MPI.COMM_SELF.send([], 0), lambda: MPI.COMM_SELF.irecv(), lambda: MPI.COMM_SELF.bsend([], 0):
    try:
        call()
    except MPI.Exception as error:
        assert error.Get_error_class() == MPI.ERR_UNSUPPORTED_OPERATION
    else:
        raise AssertionError
MPI.COMM_SELF.Sendrecv(b"a", 0, 0, bytearray(1), 0, 0)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=patience(60), check=False
    )
    assert done.returncode == 0, done.stderr


@needs.shared_memory
def test_an_error_in_a_receive_loses_neither_its_message_nor_what_is_sent() -> None:
    needs.compiled_part()
    program = f"""
import numpy as np
from ringcast import MPI
from ringcast.engine import direct
from ringcast.engine.correspondent import Correspondent
comm, direct.PATIENCE, fetch, failed = MPI.COMM_WORLD, {patience(20)}, Correspondent.fetch, []
other = 1 - comm.rank

def fetch_after_an_error(*message):
    if not failed:
        failed.append(1)
        raise MemoryError
    return fetch(*message)

for _ in range(3):  # after which messages are predicted
    comm.Sendrecv(np.zeros(1), other, 5, np.zeros(1), other, 5)
if comm.rank == 0:
    Correspondent.fetch = fetch_after_an_error
got, data = np.zeros(1 << 20, np.uint8), [np.full(1 << 20, turn, np.uint8) for turn in range(4)]
for turn in range(3):
    try:
        comm.Sendrecv(data[turn], other, 5, got, other, 5)
    except MemoryError:
        assert comm.rank == turn == 0
    else:
        assert (got == turn - (comm.rank == 0)).all()
if comm.rank == 0:
    comm.Recv(got, 1, 5)
    assert failed and (got == 2).all()
"""
    command = [sys.executable, "-m", "ringcast_launcher", "-n", "2", sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(60), check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
