"""A link with delay and loss between two emulated hosts, and a copy over it."""

from __future__ import annotations

import os
import socket
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from ringcast.commands.bench.long_link import LongLink, _Direction, long_link
from support.beds import on, run_on
from support.fleets import LIMIT, Fleet, fleet

CONNECT = """
import socket, time
begun = time.monotonic()
try:
    socket.create_connection(("h1", 1))
except ConnectionRefusedError:
    print(time.monotonic() - begun)
"""


def crossed(link: LongLink, packets: int, every: float) -> list[float]:
    """Send packets of 1000 bytes, one `every` so many seconds; return when they arrive."""
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with near, far:
        far.setblocking(False)
        way = _Direction(near.fileno(), link, link.seed)
        arrivals, sent, now = [], 0, 0.0
        while sent < packets or now < packets * every + 1.0:
            while sent < packets and now >= sent * every:
                way.take(bytes(1000), now)
                sent += 1
            way.deliver(now)
            with suppress(BlockingIOError):
                while far.recv(2000):
                    arrivals.append(now)
            now += 0.0005
        return arrivals


def test_packets_arrive_after_the_delay_at_the_rate_of_the_line() -> None:
    arrivals = crossed(LongLink(8_000_000, 0.025, 0.0), 20, 0.0)
    assert arrivals == pytest.approx([0.025 + 0.001 * (i + 1) for i in range(20)], abs=0.0011)


def test_a_queue_that_is_full_drops_packets() -> None:
    assert len(crossed(LongLink(8_000_000, 0.025, 0.0), 200, 0.0)) == pytest.approx(51, abs=1)


def test_so_many_packets_are_lost_and_always_the_same() -> None:
    link = LongLink(80_000_000, 0.002, 0.1)
    first = crossed(link, 1000, 0.0005)
    assert 860 <= len(first) <= 940
    assert first == crossed(link, 1000, 0.0005)


def test_a_copy_over_a_long_link_uses_several_connections(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(os.urandom(8 << 20))
    with fleet("2", tmp_path) as hosts, long_link(hosts.bed, 0, 1, LongLink(100_000_000, 0.01, 0.001)):
        assert 0.02 <= float(on(hosts.bed, 0, sys.executable, "-c", CONNECT)) < 1.0
        command = [sys.executable, "-m", "ringcast", "cp", str(source), "-H", "h1:/dev/shm/data/"]
        before = opened(hosts)
        done = run_on(hosts.bed, 0, command, LIMIT, hosts.environment)
        assert (done.returncode, done.stderr) == (0, "")
        assert opened(hosts) - before >= 2 * 16
        digests = {on(hosts.bed, 1, "sha256sum", path).split()[0] for path in (str(source), "/dev/shm/data/source")}
        assert len(digests) == 1
        hosts.assert_empty()


def opened(hosts: Fleet) -> int:
    """Return how many connections the first host has made or accepted so far."""
    names, values = (line.split() for line in on(hosts.bed, 0, "grep", "Tcp:", "/proc/net/snmp").splitlines())
    counts = dict(zip(names, values, strict=True))
    return int(counts["ActiveOpens"]) + int(counts["PassiveOpens"])
