"""Jobs over emulated hosts by real ssh: ranks of one host share memory, others talk over tcp, as their sockets show."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.fleets import AGENT, Fleet, finished, last_line
from support.patience import patience

pytestmark = pytest.mark.usefixtures("nothing_on_hosts")

# Every rank sends to every other one, and tells which connections have come to its inbox.
SOCKETS = """
import json, time
import numpy as np, psutil, ringcast
comm = ringcast.init()
for distance in range(1, comm.size):
    for value in (comm.rank, np.full(100_000, comm.rank)):
        got = comm.sendrecv(value, (comm.rank + distance) % comm.size, (comm.rank - distance) % comm.size)
        assert np.all(got == (comm.rank - distance) % comm.size)
transport = comm._group.endpoint.transport
inbox = int(transport.address.rpartition(":")[2])
me = psutil.Process()
came = [c.raddr.ip for c in me.net_connections("tcp") if c.laddr.port == inbox and c.status == psutil.CONN_ESTABLISHED]
told = {"rank": comm.rank, "host": transport.address.removeprefix("tcp://").rpartition(":")[0], "tcp": sorted(came)}
print(json.dumps({**told, "memory": len(transport.lenders), "strangers": transport.strangers}))
comm.barrier()
"""


@dataclass(frozen=True)
class Told:
    """The report of a rank on the connections that came to it."""

    rank: int
    host: str
    tcp: list[str]  # from where
    memory: int  # number of ranks with which it shares some
    strangers: int


def connections(hosts: Fleet, *arguments: str, **environment: str) -> list[Told]:
    done = hosts.launch("--output", "none", *arguments, hosts.program(SOCKETS), **environment)
    assert done.returncode == 0, done.stderr
    return sorted((Told(**json.loads(line)) for line in done.stdout.splitlines()), key=lambda told: told.rank)


def check(told: list[Told], near: Mapping[int, int]) -> None:
    """All connections were made, and memory is shared with as many as is said of each rank; none was a stranger's."""
    assert [each.rank for each in told] == [*near]
    for each in told:
        assert each.memory == near[each.rank]
        assert len(each.tcp) == len(told) - 1 - each.memory
        assert each.strangers == 0


@pytest.mark.parametrize(
    ("security", "placement"),
    [
        ("curve", "block"),
        ("none", "cyclic"),
        pytest.param("curve", "cyclic", marks=pytest.mark.long),
        pytest.param("none", "block", marks=pytest.mark.long),
    ],
)
def test_ranks_of_a_host_share_memory_and_all_others_talk_over_tcp(hosts: Fleet, placement: str, security: str) -> None:
    told = connections(hosts, "-H", "h0:3,h1:2,h2", "--placement", placement, "--security", security)
    ranks: dict[str, list[int]] = {}
    for each in told:
        ranks.setdefault(each.host, []).append(each.rank)
    assert sorted(map(len, ranks.values())) == [1, 2, 3]
    check(told, {each.rank: len(ranks[each.host]) - 1 for each in told})
    for each in told:
        elsewhere = [other.host for other in told if other.host != each.host]
        assert each.tcp == sorted(elsewhere)


def test_whoever_wants_tcp_gets_it_between_all_ranks(hosts: Fleet) -> None:
    told = connections(hosts, "-H", "h0:2,h1:2", "--transport", "tcp")
    check(told, dict.fromkeys(range(4), 0))


def test_whoever_wants_zeromq_gets_it_between_all_ranks(hosts: Fleet) -> None:
    """Over ipc within a host, over tcp between hosts; no memory is shared."""
    told = connections(hosts, "-H", "h0:2,h1:2", "--transport", "zeromq")
    for each in told:
        assert each.memory == each.strangers == 0
        assert each.tcp == [other.host for other in told if other.host != each.host]


def local(hosts: Fleet, *own: str) -> list[str]:
    """Return the options of a job on "hosts" that are all h0; each but the first, in a mount namespace with `own`."""
    script = hosts.folder / "starter"
    private = f"mount -t tmpfs -o mode=1777 tmpfs {hosts.temporary}" if own else "true"
    script.write_text(f'#!/bin/sh\nshift\nexec unshare -m sh -c "{private}; $*"\n')
    script.chmod(0o755)
    return ["-H", "h0:2,other:2", "--rsh-agent", shlex.quote(str(script)), "--iface", "e0"]


