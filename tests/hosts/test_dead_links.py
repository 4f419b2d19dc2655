"""Links between two ranks that live die, never come up, or are only bad: on emulated hosts, with the real kernel.

All of these hosts still reach the launcher. docs/operate/failures.md promises 15 seconds until every rank has heard of
a link that died, and 20 where one never came up.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil
import pytest

from ringcast.commands.bench.bed import Bed
from ringcast.commands.bench.workers import start_workers
from support import needs
from support.beds import ENVIRONMENT, PROGRAMS, drop, make_bed, on, outputs
from support.fleets import Fleet, finished, last_line, until
from support.patience import patience

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("nothing_on_hosts")]

DIED, LATE = 15.0, 20.0  # seconds
START = 8.0  # seconds that ranks may take to reach their neighbours
A, B = 1, 2  # the ranks, and hosts, between which the link is
FOREVER = str(PROGRAMS / "without_end.py")
TRANSPORTS = pytest.mark.parametrize("transport", ["sockets", "tcp"])
TABLE = "add table ip t; add chain ip t i { type filter hook input priority 0; }; "


def filtered(bed: Bed, host: int, rule: str) -> None:
    """Let a host do this with packets that come in; the rules before are forgotten."""
    needs.programs([] if shutil.which("nft", path="/usr/sbin:/sbin:/usr/bin") else ["nft"], "nftables")
    on(bed, host, "nft", f"{TABLE}flush chain ip t i; add rule ip t i {rule}")


def unfiltered(bed: Bed, host: int) -> None:
    on(bed, host, "nft", f"{TABLE}flush chain ip t i")


@contextmanager
def healed(hosts: Fleet) -> Iterator[None]:
    """Take all filters away at the end."""
    try:
        yield
    finally:
        for host in A, B:
            unfiltered(hosts.bed, host)


def dropped(bed: Bed, host: int, source: int, which: str = "", how: str = "drop") -> None:
    filtered(bed, host, f"ip saddr {bed.hosts[source].address} {which} {how}")


def data_ports(bed: Bed, host: int, peer: int) -> tuple[int, int]:
    """Return the ports, here and there, of the connection over which the rank of `host` sends to the rank of `peer`."""
    said = on(bed, host, "ss", "-Htn", "state", "established", "dst", bed.hosts[peer].address)
    ours = [tuple(int(field.rpartition(":")[2]) for field in line.split()[2:4]) for line in said.splitlines()]
    listening = {int(line.split()[3].rpartition(":")[2]) for line in on(bed, host, "ss", "-Htln").splitlines()}
    (found,) = [ports for ports in ours if ports[0] not in listening]
    return found[0], found[1]


def both(bed: Bed) -> None:
    dropped(bed, A, B)
    dropped(bed, B, A)


def one_way(bed: Bed) -> None:
    dropped(bed, B, A)


def other_way(bed: Bed) -> None:
    dropped(bed, A, B)


def large(bed: Bed) -> None:
    dropped(bed, A, B, "ip length gt 600")
    dropped(bed, B, A, "ip length gt 600")


def forgotten(bed: Bed) -> None:
    source, sink = data_ports(bed, A, B)
    dropped(bed, B, A, f"tcp sport {source} tcp dport {sink}")


def reset(bed: Bed) -> None:
    """Let only one end of one connection hear that it is reset."""
    source, sink = data_ports(bed, A, B)
    dropped(bed, B, A, f"tcp sport {source} tcp dport {sink}", "reject with tcp reset")


def running(process: subprocess.Popen[str], size: int = 4) -> None:
    for _ in range(size):
        line = process.stdout.readline()
        assert line.endswith("running\n"), line + process.stderr.read()


def told(out: str) -> dict[int, dict[str, Any]]:
    """Return what each rank printed as JSON, under the launcher."""
    return {int(rank): json.loads(text) for rank, text in re.findall(r"^\[(\d+)\] (\{.*\})$", out, re.MULTILINE)}


@TRANSPORTS
@pytest.mark.parametrize("cut", [both, one_way, other_way, large, forgotten, reset])
def test_a_link_that_dies_is_known_to_all(hosts: Fleet, cut: Any, transport: str) -> None:
    arguments = ["-H", "h0,h1,h2,h3", "--transport", transport, FOREVER, "allreduce", "400000", "0"]
    with healed(hosts), hosts.started(*arguments) as process:
        running(process)
        start = time.monotonic()
        cut(hosts.bed)
        done = finished(process)
    ends = told(done.stdout)
    assert len(ends) >= 3, done.stderr  # all but the one that was given up, perhaps
    for rank, end in ends.items():
        assert end["time"] - start < patience(DIED), (rank, end)
        assert end["type"] in ("PeerFailed", "Revoked"), (rank, end)
        assert all(hosts.bed.hosts[host].address in end["text"] for host in (A, B)), (rank, end)
    assert done.returncode == 1
    if cut is not reset:  # there the rank that heard of it may have ended before the other one is given up
        named = re.match(r"ringcast-launch: rank 2 \(h2, pid \d+\) failed: the link between ", last_line(done))
        assert named, done.stderr


SENDS_AND_COMPUTES = """
import json, os, sys, time
import numpy as np
import ringcast
comm = ringcast.init()
comm.barrier()
print("running", flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
try:
    comm.bcast(np.arange(10) if comm.rank == 1 else None, 1)
    if comm.rank == 1:
        time.sleep(1000)
    comm.barrier()
except ringcast.RingcastError as error:
    print(json.dumps({"time": time.monotonic(), "type": type(error).__name__, "text": str(error)}), flush=True)
"""


@TRANSPORTS
def test_a_connection_that_was_forgotten_is_known_while_its_sender_computes(hosts: Fleet, transport: str) -> None:
    cut = hosts.folder / f"cut-{transport}"
    arguments = ["-H", "h0,h1,h2,h3", "--transport", transport, hosts.program(SENDS_AND_COMPUTES), str(cut)]
    with healed(hosts), hosts.started(*arguments) as process:
        running(process)
        forgotten(hosts.bed)
        start = time.monotonic()
        cut.touch()
        done = finished(process)
    ends = told(done.stdout)
    assert set(ends) >= {0, 3}, done.stderr
    for rank, end in ends.items():
        assert end["time"] - start < patience(DIED), (rank, end)
        assert all(hosts.bed.hosts[host].address in end["text"] for host in (A, B)), (rank, end)
    assert done.returncode == 1


def over(transport: str, *arguments: str) -> list[str]:
    """Return the command by which a rank that has no launcher uses this transport."""
    return ["env", f"RINGCAST_TRANSPORT={transport}", sys.executable, *arguments]


EXCHANGES = """
import json, sys, time
import numpy as np
import ringcast
comm = ringcast.init()
began = time.monotonic()
try:
    comm.alltoall(np.zeros((comm.size, 100_000 // comm.size), np.int64))
except ringcast.RingcastError as error:
    facts = {"began": began, "time": time.monotonic(), "type": type(error).__name__, "text": str(error)}
    print(json.dumps(facts), flush=True)
"""


@TRANSPORTS
def test_a_link_that_never_comes_up_is_known_to_all(transport: str) -> None:
    with make_bed("8") as bed:  # of which h1 and h4 are no neighbours on the graph: init is content
        for here, there in (1, 4), (4, 1):
            drop(bed, here, bed.hosts[there].address)
        files = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
        workers = start_workers(bed, over(transport, "-c", EXCHANGES), ENVIRONMENT, **files)
        ends = [json.loads(worker.communicate(timeout=patience(100))[0]) for worker in workers]
    began = max(end["began"] for end in ends)
    for rank, end in enumerate(ends):
        assert end["time"] - began < patience(LATE), (rank, end)
        assert end["type"] in ("PeerFailed", "Revoked", "JobAborted"), (rank, end)
        assert all(bed.hosts[host].address in end["text"] for host in (1, 4)), (rank, end)


@TRANSPORTS
@pytest.mark.parametrize("cut", [both, one_way, other_way])
def test_a_link_that_was_cut_before_is_an_error_at_the_start(hosts: Fleet, cut: Any, transport: str) -> None:
    """Of the ranks at its ends; the others hear of that. Where it is cut in one direction no connection is made."""
    limit = patience(START)
    limits = "--transport", transport, "--start-timeout", f"{limit:g}"
    with healed(hosts):
        cut(hosts.bed)
        start = time.monotonic()
        done = hosts.launch("-H", "h0,h1,h2,h3", *limits, FOREVER, "barrier", "0", "0")
        assert time.monotonic() - start < limit + patience(LATE)
    assert done.returncode == 1
    ends = [rf"{re.escape(hosts.bed.hosts[host].address)}:\d+" for host in (A, B)]
    error = (
        rf"rank (1 at tcp://{ends[0]} .* rank 2 at tcp://{ends[1]}|2 at tcp://{ends[1]} .* rank 1 at tcp://{ends[0]})"
    )
    assert re.search(f"RendezvousError: {error}", done.stderr), done.stderr
    assert re.match(r"ringcast-launch: rank [12] \(h[12], pid \d+\) failed: ", last_line(done)), done.stderr


@TRANSPORTS
def test_a_link_that_comes_back_at_the_start_is_no_failure(hosts: Fleet, transport: str) -> None:
    limits = "--transport", transport, "--start-timeout", f"{patience(30):g}"
    arguments = ["-H", "h0,h1,h2,h3", *limits, FOREVER, "barrier", "0", "10"]
    with healed(hosts):
        both(hosts.bed)
        with hosts.started(*arguments) as process:
            until(lambda: "SYN-SENT" in on(hosts.bed, A, "ss", "-Htan", "dst", hosts.bed.hosts[B].address), 30)
            for host in A, B:
                unfiltered(hosts.bed, host)
            done = finished(process)
    assert done.returncode == 0, done.stderr


COMPUTES = """
import time
import numpy as np
import ringcast
comm = ringcast.init()
comm.barrier()
if comm.rank == 2:
    time.sleep(60)
total = comm.allreduce(np.full(50_000, comm.rank))
assert (total == 6).all()
"""


@TRANSPORTS
def test_a_rank_that_computes_for_a_minute_has_no_dead_link(hosts: Fleet, transport: str) -> None:
    done = hosts.launch("-H", "h0,h1,h2,h3", "--transport", transport, hosts.program(COMPUTES))
    assert done.returncode == 0, done.stderr


@TRANSPORTS
def test_a_slow_link_with_a_full_queue_is_not_dead(transport: str) -> None:
    files = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with make_bed("4x256kbit") as bed:
        command = over(transport, FOREVER, "alltoall", "400000", "2")
        said = outputs(start_workers(bed, command, ENVIRONMENT, **files), 110)
    assert said == ["null\n"] * 4


@TRANSPORTS
def test_a_link_that_loses_a_third_is_not_dead(hosts: Fleet, transport: str) -> None:
    arguments = ["-H", "h0,h1,h2,h3", "--transport", transport, FOREVER, "allreduce", "8000", "200"]
    with healed(hosts), hosts.started(*arguments) as process:
        running(process)
        for here, there in (A, B), (B, A):
            dropped(hosts.bed, here, there, "numgen random mod 100 < 30")
        time.sleep(25)  # the time that is tested; a rank that leaves gives its last messages only five seconds
        for host in A, B:
            unfiltered(hosts.bed, host)
        done = finished(process)
    assert done.returncode == 0, done.stderr


@TRANSPORTS
def test_a_link_that_is_away_for_two_seconds_is_not_dead(hosts: Fleet, transport: str) -> None:
    arguments = ["-H", "h0,h1,h2,h3", "--transport", transport, FOREVER, "allreduce", "400000", "200"]
    with healed(hosts), hosts.started(*arguments) as process:
        running(process)
        both(hosts.bed)
        time.sleep(2)  # the time without a link is what is tested
        for host in A, B:
            unfiltered(hosts.bed, host)
        done = finished(process)
    assert done.returncode == 0, done.stderr


@TRANSPORTS
def test_a_job_that_is_frozen_for_forty_seconds_goes_on(hosts: Fleet, transport: str) -> None:
    arguments = ["-H", "h0,h1,h2,h3", "--transport", transport, FOREVER, "allreduce", "400000", "40"]
    with hosts.started(*arguments) as process:
        running(process)
        frozen = [*hosts.processes()]
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        # nsenter stops itself when its command has stopped; one that is stopped before would do so afterwards.
        until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED, 10)
        time.sleep(40)  # the time that is tested
        for pid in [*frozen, process.pid]:
            os.kill(pid, signal.SIGCONT)
        done = finished(process)
    assert done.returncode == 0, done.stderr
