"""A stranger to the job gets nothing in, with any knowledge or recorded packets, and the job is not disturbed."""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import zmq

from ringcast.config.worker import CURVE, NONE, WorkerConfig
from ringcast.control import ControlClient, ControlServer, new_key
from ringcast.control.envelope import longest_to_server, seal
from ringcast.net.fd_limits import STRANGERS
from ringcast.net.keys import OPEN, KeyPair, control_pair, is_key, member_pair, new_pair
from ringcast.net.strangers import WELCOMED, exchanged
from ringcast.transports.zeromq import ZeroMQTransport
from ringcast.wire.control_messages import Leave
from ringcast.wire.endpoint_card import EndpointCard
from ringcast.wire.header import LARGEST_FRAME
from support.intruders import LIMIT, another_jobs_member, arrivals, knock
from support.jobs import meet
from support.patience import patience
from support.ports import free_port

pytestmark = pytest.mark.usefixtures("nothing_left")

CONNECTIONS = 10_000  # of a flood, to all doors of a job together
HALF_OPEN = 40  # of these at each door are kept open, silent, while the job works
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

# Works until the test says that it is over and as many strangers have been counted as it says; tells what was counted.
WORK = """
import json, os, sys, time
import numpy as np, ringcast
from ringcast.net.keys import control_pair
key, control, nonce = (os.environ[f"RINGCAST_{name}"] for name in ("KEY", "CONTROL", "NONCE"))
comm = ringcast.init()
assert "RINGCAST_KEY" not in os.environ
transport, protocol = comm._group.endpoint.transport, comm._group.endpoint.protocol
inboxes = comm.allgather((transport.address, transport.public_key))
pids = comm.allgather(os.getpid())
if comm.rank == 0:
    told = {"control": [control, control_pair(key).public.decode()], "inboxes": inboxes, "nonce": int(nonce)}
    told["pids"] = pids
    with open("part", "w") as file:
        json.dump(told, file)
    os.rename("part", "told")
deadline, expected, calls = time.monotonic() + float(sys.argv[1]), None, 0
while True:
    if comm.rank == 0 and os.path.exists("over"):
        expected = int(open("over").read())
    expected = comm.bcast(expected)
    for n in (1, 20_000, 200_000):
        np.testing.assert_array_equal(comm.allreduce(np.full(n, comm.rank + 1)), 6)
        np.testing.assert_array_equal(comm.allgatherv(np.full(n + comm.rank, comm.rank))[-1], 2)
    calls += 1
    counts = comm.allgather((transport.strangers, sum(protocol.dropped.values())))
    if expected is not None and (min(s for s, _ in counts) >= expected or comm.bcast(time.monotonic() > deadline)):
        break
if comm.rank == 0:
    print(json.dumps({"calls": calls, "strangers": [s for s, _ in counts], "dropped": [d for _, d in counts]}))
"""


