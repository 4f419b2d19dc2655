"""The ports of a job: their order, what a range may be, and that all of them are within it."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import zmq

from ringcast.control import ControlServer, new_key
from ringcast.errors import RendezvousError
from ringcast.net.ports import PortRange, endpoints, parse
from ringcast.transports.zeromq import ZeroMQTransport
from support.patience import patience


def test_every_rank_tries_every_port_once_and_ranks_begin_apart() -> None:
    for count in range(1, 40):
        ports = PortRange(1000, 999 + count)
        for size in range(1, 45):
            orders = [list(ports.order(rank, size)) for rank in range(size)]
            assert all(sorted(order) == list(range(1000, 1000 + count)) for order in orders)
            assert len({order[0] for order in orders}) == min(count, size)


@pytest.mark.parametrize("text", ["", "-", "a", "1-", "-1", "2-1", "0-5", "1-65536", "1-2-3", "1 - 2", "²-3", "1,2"])
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="FIRST-LAST"):
        parse(text)


@pytest.mark.parametrize("text", ["1-65535", "20000-20063", "7-7"])
def test_a_range_is_written_as_it_is_read(text: str) -> None:
    assert str(parse(text)) == text


def free_range(count: int) -> PortRange:
    """Return ports that nobody listens at, below those that the system gives; other tests, at the same time, begin
    elsewhere.
    """
    for first in range(22000 + os.getpid() % 400 * 20, 32000, count):
        found = PortRange(first, first + count - 1)
        try:
            for port in range(first, first + count):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        return found
    raise AssertionError("no free ports")


@pytest.mark.usefixtures("nothing_left")
def test_as_many_inboxes_as_ports_and_then_an_error() -> None:
    ports, key = free_range(5), new_key()
    made = [ZeroMQTransport(endpoints("127.0.0.1", ports, rank, 3)) for rank in (0, 1, 2, 0, 1)]
    numbers = {int(transport.address.rpartition(":")[2]) for transport in made}
    assert numbers == set(range(ports.first, ports.last + 1))
    with pytest.raises(zmq.ZMQError) as error:
        ZeroMQTransport(endpoints("127.0.0.1", ports, 2, 3))
    assert error.value.errno == errno.EADDRINUSE
    with zmq.Context() as context, pytest.raises(RendezvousError, match="the control plane cannot listen at"):
        ControlServer(context, endpoints("127.0.0.1", ports, 3, 4), size=3, nonce=1, key=key)
    for transport in made:
        transport.close()


PROGRAM = """
import psutil, ringcast
comm = ringcast.init()
comm.barrier()
listens = [c.laddr for c in psutil.Process().net_connections(kind="inet") if c.status == psutil.CONN_LISTEN]
print(*(port for _, port in listens))
comm.barrier()
"""


def launch(ports: PortRange, size: int, folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "ringcast_launcher", "-n", str(size), "--transport", "tcp", "-v"]
    options = ["--output", "none", "--port-range", str(ports), str(folder / "program.py")]
    return subprocess.run([*command, *options], capture_output=True, text=True, timeout=patience(60))


@pytest.mark.live
def test_all_ports_of_a_job_are_in_the_range_and_none_is_too_many(tmp_path: Path) -> None:
    ports = free_range(4)
    done = launch(ports, 3, tmp_path)
    assert done.returncode == 0, done.stderr
    used = {int(line) for line in done.stdout.split()}
    assert len(used) == 3
    assert all(port in ports for port in used)
    assert all(f"joined: tcp://127.0.0.1:{port}" in done.stderr for port in used)


def test_a_range_that_is_too_small_is_an_error_that_names_it(tmp_path: Path) -> None:
    ports = free_range(3)
    done = launch(ports, 3, tmp_path)
    assert done.returncode == 2
    assert f"--port-range {ports}: 3 are too few: host {socket.gethostname()} needs 4, for 3 ranks" in done.stderr


def test_a_range_of_which_others_use_a_part_is_an_error_that_names_it(tmp_path: Path) -> None:
    ports = free_range(4)
    with socket.create_server(("127.0.0.1", ports.first + 1)):
        done = launch(ports, 3, tmp_path)
    assert done.returncode == 1
    assert f"none of the ports {ports} is free; end the programs that use them, or allow more" in done.stderr


def test_the_launcher_refuses_a_range_that_is_none() -> None:
    command = [sys.executable, "-m", "ringcast_launcher", "-n", "1", "--port-range", "9-1", "true"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(60))
    assert (done.returncode, done.stdout) == (2, "")
    assert "ringcast-launch: --port-range '9-1': expected FIRST-LAST" in done.stderr


def test_the_launcher_refuses_an_interface_that_is_not_there() -> None:
    command = [sys.executable, "-m", "ringcast_launcher", "-n", "1", "--transport", "tcp", "--iface", "nic9", "true"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RINGCAST_")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(60), env=environment)
    assert (done.returncode, done.stdout) == (2, "")
    assert "no interface is as wished by --iface nic9; there are: " in done.stderr
    assert all(name in done.stderr for name, state in psutil.net_if_stats().items() if state.isup)
