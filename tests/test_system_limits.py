"""A rank gets the open files and sockets that a large job needs, or says what is in the way."""

from __future__ import annotations

import math
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import zmq

from ringcast import limits
from ringcast.schedules.circulant import skips
from ringcast.transports.zeromq import ZeroMQTransport

RAISED = """
import resource, sys
from ringcast import limits
soft, hard, size = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
limits.raise_files(size)
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def test_neighbours_are_counted_as_the_communicator_connects_them() -> None:
    for p in range(1, 300):
        most = max(len({(r + sign * s) % p for s in skips(p)[:-1] for sign in (1, -1)} - {r}) for r in range(min(p, 3)))
        assert most <= limits.neighbours(p) <= (2 * math.ceil(math.log2(p)))


@pytest.mark.parametrize(
    ("soft", "hard", "size", "then"),
    [
        (256, 4096, 2, "256 4096"),  # enough as it is: nothing changes
        (256, 4096, 500, "1597 4096"),
        (256, 600, 500, "600 600"),  # not enough for all, but for the neighbours
    ],
)
def test_the_soft_limit_is_raised_as_far_as_needed(soft: int, hard: int, size: int, then: str) -> None:
    command = [sys.executable, "-c", RAISED, str(soft), str(hard), str(size)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == then, done.stderr


def test_a_hard_limit_that_is_too_low_is_an_error_that_says_what_to_do() -> None:
    done = subprocess.run(
        [sys.executable, "-c", RAISED, "100", "120", "5000"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert "a rank of 5000 may need 178 open files, but only 120 are allowed; raise the hard limit" in done.stderr


def test_a_rank_may_have_a_socket_for_every_other(tmp_path: Path) -> None:
    """More than the 1023 that a context of ZeroMQ's has by default, and files beyond the usual 1024."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    size = 1200
    limits.raise_files(size)
    transport = ZeroMQTransport("tcp://127.0.0.1:*", size=size)
    try:
        transport.meet([transport.address] * size, [transport.public_key] * size)
        for peer in range(size):
            transport.send(peer, [b"header"])
        assert transport.context.get(zmq.MAX_SOCKETS) >= size
    finally:
        transport.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_launcher_raises_its_own_limit(tmp_path: Path) -> None:
    """60 workers have two pipes each: more than the soft limit that it was given."""
    command = f"ulimit -Sn 100; exec {sys.executable} -m ringcast_launcher -n 60 --output none true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