class Working:
    """A launched job of three ranks that works over tcp until `end`."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        (folder / "work.py").write_text(WORK)
        command = [sys.executable, "-m", "ringcast_launcher", "-n", "3", "-v", "--transport", "tcp", "--output", "none"]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        environment = ENVIRONMENT | {"RINGCAST_DEBUG": "info", "TMPDIR": str(folder)}
        self.process = subprocess.Popen(
            [*command, *options, "work.py", f"{patience(90):g}"],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            **pipes,
        )
        self._said: list[str] = []
        self._reader = threading.Thread(target=lambda: self._said.append(self.process.stderr.read()))
        self._reader.start()

    def told(self) -> dict[str, Any]:
        deadline = time.monotonic() + patience(LIMIT)
        while not (file := self.folder / "told").exists():
            assert self.process.poll() is None, "the job has ended"
            assert time.monotonic() < deadline
            time.sleep(0.02)  # there is nothing else to wait for: the job must not know the test
        return json.loads(file.read_text())

    def end(self, strangers: int) -> tuple[dict[str, Any], str]:
        """Let the job end when each rank has counted so many; return what it has counted, and its standard error."""
        (self.folder / "part").write_text(str(strangers))
        (self.folder / "part").rename(self.folder / "over")
        assert self.process.stdout is not None
        printed = self.process.stdout.read()
        self.close()
        assert self.process.returncode == 0, self._said[0]
        return json.loads(printed), self._said[0]

    def close(self) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(patience(LIMIT))
        self.process.kill()
        self.process.wait()
        self._reader.join()
        for stream in self.process.stdout, self.process.stderr:
            assert stream is not None
            stream.close()


@pytest.fixture
def working(tmp_path: Path) -> Iterator[Working]:
    job = Working(tmp_path)
    try:
        yield job
    finally:
        if job.process.returncode is None:
            job.process.terminate()
            job.close()


@pytest.fixture
def outside() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    """The sockets of a stranger to the job."""
    context = zmq.Context()
    yield context
    context.destroy(linger=0)


def doors(told: dict[str, Any]) -> list[tuple[str, str, int]]:
    """Return address, public key and the fitting kind of socket of all that listens."""
    return [(*told["control"], zmq.DEALER), *((*inbox, zmq.PUSH) for inbox in told["inboxes"])]


@pytest.mark.parametrize(
    "knows",
    [
        "nothing",
        *(
            pytest.param(more, marks=pytest.mark.live)
            for more in ("the servers' public keys", "the public keys and another job")
        ),
    ],
)
def test_a_stranger_gets_nothing_in(knows: str, working: Working, outside: zmq.Context[zmq.Socket[bytes]]) -> None:
    told = working.told()
    makers: dict[str, Callable[[], KeyPair | None]] = {
        "nothing": lambda: None,
        "the servers' public keys": new_pair,
        "the public keys and another job": another_jobs_member,
    }
    message = seal(told["nonce"], 0, Leave())  # the control plane would answer, if it heard
    for address, key, kind in doors(told):
        with outside.socket(kind) as sock:
            assert not knock(sock, address, message, makers[knows](), key)
            assert kind == zmq.PUSH or not sock.poll(200)
    counted, said = working.end(strangers=1)
    assert counted["strangers"] == [1, 1, 1]
    assert counted["dropped"] == [0, 0, 0]
    assert "1 connections to the control plane were not admitted" in said
    assert all(
        f"rank {r}: 1 connections to its inbox were not admitted, 0 messages were dropped" in said for r in range(3)
    )


def garbage(rng: random.Random, i: int) -> bytes:
    greeting = b"\xff\0\0\0\0\0\0\0\1\x7f\3\1" + rng.choice((b"CURVE", b"NULL\0")) + bytes(47)
    return (rng.randbytes(rng.randint(1, 300)), greeting[: rng.randint(1, 64)], greeting + rng.randbytes(300))[i % 3]


@pytest.mark.live
def test_ten_thousand_connections_of_garbage_change_nothing(working: Working) -> None:
    told, rng = working.told(), random.Random(7)
    places = [("127.0.0.1", int(address.rpartition(":")[2])) for address, _, _ in doors(told)]
    each = CONNECTIONS // len(places)
    with contextlib.ExitStack() as silent:
        for place in places:
            for _ in range(HALF_OPEN):
                silent.enter_context(socket.create_connection(place, timeout=patience(LIMIT))).sendall(b"\xff")
        for i in range(each - HALF_OPEN):
            for place in places:
                with (
                    socket.create_connection(place, timeout=patience(LIMIT)) as sock,
                    contextlib.suppress(ConnectionError),
                ):
                    sock.sendall(garbage(rng, i))
        counted, said = working.end(strangers=each)
    assert counted["strangers"] == [each] * 3
    assert counted["dropped"] == [0, 0, 0]
    assert counted["calls"] > 1
    assert f"{each} connections to the control plane were not admitted" in said


def greeting() -> bytes:
    """Return what a client under CURVE says first, as any client may."""
    return b"\xff\0\0\0\0\0\0\0\1\x7f\3\1CURVE".ljust(64, b"\0")


class Flood:
    """Connections that each send a greeting, and then a command before the handshake, as far as it is taken."""

    def __init__(self, place: tuple[str, int], count: int, command: bytes) -> None:
        self._left = [memoryview(greeting() + command)] * count
        self.socks = [socket.create_connection(place, timeout=patience(LIMIT)) for _ in range(count)]
        for sock in self.socks:
            sock.setblocking(False)

    def send_all(self, until: float) -> None:
        """Send until every connection has sent all, or was closed, or takes nothing more at the time `until`."""
        left, poller = dict(enumerate(self._left)), select.poll()
        for sock in self.socks:
            poller.register(sock, select.POLLOUT)
        files = {sock.fileno(): i for i, sock in enumerate(self.socks)}
        while left and time.monotonic() < until:
            for file, _ in poller.poll(100):
                i = files[file]
                try:
                    left[i] = left[i][self.socks[i].send(left[i][: 1 << 20]) :]
                except BlockingIOError:
                    continue
                except OSError:
                    left[i] = left[i][:0]
                if not left[i]:
                    poller.unregister(file)
                    del left[i]

    def left(self, until: float) -> int:
        """Wait until all were closed by the other end, or for the time `until`; return how many were not."""
        poller = zmq.Poller()
        for sock in self.socks:
            poller.register(sock, select.POLLIN)
        while poller.sockets and time.monotonic() < until:
            for file, _ in poller.poll(100):
                sock = next(sock for sock in self.socks if sock.fileno() == file)
                with contextlib.suppress(OSError):
                    if sock.recv(1 << 16):
                        continue
                poller.unregister(sock)
        return len(poller.sockets)

    def close(self) -> None:
        for sock in self.socks:
            sock.close()


def memory(pid: int) -> int:
    """Return the most memory that a process has had so far, in bytes."""
    (line,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) << 10


FLOOD = 60  # connections
COMMANDS = [60_000_000, LARGEST_FRAME - 1000, longest_to_server(3) - 1000]  # bytes that each announces, and sends
ROOM = 100 << 20  # bytes that the process may grow by; without a limit it grows by 60 * 60 MB, or is killed


def long_command(length: int) -> bytes:
    """Return a command of ZMTP, without its last ten bytes."""
    return b"\x06" + length.to_bytes(8, "big") + bytes(length - 10)


@pytest.mark.live
@pytest.mark.parametrize("length", COMMANDS)
@pytest.mark.parametrize("door", ["the control plane", "an inbox"])
def test_commands_before_the_handshake_take_bounded_memory(door: str, length: int, working: Working) -> None:
    told = working.told()
    address, pid = {
        "the control plane": (told["control"][0], working.process.pid),
        "an inbox": (told["inboxes"][1][0], told["pids"][1]),
    }[door]
    before, flood = memory(pid), Flood(("127.0.0.1", port_of(address)), FLOOD, long_command(length))
    try:
        flood.send_all(time.monotonic() + patience(20))
        assert flood.left(time.monotonic() + patience(20)) == 0
        assert memory(pid) < before + ROOM
    finally:
        flood.close()
    counted, _ = working.end(strangers=0)
    assert counted["dropped"] == [0, 0, 0]


def node(number: int, port: int, folder: Path) -> subprocess.Popen[str]:
    """Start the launcher of one of two nodes, with one rank."""
    command = [sys.executable, "-m", "ringcast_launcher", "--nnodes", "2", "--node-rank", str(number), "-N", "1"]
    rank = [sys.executable, "-c", "import ringcast; print(ringcast.init().allreduce(1))"]
    return subprocess.Popen(
        [*command, "--rdzv-endpoint", f"127.0.0.1:{port}", *rank],
        env=ENVIRONMENT | {"TMPDIR": str(folder), "HOME": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.live
@pytest.mark.parametrize("length", COMMANDS)
def test_commands_before_the_handshake_take_bounded_memory_of_node_0(length: int, tmp_path: Path) -> None:
    port, deadline = free_port(), time.monotonic() + patience(LIMIT)
    with node(0, port, tmp_path) as zero:
        while not any((tmp_path / ".ringcast").glob("nodes-*")):  # it listens
            assert zero.poll() is None, zero.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        before, flood = memory(zero.pid), Flood(("127.0.0.1", port), FLOOD, long_command(length))
        try:
            flood.send_all(time.monotonic() + patience(20))
            assert flood.left(time.monotonic() + patience(20)) == 0
            assert memory(zero.pid) < before + ROOM
        finally:
            flood.close()
        with node(1, port, tmp_path) as one:
            ends = [(*each.communicate(timeout=patience(LIMIT)), each.returncode) for each in (zero, one)]
    assert ends == [("[0] 2\n[1] 2\n", "", 0), ("", "", 0)] or ends == [("[1] 2\n[0] 2\n", "", 0), ("", "", 0)]


def connected(port: int) -> int:
    """Return how many connections there are to a port of this host."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(int(local.partition(":")[2], 16) == port and state == "01" for _, local, _, state, *_ in lines)


