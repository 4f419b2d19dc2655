"""Ranks on emulated hosts: where they listen, and what they say of neighbours that they do not reach."""

from __future__ import annotations

import re
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from ringcast.bootstrap import connectivity
from ringcast.commands.bench.bed import Bed
from ringcast.config.worker import WorkerConfig
from ringcast.control import new_key
from ringcast.net.ports import PortRange
from ringcast.transports.zeromq import ZeroMQTransport
from ringcast.wire.endpoint_card import EndpointCard
from support.beds import ENVIRONMENT, PROGRAMS, drop, make_bed, on, outputs
from support.patience import patience

MEET = [sys.executable, str(PROGRAMS / "meet.py")]
PORTS = PortRange(20000, 20003)
FIX = "open the ports in the firewalls (RINGCAST_PORTS bounds them) or choose another interface"


def test_what_becomes_of_connections_is_told() -> None:
    a, b, stranger = (ZeroMQTransport("tcp://127.0.0.1:*") for _ in range(3))
    with socket.socket() as silent, socket.socket() as closed:
        for listener in silent, closed:
            listener.bind(("127.0.0.1", 0))
        silent.listen()  # takes connections and never says a word
        others = [f"tcp://127.0.0.1:{listener.getsockname()[1]}" for listener in (silent, closed)]
        cards = [a.card, b.card, *(EndpointCard(each, a.public_key) for each in (stranger.address, *others))]
        a.meet(cards)
        b.meet(cards[:2])
        a.connect([1, 2, 3, 4])
        deadline = a.clock() + patience(20)
        while (told := a.unreached()).keys() != {2, 3, 4} or not (told[2] and told[4]):
            assert a.clock() < deadline, told
            a.wait_for_news(deadline)
    assert "is not that rank" in told[2]
    assert told[3] == ""
    assert "refused" in told[4]
    a.stop_watching()
    assert a.unreached() == {}
    a.send(1, [b"header"])
    assert b.poll(b.clock() + patience(20)) is not None
    for transport in a, b, stranger:
        transport.close()


def test_the_deadline_ends_all_and_a_refusal_after_a_while() -> None:
    for now in (0.0, 2.9, 3.0, 8.9, 9.0):
        for refused in ({}, {2: 0.0}, {2: 0.0, 5: 5.5}):
            found = connectivity.overdue({1: "", 2: "x", 5: "x"}, refused, now, 9.0)
            late = [peer for peer, seen in refused.items() if now - seen >= connectivity.GRACE]
            assert found == ([1, 2, 5] if now >= 9.0 else late)


@pytest.fixture
def bed() -> Iterator[Bed]:
    with make_bed("3") as made:
        yield made


def start(bed: Bed, control: str, hosts: Sequence[int] = (0, 1, 2), **settings: Any) -> list[subprocess.Popen[str]]:
    """Start a rank on each host; settings are fields of WorkerConfig, as lists where ranks differ."""
    nonce, key = secrets.randbits(64), new_key()
    files = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    workers = []
    for rank, host in enumerate(hosts):
        mine = {name: value[rank] if isinstance(value, list) else value for name, value in settings.items()}
        config = WorkerConfig(rank, len(hosts), control, nonce=nonce, key=key, transport="tcp", **mine)
        workers.append(bed.start(host, MEET, env={**ENVIRONMENT, **config.environment()}, **files))
    return workers


def places(printed: Sequence[str]) -> list[str]:
    """Return where each rank listens, after a look at the sum."""
    assert [text.split()[0] for text in printed] == ["3"] * len(printed)
    return [text.split()[1] for text in printed]


@pytest.mark.parametrize("name", ["h0", "10.77.0.1"])
def test_each_rank_listens_at_the_address_that_leads_to_the_rendezvous(bed: Bed, name: str) -> None:
    assert places(outputs(start(bed, f"tcp://{name}:20000"))) == ["10.77.0.1", "10.77.0.2", "10.77.0.3"]


def test_a_host_name_that_is_loopback_fools_nobody(bed: Bed) -> None:
    on(bed, 0, "sh", "-c", "sed '/h0/d; 1s/$/\\n127.0.1.1 h0/' /etc/hosts >/dev/shm/x; cat /dev/shm/x >/etc/hosts")
    assert places(outputs(start(bed, "tcp://h0:20000"))) == ["10.77.0.1", "10.77.0.2", "10.77.0.3"]
    several = start(bed, "tcp://h0:20001", hosts=(0, 0, 1))
    assert places(outputs(several)) == ["10.77.0.1", "10.77.0.1", "10.77.0.2"]


def test_ipv6_and_a_job_of_both_families(bed: Bed) -> None:
    for host in range(3):
        on(bed, host, "ip", "address", "add", f"fd77::{host + 1}/64", "dev", "e0", "nodad")
    assert places(outputs(start(bed, "tcp://[fd77::1]:20000"))) == ["fd77::1", "fd77::2", "fd77::3"]
    wishes = ["fd77::/64", "10.0.0.0/8", "e0"]
    assert places(outputs(start(bed, "tcp://10.77.0.1:20001", iface=wishes))) == ["fd77::1", "10.77.0.2", "10.77.0.3"]