@pytest.mark.long
def test_hosts_of_one_machine_share_memory_whatever_files_they_have(hosts: Fleet) -> None:
    check(connections(hosts, *local(hosts)), dict.fromkeys(range(4), 3))
    check(connections(hosts, *local(hosts, "files")), dict.fromkeys(range(4), 3))


@pytest.mark.long
def test_a_directory_with_a_long_name_is_no_obstacle(hosts: Fleet, tmp_path: Path) -> None:
    long = tmp_path / ("x" * 90)
    long.mkdir()
    check(connections(hosts, "-H", "h0:2,h1", TMPDIR=str(long)), {0: 1, 1: 1, 2: 0})


# Rank 2 kills itself; the others tell when they hear of it, and whose end it was.
KILLED = """
import json, os, signal, sys, time
import numpy as np, ringcast
comm = ringcast.init()
value, at = np.ones(int(sys.argv[1])), sys.argv[2]
for _ in range(5):
    comm.allreduce(value)
print("running", flush=True)
try:
    while True:
        comm.allreduce(value)
        if comm.rank == 2:
            with open(at, "w") as file:
                file.write(str(time.monotonic()))
            os.kill(os.getpid(), signal.SIGKILL)
except ringcast.PeerFailed as error:
    now = time.monotonic()
    print(json.dumps({"rank": comm.rank, "peer": error.peer, "after": now - float(open(at).read())}), flush=True)
    raise
"""
HEARD = 6.0  # seconds, on a busy machine: within one everybody is told


@pytest.mark.parametrize("items", ["100", "300000"])
def test_a_killed_rank_is_named_to_those_near_and_far(hosts: Fleet, items: str) -> None:
    at = hosts.folder / f"killed-{items}"
    arguments = ["-H", "h0:2,h1:2", "--output", "none", hosts.program(KILLED), items, str(at)]
    done = hosts.launch(*arguments)
    assert done.returncode == 128 + signal.SIGKILL
    assert re.fullmatch(r"ringcast-launch: rank 2 \(h1, pid \d+\) failed: killed by SIGKILL", last_line(done))
    heard: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines() if line != "running"]
    assert {each["rank"]: each["peer"] for each in heard} == {0: 2, 1: 2, 3: 2}
    assert max(each["after"] for each in heard) < patience(HEARD)


TOGETHER = """
import time, ringcast
comm = ringcast.init()
comm.allgather(comm.rank)
print("running", flush=True)
time.sleep(1000)
"""
ENDS: dict[str, Callable[[Fleet, int], None]] = {
    "the agent is killed": lambda hosts, _: os.kill(hosts.pid_of(1, AGENT), signal.SIGKILL),
    "the launcher is killed": lambda _, launcher: os.kill(launcher, signal.SIGKILL),
    "the launcher is asked to end": lambda _, launcher: os.kill(launcher, signal.SIGTERM),
    "a rank is killed": lambda hosts, _: os.kill(hosts.workers(1)[0], signal.SIGKILL),
}


LATER = [end for end in ENDS if end != "a rank is killed"]


@pytest.mark.parametrize("end", ["a rank is killed", *(pytest.param(end, marks=pytest.mark.long) for end in LATER)])
def test_no_socket_stays_however_a_job_ends(hosts: Fleet, end: str) -> None:
    """Leftovers are looked for after each test."""
    arguments = ["-H", "h0:2,h1:2", "--transport", "zeromq", "--output", "none", hosts.program(TOGETHER)]
    with hosts.started(*arguments) as process:
        assert [process.stdout.readline() for _ in range(4)] == ["running\n"] * 4
        sockets = [file.name for file in hosts.temporary.glob("*/rank-*")]
        assert sorted(sockets) == [f"rank-{rank}" for rank in range(4)]
        ENDS[end](hosts, process.pid)
        finished(process)


def test_nodes_that_come_by_themselves_are_no_exception(hosts: Fleet) -> None:
    program = hosts.program(SOCKETS)
    address = hosts.bed.hosts[0].address
    with ExitStack() as stack:
        nodes = [
            stack.enter_context(
                hosts.started(
                    *("--nnodes", "2", "--node-rank", str(node), "--rdzv-endpoint", f"{address}:29500", "-N", "2"),
                    *("--output", "none", program),
                    host=node,
                    HOME=str(hosts.folder),
                )
            )
            for node in range(2)
        ]
        done = [finished(node) for node in nodes]
    assert [each.returncode for each in done] == [0, 0], done
    told = [Told(**json.loads(line)) for line in done[0].stdout.splitlines()]
    check(sorted(told, key=lambda each: each.rank), dict.fromkeys(range(4), 1))