SILENT = 1000  # connections, by which nothing more is said


@contextlib.contextmanager
def silent(port: int) -> Iterator[None]:
    """Open connections that say something and then nothing."""
    with contextlib.ExitStack() as stack:
        for i in range(SILENT):
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=patience(LIMIT)))
            with contextlib.suppress(ConnectionError):
                sock.sendall((greeting() + long_command(200))[: i % 300])
        yield


def until_few(port: int, most: int) -> None:
    """Wait until there are no more connections to a port; after 60 seconds ZeroMQ itself would give them up."""
    deadline = time.monotonic() + patience(40)
    while connected(port) > most:
        assert time.monotonic() < deadline, connected(port)
        time.sleep(0.02)  # there is nothing else to wait for


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


@pytest.mark.live
@pytest.mark.parametrize("door", ["the control plane", "an inbox"])
def test_of_a_thousand_silent_connections_few_are_kept_while_a_job_works(door: str, working: Working) -> None:
    told = working.told()
    port = port_of(told["control"][0] if door == "the control plane" else told["inboxes"][1][0])
    members = connected(port)
    with silent(port):
        until_few(port, members + 3 + STRANGERS)
    counted, said = working.end(strangers=0)
    assert counted["dropped"] == [0, 0, 0]
    assert f"{'rank 1: ' if door == 'an inbox' else ''}{SILENT} connections to " in said