def test_all_ports_are_in_the_range(bed: Bed) -> None:
    printed = outputs(start(bed, "tcp://10.77.0.1:20000", hosts=(0, 0, 1), ports=PORTS))
    assert all(int(text.split()[2]) in PORTS for text in printed)


def test_an_interface_of_several(bed: Bed) -> None:
    for host in range(3):
        on(bed, host, "ip", "address", "add", f"10.88.0.{host + 1}/24", "dev", "e0")
    wished = start(bed, "tcp://10.77.0.1:20000", iface="10.88.0.0/16", debug="info")
    printed = outputs(wished)
    for rank, text in enumerate(printed):
        line = next(line for line in text.splitlines() if "listens" in line)
        assert re.fullmatch(
            rf"ringcast: rank {rank} listens at tcp://10\.88\.0\.{rank + 1}:\d+ \(.*10\.88\.0\.0/16\)", line
        )


@pytest.mark.long
def test_what_is_advertised_is_where_the_others_connect(bed: Bed) -> None:
    """Rank 2 is reached by its second address only, which it does not listen at: a gateway would forward."""
    on(bed, 2, "ip", "address", "add", "10.88.0.3/32", "dev", "lo")
    for host in 0, 1:
        on(bed, host, "ip", "route", "add", "10.88.0.3/32", "via", "10.77.0.3")
    failed = ended(start(bed, "tcp://10.77.0.1:20000", advertise=["", "", "10.88.0.3"]), 30)
    assert any("to rank 2 at tcp://10.88.0.3:" in text for text in failed)  # nothing forwards here
    printed = outputs(start(bed, "tcp://10.77.0.1:20001", advertise=["", "h1", "10.77.0.3"]))
    assert places(printed) == ["10.77.0.1", "10.77.0.2", "10.77.0.3"]


def ended(workers: list[subprocess.Popen[str]], timeout: float) -> list[str]:
    """Return the output of workers; all must fail by themselves within `patience(timeout)`."""
    deadline = time.monotonic() + patience(timeout)
    try:
        said = [worker.communicate(timeout=max(0.1, deadline - time.monotonic()))[0] for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    assert all(worker.returncode for worker in workers), "\n".join(said)
    return said


def test_a_firewall_between_two_ranks_is_an_error_that_names_both_ends(bed: Bed) -> None:
    drop(bed, 1, "10.77.0.3")
    limit = patience(4.0)
    begin = time.monotonic()
    said = ended(start(bed, "tcp://10.77.0.1:20000", start_timeout=limit, ports=PORTS), 40)
    assert time.monotonic() - begin < patience(25)
    both = (
        r"rank ([12]) at tcp://10\.77\.0\.[23]:2000\d gets no connection to rank ([12]) at tcp://10\.77\.0\.[23]:2000\d"
    )
    found = [re.search(both, text) for text in said[1:]]
    assert any(found), "\n".join(said)
    assert all(match[1] != match[2] for match in found if match)
    assert any(f"nothing came back within {limit:g} s, as if a firewall dropped the packets" in text for text in said)
    assert any(FIX in text for text in said)
    assert "PeerFailed: rank 0: peer rank" in said[0]


@pytest.mark.long
def test_a_refusal_is_an_error_at_once(bed: Bed) -> None:
    begin = time.monotonic()
    said = ended(start(bed, "tcp://10.77.0.1:20000", advertise=["", "", "10.77.0.2"]), 40)
    assert time.monotonic() - begin < patience(30)  # much less than the 60 s of a start
    assert any("gets no connection to rank 2 at tcp://10.77.0.2:" in text and "refused" in text for text in said)


@pytest.mark.parametrize("deed", ["sys.exit(0)", "import os; os._exit(0)"])
def test_a_neighbour_that_leaves_at_once_is_not_taken_for_unreachable(deed: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        f"import os, sys, ringcast\ncomm = ringcast.init()\nif comm.rank == 1:\n    {deed}\n"
    )
    command = [sys.executable, "-m", "ringcast_launcher", "-n", "4", "--transport", "tcp", str(tmp_path / "program.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(60))
    assert "RendezvousError" not in done.stderr
    assert "gets no connection" not in done.stderr


def test_a_rank_that_fails_at_once_is_the_cause(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import ringcast\ncomm = ringcast.init()\nif comm.rank == 1:\n    raise ValueError('mine')\ncomm.barrier()\n"
    )
    command = [sys.executable, "-m", "ringcast_launcher", "-n", "4", "--transport", "tcp", str(tmp_path / "program.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(60))
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("ringcast-launch: rank 1 "), done.stderr
    assert "gets no connection" not in done.stderr
