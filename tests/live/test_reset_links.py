"""A connection between two ranks that live is reset: the launcher's last line names its two ends, and no other rank."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.patience import patience

PROGRAM = """
import ctypes, os, socket, struct, sys
from contextlib import suppress
import numpy as np
import ringcast

comm = ringcast.init()
port = comm.bcast(comm._group.endpoint.transport.address.rpartition(":")[2], root=2)
at, x = int(sys.argv[1]), np.ones(200_000)


def reset() -> None:
    for file in map(int, os.listdir("/proc/self/fd")):
        with suppress(OSError), socket.socket(fileno=os.dup(file)) as sock:
            if sock.family == socket.AF_INET and str(sock.getpeername()[1]) == port:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                assert ctypes.CDLL(None).connect(file, bytes(16), 16) == 0  # of no family: the kernel resets it


for i in range(200):
    if i == at and comm.rank == 1:
        reset()
    comm.allreduce(x)
    comm.alltoall(np.ones((comm.size, 20_000)))
"""


@pytest.mark.parametrize("p", [3, 5])
@pytest.mark.parametrize("transport", ["sockets", "tcp"])
def test_the_ends_of_a_link_that_is_reset_are_named(p: int, transport: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    for at in 0, 7:
        command = [sys.executable, "-m", "ringcast_launcher", "-n", str(p), "--transport", transport, "program.py"]
        done = subprocess.run(
            [*command, str(at)], cwd=tmp_path, capture_output=True, text=True, timeout=patience(100), check=False
        )
        last = done.stderr.splitlines()[-1]
        assert done.returncode == 1, done.stderr
        assert "the link from rank 1 to rank 2 " in last, done.stderr
        assert last.startswith(("ringcast-launch: rank 2 ", "ringcast-launch: rank 1 ")), last