def test_members_get_in_among_a_thousand_silent_connections() -> None:
    """Before it is known who the members are, and after that."""
    a, b, c = (ZeroMQTransport("tcp://127.0.0.1:*", size=3) for _ in range(3))
    port = port_of(b.address)
    cards = [each.card for each in (a, b, c)]
    a.meet(cards)
    c.meet(cards)
    try:
        a.connect([1])
        a.send(1, [b"early"])
        assert b._authenticator is not None
        deadline = time.monotonic() + patience(LIMIT)
        while not any(exchanged(file)[0] >= WELCOMED for file in list(b._authenticator._unknown._files)):
            assert time.monotonic() < deadline
            time.sleep(0.01)  # its handshake goes on until somebody would have to admit it
        with silent(port):
            until_few(port, 3 + STRANGERS)
            assert a.unreached() == {1: ""}  # it waits
            b.meet(cards)
            assert arrivals(b, b"early") == [b"early"]
            c.send(1, [b"late"])
            assert arrivals(b, b"late") == [b"late"]
    finally:
        for each in a, b, c:
            each.close()


def test_many_members_that_come_at_once_are_no_strangers(outside: zmq.Context[zmq.Socket[bytes]]) -> None:
    many = 400
    b, pair = ZeroMQTransport("tcp://127.0.0.1:*", size=many), new_pair()
    try:
        with contextlib.ExitStack() as stack:
            for i in range(many):
                sock = stack.enter_context(outside.socket(zmq.PUSH))
                sock.linger, sock.reconnect_ivl = 0, -1
                sock.curve_publickey, sock.curve_secretkey = pair.public, pair.secret
                sock.curve_serverkey = b.public_key.encode()
                sock.connect(b.address)
                sock.send(b"%d" % i)
                if i == many // 2:
                    b.meet([EndpointCard(b.address, pair.public.decode())])
            heard: set[bytes] = set()
            deadline = b.clock() + patience(LIMIT)
            while len(heard) < many:
                assert b.clock() < deadline, len(heard)
                if (arrival := b.poll(deadline)) is not None:
                    heard.add(arrival.header)
            while b.strangers:  # the authenticator may count it a moment later
                assert b.clock() < deadline, b.strangers
                time.sleep(0.01)
            assert b._authenticator is not None
            assert b._authenticator._unknown.shut == 0
    finally:
        b.close()


