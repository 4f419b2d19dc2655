"""A rank gets the open files and sockets that a large job needs, or says what is in the way."""

from __future__ import annotations

import doctest
import math
import resource
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import psutil
import pytest
import zmq

import ringcast
from ringcast.algorithms import ALGORITHMS, Params, build
from ringcast.bootstrap.connectivity import connect_neighbours
from ringcast.communicator import Communicator
from ringcast.net import fd_limits
from ringcast.schedules.circulant import skips
from ringcast.schedules.scan import census_skips
from ringcast.transports.zeromq import ZeroMQTransport
from support import needs
from support.jobs import Job
from support.patience import patience
from support.places import python

RAISED = """
import resource, sys
from ringcast.net import fd_limits
soft, hard, size = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
fd_limits.raise_files(size)
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def test_the_examples_in_docstrings_are_true() -> None:
    assert doctest.testmod(fd_limits).failed == 0


def neighbours(p: int, rank: int) -> set[int]:
    """Return the peers of a rank in the circulant graph and in the census."""
    distances = {*skips(p)[:-1], *(s for s, _ in census_skips(p))}
    return {(rank + sign * s) % p for s in distances for sign in (1, -1)} - {rank}


def test_neighbours_are_counted_as_the_communicator_connects_them() -> None:
    for p in range(1, 300):
        assert len(neighbours(p, 0)) <= fd_limits.neighbours(p) <= 4 * math.ceil(math.log2(p))


def peers(collective: str, algorithm: str, p: int, rank: int) -> set[int]:
    """Return the ranks that a rank exchanges messages with."""
    blocks = 3 if ALGORITHMS[collective][algorithm].blocks else 1
    steps = build(collective, algorithm, Params(p, nblocks=blocks, counts=(3,) * p), rank)
    return {peer for step in steps for peer in (step.send_to, step.recv_from) if peer is not None}


CIRCULANT = [(c, a) for c, table in ALGORITHMS.items() for a in table if a.startswith("circulant")]
CENSUS = [("merge_sorted", "circulant"), *((c, a) for c, table in ALGORITHMS.items() for a in table if "census" in a)]


@pytest.mark.parametrize("p", [*range(1, 20), 31, 32, 33, 64, 100])
def test_circulant_algorithms_take_2_log_p_neighbours_and_4_with_the_census(p: int) -> None:
    q = math.ceil(math.log2(p))
    for rank in {0, 1 % p, p // 2, p - 1}:
        joined = set().union(*(peers(*use, p, rank) for use in CIRCULANT if use not in CENSUS))
        assert len(joined) <= 2 * q
        joined.update(*(peers(*use, p, rank) for use in CENSUS))
        assert joined <= neighbours(p, rank)  # made in the start
        assert len(joined) <= 4 * q


def connections(job: Job) -> list[tuple[int, int]]:
    """Return the connections from and to each rank, of those that are made."""
    ports = [int(endpoint.transport.address.rpartition(":")[2]) for endpoint in job.endpoints]
    made = [c for c in psutil.Process().net_connections("tcp") if c.status == psutil.CONN_ESTABLISHED]
    into = Counter(c.laddr.port for c in made)
    assert sum(into[port] for port in ports) == sum(c.raddr.port in ports for c in made)
    return [(len(e.transport._peers), into[port]) for e, port in zip(job.endpoints, ports, strict=True)]


def start(comm: Communicator) -> None:
    connect_neighbours(comm._group)
    transport = comm._group.endpoint.transport
    deadline = transport.clock() + patience(60)
    while transport.unreached():
        assert transport.clock() < deadline
        transport.wait_for_news(deadline)


def use(comm: Communicator) -> None:
    comm.bcast(np.arange(50_000), algorithm="circulant")
    comm.allgatherv(np.arange(comm.rank), algorithm="circulant")
    comm.reduce(np.arange(50), ringcast.SUM, algorithm="circulant")


@pytest.mark.parametrize("p", [1, 2, 3, 5, 8, *(pytest.param(p, marks=pytest.mark.long) for p in (17, 33))])
def test_the_start_makes_a_connection_each_way_to_each_neighbour_and_calls_make_no_more(p: int) -> None:
    job = Job("tcp", p)
    try:
        job.ask(start)
        n = len(neighbours(p, 0))
        assert connections(job) == [(n, n)] * p
        job.ask(use)
        job.ask(Communicator.barrier)  # by the census
        assert connections(job) == [(n, n)] * p
    finally:
        job.close()


@pytest.mark.parametrize(
    ("soft", "hard", "size", "then"),
    [
        (1024, 4096, 2, "1024 4096"),  # enough as it is: nothing changes
        (256, 4096, 500, "2608 4096"),
        (256, 600, 500, "600 600"),  # not enough for all, but for the neighbours
    ],
)
def test_the_soft_limit_is_raised_as_far_as_needed(soft: int, hard: int, size: int, then: str) -> None:
    command = [sys.executable, "-c", RAISED, str(soft), str(hard), str(size)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(60))
    assert done.stdout.strip() == then, done.stderr


def test_a_hard_limit_that_is_too_low_is_an_error_that_says_what_to_do() -> None:
    done = subprocess.run(
        [sys.executable, "-c", RAISED, "100", "120", "5000"], capture_output=True, text=True, timeout=patience(60)
    )
    assert done.returncode == 1
    assert "a rank of 5000 may need 308 open files, but only 120 are allowed; raise the hard limit" in done.stderr


COUNT = """
import os, ringcast
comm = ringcast.init()
for distance in range(1, comm.size):
    for value in comm.rank, bytes(100_000):
        comm.sendrecv(value, (comm.rank + distance) % comm.size, (comm.rank - distance) % comm.size)