DOORS = {
    "the control plane": "ControlServer(zmq.Context(), 'tcp://127.0.0.1:*', size=2, nonce=5, key=new_key()).socket",
    "an inbox": "ZeroMQTransport('tcp://127.0.0.1:*')._inbox",
    "node 0": "NodeServer(zmq.Context(), 'tcp://127.0.0.1:*', new_key()).socket",
}
STAND_STILL = """
import os, signal, zmq
from ringcast.control import ControlServer, new_key
from ringcast.transports.zeromq import ZeroMQTransport
from ringcast_launcher.nodes.node_server import NodeServer
door = {door}
print(door.getsockopt(zmq.LAST_ENDPOINT).decode(), flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
"""


@pytest.mark.parametrize("door", list(DOORS))
def test_hundreds_find_room_at_a_door_while_nobody_opens_it(door: str) -> None:
    """A connection without room is not refused, but made a second later at the earliest: a flood would stop members."""
    many = min(400, int(Path("/proc/sys/net/core/somaxconn").read_text()))
    command = [sys.executable, "-c", STAND_STILL.format(door=DOORS[door])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process, contextlib.ExitStack() as stack:
        stack.callback(process.kill)
        assert process.stdout is not None
        port = int(process.stdout.readline().strip("\0\n").rpartition(":")[2])
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        for _ in range(many):
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=patience(10)))


class Tap:
    """Listens in front of a server, passes everything on, and records what the client says."""

    def __init__(self, target: str) -> None:
        host, _, port = target.removeprefix("tcp://").rpartition(":")
        self._target = host, int(port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self.heard: list[bytes] = []
        self._threads = [threading.Thread(target=self._serve)]
        self._threads[0].start()

    def _serve(self) -> None:
        client, _ = self._listener.accept()
        server = socket.create_connection(self._target)
        back = threading.Thread(target=self._pass_on, args=(server, client))
        back.start()
        self._pass_on(client, server, record=True)
        back.join()
        client.close()
        server.close()

    def _pass_on(self, source: socket.socket, sink: socket.socket, record: bool = False) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                self.heard += [data] if record else []
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def replay(self) -> None:
        """Say again what was heard, piece by piece, and hear what the server says until it closes or is silent."""
        with socket.create_connection(self._target, timeout=0.5) as sock, contextlib.suppress(ConnectionError):
            for piece in self.heard:
                sock.sendall(piece)
                with contextlib.suppress(TimeoutError):
                    sock.recv(1 << 16)

    def close(self) -> None:
        self._threads[0].join()
        self._listener.close()


@pytest.mark.parametrize("secure", [True, False])
def test_what_was_recorded_at_an_inbox_is_worth_nothing(secure: bool) -> None:
    """Without the protection it is delivered again: so the test would see it."""
    a, b, c = (ZeroMQTransport("tcp://127.0.0.1:*", secure=secure) for _ in range(3))
    tap = Tap(b.address)
    for transport in a, b, c:
        tapped = replace(b.card, address=tap.address)
        transport.meet([a.card, tapped if transport is a else b.card, c.card])
    try:
        a.send(1, [b"recorded"])
        assert arrivals(b, b"recorded") == [b"recorded"]
        tap.replay()
        c.send(1, [b"genuine"])
        assert arrivals(b, b"genuine") == [*([] if secure else [b"recorded"]), b"genuine"]
    finally:
        for transport in a, b, c:
            transport.close()
        tap.close()
    assert b.strangers == int(secure)


def served(server: ControlServer, fn: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a thread, and serve until it has returned."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(fn, *arguments)
        while not future.done():
            server.socket.poll(10)
            server.service()
        return future.result()


@pytest.mark.parametrize("secure", [True, False])
def test_what_was_recorded_at_the_control_plane_is_worth_nothing(
    secure: bool, outside: zmq.Context[zmq.Socket[bytes]]
) -> None:
    security, key = CURVE if secure else NONE, new_key()
    server = ControlServer(outside, "tcp://127.0.0.1:*", size=1, nonce=5, key=key, security=security)
    heard: list[list[bytes]] = []
    receive = server._receive
    server._receive = lambda frames: [heard.append(frames), *receive(frames)][1:]
    tap = Tap(server.address)
    config = WorkerConfig(0, 1, tap.address, hosted=True, nonce=5, key=key, security=security)
    client = ControlClient(config, EndpointCard("data0"), lambda _: None, outside)

    try:
        assert served(server, client.join, 20).cards == (EndpointCard("data0"),)
        served(server, client.close)
        tap.close()
        heard.clear()
        served(server, tap.replay)
        assert bool(heard) == (not secure)
    finally:
        client.close()
        server.close()
    assert server.strangers == int(secure)


def test_who_comes_before_the_roster_is_known_waits_for_it(outside: zmq.Context[zmq.Socket[bytes]]) -> None:
    a, b = (ZeroMQTransport("tcp://127.0.0.1:*") for _ in range(2))
    cards = [a.card, b.card]
    a.meet(cards)
    a.connect([1])
    a.send(1, [b"early"])
    assert a.unreached() == {1: ""}
    refused: list[bool] = []
    with outside.socket(zmq.PUSH) as sock:
        knocking = threading.Thread(
            target=lambda: refused.append(not knock(sock, b.address, b"forged", new_pair(), b.public_key))
        )
        knocking.start()
        assert b.poll(b.clock() + 0.3) is None
        assert a.unreached() == {1: ""}
        b.meet(cards)
        knocking.join()
    assert refused == [True]
    assert arrivals(b, b"early") == [b"early"]
    for transport in a, b:
        transport.close()
    assert b.strangers == 1


def test_without_an_authenticator_nobody_gets_in() -> None:
    a, b = (ZeroMQTransport("tcp://127.0.0.1:*") for _ in range(2))
    meet([a, b])
    assert b._authenticator is not None
    b._authenticator.stop()
    a.connect([1])
    deadline = a.clock() + patience(LIMIT)
    while not a.unreached()[1]:
        a.wait_for_news(deadline)
        assert a.clock() < deadline
    assert b.poll(b.clock() + 0.1) is None
    for transport in a, b:
        transport.close()


def test_keys_are_well_formed_and_those_of_a_job_differ() -> None:
    key = new_key()
    pairs = [control_pair(key), member_pair(key), control_pair(new_key()), new_pair()]
    made = {text.decode() for pair in pairs for text in (pair.public, pair.secret)}
    assert len(made) == 8
    assert all(map(is_key, made))
    assert member_pair(key) == member_pair(key)
    assert pairs[0].secret.decode() not in repr(pairs[0])
    for wrong in "", "x" * 39, "x" * 41, "'" * 40, "#" * 40, "ä" * 40:
        assert not is_key(wrong)
        with pytest.raises(ValueError, match="tcp needs the job's secret key"):
            member_pair(wrong)


def launch(folder: Path, program: str, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text(program)
    command = [sys.executable, "-m", "ringcast_launcher", "-n", "3", "--transport", "tcp", "--output", "none"]
    return subprocess.run(
        [*command, *options, "program.py"],
        cwd=folder,
        env=ENVIRONMENT | {"TMPDIR": str(folder)} | environment,
        capture_output=True,
        text=True,
        timeout=patience(LIMIT),
    )


SECRETS = """
import os, stat, subprocess, sys
key = os.environ["RINGCAST_KEY"]
import ringcast
comm = ringcast.init()
transport = comm._group.endpoint.transport
keys = comm.gather((key, transport.public_key, transport._pair.secret.decode()))
folder = os.environ["RINGCAST_DIR"]
assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
for path in (os.path.join(folder, name) for name in os.listdir(folder)):
    assert not os.path.isfile(path) or key.encode() not in open(path, "rb").read(), path
child = [sys.executable, "-c", "import ringcast; ringcast.init()"]
said = subprocess.run(child, capture_output=True, text=True).stderr
assert "which was started by this rank" in said and "cannot join as the same one" in said, said
ringcast.terminal()
if comm.rank == 0:
    print(*{text for three in keys for text in three})
"""


@pytest.mark.live
def test_keys_are_fresh_and_nowhere_to_be_seen(tmp_path: Path) -> None:
    told = launch(tmp_path, SECRETS, "-v", RINGCAST_DEBUG="info")
    assert told.returncode == 0, told.stderr
    keys = set(told.stdout.split())
    assert len(keys) == 7  # of the job; and two of each rank
    assert not [key for key in keys if key in told.stderr]
    again = launch(tmp_path, "import os; print(os.environ['RINGCAST_KEY'])", "-n", "1").stdout.strip()
    assert is_key(again)
    assert again not in keys


@pytest.mark.live
def test_security_none_works_and_is_warned_of_once(tmp_path: Path) -> None:
    program = """
import ringcast
comm = ringcast.init()
assert comm._group.endpoint.transport.public_key == ""
print(comm.allreduce(1))
"""
    for options, environment in (["--security", "none"], {}), ([], {"RINGCAST_SECURITY": "none"}):
        done = launch(tmp_path, program, *options, **environment)
        assert (done.returncode, done.stdout) == (0, "3\n3\n3\n"), done.stderr
        assert done.stderr == f"ringcast-launch: warning: {OPEN}\n"


def by_hand(program: str, *settings: dict[str, str]) -> list[tuple[int, str, str]]:
    """Run ranks without a launcher; return their exit codes, outputs and errors."""
    control = {"RINGCAST_CONTROL": f"tcp://127.0.0.1:{free_port()}", "RINGCAST_START_TIMEOUT": f"{patience(30):g}"}
    common = ENVIRONMENT | control | {"RINGCAST_SIZE": str(len(settings))}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    ranks = [
        subprocess.Popen([sys.executable, "-c", program], env=common | {"RINGCAST_RANK": str(rank)} | mine, **pipes)
        for rank, mine in enumerate(settings)
    ]
    said = [rank.communicate(timeout=patience(LIMIT)) for rank in ranks]
    return [(rank.returncode, *words) for rank, words in zip(ranks, said, strict=True)]


@pytest.mark.live
def test_without_a_launcher_rank_0_warns_of_security_none() -> None:
    none = {"RINGCAST_SECURITY": "none"}
    zero, one = by_hand("import ringcast; print(ringcast.init().allreduce(1))", none, none)
    assert zero == (0, "2\n", f"ringcast: warning: {OPEN}\n")
    assert one == (0, "2\n", "")


def test_ranks_that_do_not_agree_on_pickles_do_not_meet(outside: zmq.Context[zmq.Socket[bytes]]) -> None:
    key = new_key()
    server = ControlServer(outside, "tcp://127.0.0.1:*", size=2, nonce=5, key=key)
    clients = [
        ControlClient(
            WorkerConfig(rank, 2, server.address, hosted=True, nonce=5, key=key, pickle=pickle),
            EndpointCard(""),
            print,
            outside,
        )
        for rank, pickle in enumerate((True, False))
    ]

    with ThreadPoolExecutor(2) as pool:
        joining = [pool.submit(client.join, 20) for client in clients]
        while not any(future.done() for future in joining):
            server.socket.poll(10)
            server.service()
        server.abort("over")
        ends = [str(future.exception()) for future in joining]
    assert any("give all ranks the same RINGCAST_NO_PICKLE" in end for end in ends)
    for client in clients:
        served(server, client.close)
    server.close()


NO_PICKLES = """
import pickle
import numpy as np, ringcast
comm = ringcast.init()
r, p = comm.rank, comm.size

def never(*arguments, **more):
    raise AssertionError("pickle was used")

pickle.dumps = pickle.loads = never
calls = {
    "bcast": lambda: comm.bcast({1: 2} if r == 0 else None),
    "bcast into": lambda: comm.bcast({1: 2} if r == 0 else np.zeros(3)),
    "scatter": lambda: comm.scatter(["a", "b", "c"] if r == 0 else None),
    "gather": lambda: comm.gather("a"),
    "allgather": lambda: comm.allgather("a"),
    "allgatherv": lambda: comm.allgatherv(["a"]),
    "reduce": lambda: comm.reduce("a"),
    "allreduce": lambda: comm.allreduce(1),
    "reduce_scatter": lambda: comm.reduce_scatter([1, 2, 3]),
    "scan": lambda: comm.scan(1),
    "exscan": lambda: comm.exscan(1),
    "alltoall": lambda: comm.alltoall(["a"] * p),
    "alltoallv": lambda: comm.alltoallv(["a"] * p, [1] * p),
    "shift": lambda: comm.shift("a", 1),
    "sendrecv": lambda: comm.sendrecv("a", (r + 1) % p, (r - 1) % p),
}
for name, call in calls.items():
    try:
        call()
    except ringcast.ObjectsRefused as error:
        assert (error.rank, error.operation) == (r, name.split()[0])
        assert "RINGCAST_NO_PICKLE=1" in str(error)
    else:
        raise AssertionError(name)
    assert comm.allreduce(np.int64(r)) == 3, name  # the communicator is as good as before
data = np.arange(30_000.0)
for value in data, data[:3], np.float64(2):
    np.testing.assert_array_equal(comm.bcast(value if r == 0 else None), value)
np.testing.assert_array_equal(comm.scatter(np.arange(3) if r == 0 else None), r)
np.testing.assert_array_equal(comm.allgatherv(data[:r]), np.concatenate([data[:n] for n in range(p)]))
np.testing.assert_array_equal(comm.sendrecv(data, (r + 1) % p, (r - 1) % p), data)

# A member that does not keep to it gets nobody to unpickle.
if r == 1:
    comm._group.pickle, pickle.dumps = True, lambda *_, **__: b"harm"
    comm.bcast({1: 2}, root=1)
    comm.sendrecv("harm", 2, None)
else:
    for name, call in ("bcast", lambda: comm.bcast(root=1)), ("sendrecv", lambda: comm.sendrecv(None, None, 1)):
        if r == 2 or name == "bcast":
            try:
                call()
            except ringcast.ObjectsRefused as error:
                assert error.operation == name
            else:
                raise AssertionError(name)
print("done")
"""


@pytest.mark.live
@pytest.mark.parametrize("transport", ["shm", "sockets", "ipc", "tcp"])
def test_without_pickles_all_ranks_refuse_objects_and_arrays_travel(tmp_path: Path, transport: str) -> None:
    done = launch(tmp_path, NO_PICKLES, "--transport", transport, RINGCAST_NO_PICKLE="1")
    assert (done.returncode, done.stdout) == (0, "done\n" * 3), done.stderr