counts = []
for _ in range(100):  # ZeroMQ's thread closes what only the start needed a little later
    comm.barrier()
    counts.append(len(os.listdir("/proc/self/fd")))
print(min(counts))
comm.barrier()  # a rank that ended would take its connections along
"""


def files(transport: str, p: int) -> list[int]:
    """Return how many files each rank of a job has open when it has talked to all others."""
    command = [sys.executable, "-m", "ringcast_launcher", "-n", str(p), "--transport", transport, "--output", "none"]
    done = subprocess.run(
        [*command, sys.executable, "-c", COUNT], capture_output=True, text=True, timeout=patience(100)
    )
    assert done.returncode == 0, done.stderr
    return [int(line) for line in done.stdout.split()]


@pytest.mark.parametrize(
    ("transport", "per_peer"),
    [
        pytest.param("shm", 4, marks=[needs.shared_memory, pytest.mark.live]),
        ("sockets", 2),
        pytest.param("tcp", 3, marks=pytest.mark.live),
        pytest.param("ipc", 3, marks=pytest.mark.live),
    ],
)
def test_a_rank_opens_no_more_files_than_are_counted(transport: str, per_peer: int) -> None:
    few, many = files(transport, 2), files(transport, 6)
    assert min(many) - min(few) == 4 * per_peer <= 4 * fd_limits.PER_PEER
    assert max(many) <= fd_limits.files_needed(5)


@pytest.mark.live
def test_a_rank_may_have_a_socket_for_every_other(tmp_path: Path) -> None:
    """More than the 1023 that a context of ZeroMQ's has by default, and files beyond the usual 1024."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    size = 1200
    fd_limits.raise_files(size)
    transport = ZeroMQTransport("tcp://127.0.0.1:*", size=size)
    try:
        transport.meet([transport.card] * size)
        for peer in range(size):
            transport.send(peer, [b"header"])
        assert transport.context.get(zmq.MAX_SOCKETS) >= size
    finally:
        transport.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.live
def test_the_launcher_raises_its_own_limit(tmp_path: Path) -> None:
    """60 workers have two pipes each: more than the soft limit that it was given."""
    command = f"ulimit -Sn 100; exec {python()} -m ringcast_launcher -n 60 --output none true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=patience(100))
    assert done.returncode == 0, done.stderr


def launch_on_hosts(limit: str, hosts: int, starter: str) -> subprocess.CompletedProcess[str]:
    names = ",".join(f"h{i}.test" for i in range(hosts))
    command = f"ulimit {limit}; exec {python()} -m ringcast_launcher -H {names} --rsh-agent {starter} true"
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=patience(100), check=False)


def test_the_launcher_raises_its_own_limit_for_many_hosts() -> None:
    """40 commands have three pipes each: more than the soft limit that it was given, before any rank starts."""
    done = launch_on_hosts("-Sn 64", 40, "false")
    assert done.returncode == 1
    assert "the job cannot start: host h0.test: its agent cannot be started" in done.stderr


def test_too_many_hosts_for_the_hard_limit_are_told_from_a_program_that_is_not_there() -> None:
    done = launch_on_hosts("-n 220", 100, "cat")
    assert done.returncode == 1
    words = "cat cannot be started: too many open files: the 220 that this process may have are in use; raise the hard"
    assert done.stderr.startswith(f"ringcast-launch: {words} limit ")
