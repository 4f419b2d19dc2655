"""The same command on every node: how the launchers meet, what they refuse, and that all of them end together."""

from __future__ import annotations

import contextlib
import doctest
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import zmq

from ringcast.commands.bench.bed import Bed
from ringcast.control import version
from ringcast.net import interfaces
from ringcast.net.keys import new_key, new_pair
from ringcast.wire.codec import parse, plain
from ringcast_launcher import cli
from ringcast_launcher.decide.start_deadline import StartDeadline
from ringcast_launcher.hosts.framing import PIECE
from ringcast_launcher.hosts.messages import COMMANDS, AgentHello, JobEnd, NodeHello
from ringcast_launcher.hosts.remote_host import SILENCE
from ringcast_launcher.nodes.joined_node import accepted_nodes
from ringcast_launcher.nodes.node_client import NodeClient
from ringcast_launcher.nodes.node_server import WINDOW, NodeServer
from ringcast_launcher.plan import node_rendezvous
from ringcast_launcher.plan.job import Job, JobError, Rendezvous
from ringcast_launcher.system.polling import usable
from ringcast_launcher.system.signals import noted
from ringcast_launcher.system.watchdog import Watchdog
from support.beds import ENVIRONMENT, make_bed, on, set_link
from support.patience import patience
from support.ports import free_port
from support.processes import alive

pytestmark = pytest.mark.usefixtures("nothing_left")

LAUNCH = [sys.executable, "-m", "ringcast_launcher"]
LIMIT = 90  # seconds; nothing here takes nearly as long
KEY = new_key()

WHERE = """
import os
key = "old key" if os.environ["RINGCAST_KEY"] == os.environ.get("OLD_KEY") else ""  # gone after init
import ringcast
comm = ringcast.init()
told = [os.environ[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MINE")]
print(*told, comm.allreduce(comm.rank), key)
"""
FAIL = """
import ringcast
comm = ringcast.init()
if comm.rank == comm.size - 1:
    raise SystemExit(3)
comm.barrier()
"""
WAIT = """
import sys, time, ringcast
comm = ringcast.init()
comm.barrier()
if comm.rank == 0:
    print("there", flush=True)
time.sleep(1000)
"""
SAVE = """
import os, signal, time, ringcast
comm = ringcast.init()
came = []
for number in signal.SIGTERM, signal.SIGUSR1:
    signal.signal(number, lambda number, frame: came.append(number))
comm.barrier()
if comm.rank == 0:
    print("there", flush=True)
while not comm.allreduce(len(came), ringcast.MAX):
    time.sleep(0.01)
print("saving", flush=True)
while not os.path.exists("go"):
    time.sleep(0.01)
print("saved", *came, flush=True)
"""
SLOW_TO_CLOSE = """
import time
from ringcast_launcher import cli
from ringcast_launcher.hosts.local_host import LocalHost
close = LocalHost.close
def slowly(host):
    time.sleep(0.7)  # in which the others are back already
    close(host)
LocalHost.close = slowly
cli.main()
"""
Given = Mapping[str, Any]


def test_the_examples_in_docstrings_are_true() -> None:
    result = doctest.testmod(node_rendezvous)
    assert (result.attempted > 0, result.failed) == (True, 0)


# What the options say.


GIVEN = {"--nnodes": "3", "--node-rank": "1", "--rdzv-endpoint": "localhost:29400"}


@pytest.mark.parametrize(
    ("changed", "more", "words"),
    [
        ({"--node-rank": "3"}, (), "--node-rank 3: must be in 0..2 (--nnodes 3)"),
        ({"--node-rank": "-1"}, (), "--node-rank -1: must be in 0..2"),
        ({"--nnodes": "0"}, (), "--nnodes 0: at least one node"),
        ({"--nnodes": None}, ("-n", "2"), "--node-rank and --rdzv-endpoint go with --nnodes"),
        ({"--node-rank": None}, (), "--nnodes needs --node-rank K"),
        ({"--rdzv-endpoint": None}, (), "--nnodes needs --node-rank K (0 to N - 1) and --rdzv-endpoint HOST:PORT"),
        ({"--rdzv-endpoint": "h0:0"}, (), "--rdzv-endpoint h0:0: expected HOST:PORT"),
        ({"--rdzv-endpoint": "h0:65536"}, (), "expected HOST:PORT"),
        ({"--rdzv-endpoint": "h0:"}, (), "expected HOST:PORT"),
        ({"--rdzv-endpoint": ":29400"}, (), "expected HOST:PORT"),
        ({"--rdzv-endpoint": "::1:29400"}, (), "expected HOST:PORT, such as node0:29500 or [2001:db8::1]:29500"),
        ({}, ("-n", "4"), "--nnodes goes with -N"),
        ({}, ("-H", "a,b"), "--nnodes goes with -N"),
        ({}, ("-N", "0"), "-N 0: at least one rank"),
        ({}, ("--transport", "ipc"), "--transport ipc: only on one host"),
        ({}, ("--ranks-filter", "x"), "--ranks-filter 'x': 'x' is no rank"),
    ],
)
def test_options_that_make_no_sense(
    changed: Given, more: Sequence[str], words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    given = {**GIVEN, **changed}
    arguments = [word for name, value in given.items() if value is not None for word in (name, value)]
    assert cli.command([*arguments, *more, "true"], os.environ) == 2
    assert words in capfd.readouterr().err


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"RINGCAST_KEY": "secret", "HOME": "/"}, "RINGCAST_KEY: must be 40 characters of Z85; make a key once"),
        ({"RINGCAST_KEY": "\\" * 40, "HOME": "/"}, "RINGCAST_KEY: must be 40 characters of Z85; make a key once"),
        ({}, "there is no RINGCAST_KEY, and no HOME for a file"),
    ],
)
def test_a_key_that_is_none(environment: Given, words: str, capfd: pytest.CaptureFixture[str]) -> None:
    arguments = [word for pair in GIVEN.items() for word in pair]
    assert cli.command([*arguments, "true"], {"PATH": os.environ["PATH"], **environment}) == 2
    said = capfd.readouterr().err
    assert words in said
    assert "export RINGCAST_KEY=$(" in said


def test_a_home_in_which_no_file_can_be_made(capfd: pytest.CaptureFixture[str]) -> None:
    arguments = [word for pair in GIVEN.items() for word in pair]
    assert cli.command([*arguments, "true"], {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}) == 1
    said = capfd.readouterr().err
    assert "/nonexistent/.ringcast, where the ranks are to meet: No such file or directory; make a key once" in said
    assert "export RINGCAST_KEY=$(" in said


def test_one_node_needs_no_other(capfd: pytest.CaptureFixture[str]) -> None:
    arguments = ["--nnodes", "1", "--node-rank", "0", "--rdzv-endpoint", "nowhere.invalid", "-N", "2", "echo", "here"]
    assert cli.command(arguments, os.environ) == 0
    assert sorted(capfd.readouterr().out.splitlines()) == ["[0] here", "[1] here"]


def test_a_dry_run_starts_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    arguments = ["--nnodes", "3", "--node-rank", "0", "--rdzv-endpoint", "h0:29500", "-N", "2", "--dry-run", "true"]
    assert cli.command(arguments, os.environ) == 0
    said = capfd.readouterr().out
    assert "  node 1  ranks 2-3\n" in said
    assert "they meet at h0:29500\n" in said
    assert "ssh" not in said.partition("variables of")[0]


# Where they meet.


def meeting_at(host: str, node: int = 0, port: int = 29400) -> Rendezvous:
    return Rendezvous(3, node, host, port, 1, ("a.py",), KEY, "")


def test_the_endpoint_is_that_address_only_and_no_loopback_name() -> None:
    own = [o.address for o in interfaces.own_addresses() if not o.address.is_loopback and o.address.version == 4]
    assert node_rendezvous.address(meeting_at("127.0.0.1")) == "tcp://127.0.0.1:29400"
    if own:
        assert node_rendezvous.address(meeting_at(str(own[0]))) == f"tcp://{own[0]}:29400"


def test_a_name_that_etc_hosts_maps_to_loopback_is_not_taken_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    loopback, other = (interfaces.resolve(number)[0] for number in ("127.0.1.1", "198.51.100.7"))
    own = [interfaces.Own("lo", loopback), interfaces.Own("e0", other)]
    monkeypatch.setattr(interfaces, "resolve", lambda host: [loopback])
    monkeypatch.setattr(interfaces, "own_addresses", lambda: own)
    assert node_rendezvous.address(meeting_at("thishost")) == "tcp://198.51.100.7:29400"


def test_node_0_must_have_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    there = interfaces.resolve("192.0.2.7")[0]
    monkeypatch.setattr(interfaces, "place", lambda host, wish: interfaces.ListenAddress(there, "", there))
    with pytest.raises(JobError, match=r"h7:29400: 192\.0\.2\.7 is no address of this machine; give an address of nod"):
        node_rendezvous.address(meeting_at("h7"))
    assert node_rendezvous.address(meeting_at("h7", node=1)) == "tcp://192.0.2.7:29400"


def test_a_host_without_address() -> None:
    with pytest.raises(JobError, match=r"--rdzv-endpoint nowhere\.invalid:29400: the host name 'nowhere.invalid'"):
        node_rendezvous.address(meeting_at("nowhere.invalid"))


def test_a_file_tells_the_key_as_long_as_nodes_are_awaited(tmp_path: Path) -> None:
    file = tmp_path / ".ringcast/nodes"
    mine = replace(meeting_at("h0"), file=str(file))
    other = replace(mine, node=1, key="")
    assert node_rendezvous.find_key(other) is None
    with Watchdog(os.environ) as watchdog, node_rendezvous.published_key(mine, watchdog):
        assert node_rendezvous.find_key(other) == KEY
        assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    file.write_text('{"key": "of one who was killed"}')
    with Watchdog(os.environ) as watchdog, node_rendezvous.published_key(mine, watchdog):
        assert node_rendezvous.find_key(other) == KEY
    assert not file.exists()
    file.write_text("nonsense")
    with pytest.raises(JobError, match="cannot read"):
        node_rendezvous.find_key(other)
    file.write_text('{"key": 5}')
    with pytest.raises(JobError, match="has other contents than a file of node 0 of this job"):
        node_rendezvous.find_key(other)
    file.parent.chmod(0o755)
    with pytest.raises(JobError, match="yours alone"):
        node_rendezvous.find_key(other)


# The connection between two nodes.


class Ends:
    """Both ends of a connection over loopback."""

    def __init__(self, key: str = KEY) -> None:
        self.context = zmq.Context()
        self.address = f"tcp://127.0.0.1:{free_port()}"
        self.server = NodeServer(self.context, self.address, KEY)
        self.client = NodeClient(self.context, self.address, key, time.monotonic())

    def close(self) -> None:
        self.client.close()
        self.server.close()
        self.context.term()

    def met(self) -> Any:
        """Return node 0's end."""
        self.client.send("hello")
        found: list[Any] = []
        until(lambda: found.extend(self.server.newcomers()) or found)
        return found[0]


@pytest.fixture
def tmp_path(short_path: Path) -> Path:
    """A short one: the directories of jobs are looked for in it."""
    return short_path


@pytest.fixture
def ends() -> Iterator[Ends]:
    made = Ends()
    yield made
    made.close()


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + patience(LIMIT)
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def turn(one: Any) -> list[Any]:
    ready = usable(one.files, 0.01)
    return one.turn(ready, time.monotonic())


def test_messages_go_both_ways_and_signs_of_life_are_none(ends: Ends) -> None:
    connection, heard = ends.met(), []
    connection.send(["HoldOutput", True])
    until(lambda: heard.extend(turn(ends.client)) or heard)
    assert (heard, ends.client.heard, ends.client.ended) == ([["HoldOutput", True]], True, "")
    ends.client.send({"a": b"b"})
    heard = []
    until(lambda: heard.extend(turn(connection)) or len(heard) == 2)
    assert heard == ["hello", {"a": b"b"}]
    ends.client.silent = 5.0
    until(lambda: turn(connection) or ends.client.turn(usable(ends.client.files, 0.01), time.monotonic()) or
          ends.client.silent < 5.0)  # fmt: skip


@pytest.mark.parametrize("length", [PIECE + 1, 20_000_000])
def test_messages_longer_than_a_frame_may_be_go_both_ways(ends: Ends, length: int) -> None:
    connection, heard = ends.met(), []
    connection.send([1, b"x" * length])
    until(lambda: heard.extend(turn(ends.client)) or heard)
    assert heard == [[1, b"x" * length]]
    ends.client.send([2, b"y" * length])
    until(lambda: turn(ends.client) or heard.extend(turn(connection)) or len(heard) == 3)
    assert heard[1:] == ["hello", [2, b"y" * length]]


def test_who_has_another_key_is_heard_by_nobody() -> None:
    made = Ends(new_key())
    try:
        made.client.send("hello")
        until(lambda: turn(made.client) or made.client.refused)
        until(lambda: made.server.newcomers() or made.server.strangers)
        assert not made.client.heard
    finally:
        made.close()


def test_who_knows_only_the_public_key_is_refused(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringcast_launcher.nodes.node_client.member_pair", lambda key: new_pair())
    stranger = NodeClient(ends.context, ends.address, KEY, time.monotonic())
    try:
        stranger.send("hello")
        until(lambda: turn(stranger) or ends.server.newcomers() or stranger.refused)
        assert not stranger.connected
        connection, heard = ends.met(), []
        ends.server.be_full("all are there")
        until(lambda: turn(connection) or turn(stranger) or ends.server.strangers >= 3)  # it tries again
        ends.client.send("word")
        until(lambda: heard.extend(turn(connection)) or "word" in heard)
        assert not stranger.connected
    finally:
        stranger.close()


def test_each_end_sees_that_the_other_is_gone(ends: Ends) -> None:
    connection = ends.met()
    connection.send("word")
    until(lambda: turn(ends.client))
    ends.server.close()
    until(lambda: turn(ends.client) or ends.client.ended)
    made = Ends()
    try:
        connection = made.met()
        made.client.close()
        until(lambda: turn(connection) or connection.ended == "it was lost")
    finally:
        made.close()


def test_what_was_said_before_the_end_is_heard(ends: Ends) -> None:
    connection, heard = ends.met(), []
    for number in range(100):
        connection.send(number)
    ends.server.close()
    until(lambda: heard.extend(turn(ends.client)) or ends.client.ended)
    assert heard == list(range(100))


def test_who_is_not_listened_to_has_to_wait(ends: Ends) -> None:
    connection = ends.met()
    big, count = b"x" * (1 << 20), 10 * WINDOW
    for number in range(count):
        ends.client.send([number, big])
    assert ends.client.unsent > len(big)
    heard: list[Any] = []
    until(lambda: turn(ends.client) or heard.extend(turn(connection)) or len(heard) == count + 1)
    assert [message[0] for message in heard[1:]] == list(range(count))
    assert ends.client.unsent == 0


def test_who_comes_too_late_is_told_so(ends: Ends) -> None:
    ends.server.be_full("all are there")
    heard: list[Any] = []
    ends.client.send("hello")
    until(lambda: ends.server.take() or heard.extend(turn(ends.client)) or heard)
    assert parse(heard[0], COMMANDS) == JobEnd(1, "ringcast-launch: all are there\n", False)


def test_thousands_of_strangers_disturb_nobody(ends: Ends) -> None:
    connection, heard = ends.met(), []
    ends.server.be_full("all are there")
    port, greeting = int(ends.address.rpartition(":")[2]), b"\xff\0\0\0\0\0\0\0\1\x7f\3\0NULL" + bytes(48)
    for _ in range(2500):
        with socket.create_connection(("127.0.0.1", port), timeout=patience(LIMIT)) as stranger:
            stranger.sendall(greeting)
            with contextlib.suppress(ConnectionError):
                stranger.recv(64)  # until there is an answer, or the connection is closed
    ends.client.send("word")
    until(lambda: heard.extend(turn(connection)) or "word" in heard)


# Who is asked in.


class Guests:
    """Launchers of other nodes, as far as node 0 sees them."""

    def __init__(self, one: Rendezvous) -> None:
        self.one, self.context, self.clients = one, zmq.Context(), []

    def come(self, node: int, release: str = "", **changed: Any) -> NodeClient:
        client = NodeClient(self.context, f"tcp://127.0.0.1:{self.one.port}", KEY, time.monotonic())
        self.clients.append(client)
        node_hello = {"nnodes": self.one.nnodes, "ranks": 1, "program": self.one.program, **changed}
        python = ".".join(map(str, sys.version_info[:3]))
        client.send(plain(AgentHello(release or version(), python, f"h{node}", "127.0.0.1")))
        client.send(plain(NodeHello(node, **node_hello)))
        return client

    def close(self) -> None:
        for client in self.clients:
            client.close()
        self.context.term()


@pytest.fixture
def guests() -> Iterator[Guests]:
    made = Guests(meeting_at("127.0.0.1", port=free_port()))
    yield made
    made.close()


def meet(guests: Guests, seconds: float = LIMIT) -> list[tuple[str, tuple[int, ...]]]:
    job = Job(nodes=(), argv=["true"], environment={}, directory="/")
    with noted((signal.SIGINT,)) as signals, Watchdog(os.environ) as watchdog:
        limit = StartDeadline(seconds, start=time.monotonic(), timeout=None)
        with accepted_nodes(job, guests.one, watchdog, signals, limit, None) as (placed, joined_nodes):
            assert [node.host for node in placed.nodes[1:]] == [joined.host for joined in joined_nodes]
            return [(node.host, node.ranks) for node in placed.nodes]


def test_ranks_are_in_the_order_of_the_nodes_which_may_take_different_numbers(guests: Guests) -> None:
    guests.come(2, ranks=3)
    guests.come(1, ranks=2)
    assert meet(guests) == [(socket.gethostname(), (0,)), ("h1", (1, 2)), ("h2", (3, 4, 5))]


@pytest.mark.parametrize(
    ("node", "changed", "words"),
    [
        (1, {}, "hosts h1 and h1 have the same --node-rank 1"),
        (2, {"nnodes": 4}, "node 2 (h2) has --nnodes 4, but node 0 --nnodes 3; give all nodes the same command"),
        (2, {"program": ("b.py", "-v")}, "node 2 (h2) runs 'b.py -v', but node 0 'a.py'; give all nodes the same"),
        (2, {"release": "9.9 (protocol 1)"}, "(h2): it runs ringcast 9.9 (protocol 1), but this launcher is"),
    ],
)
def test_nodes_that_do_not_fit_end_the_job_and_all_are_told(
    guests: Guests, node: int, changed: Given, words: str
) -> None:
    guests.come(1)
    other = guests.come(node, **changed)
    with pytest.raises(JobError) as error:
        meet(guests)
    assert words in str(error.value)
    assert error.value.code == 1
    heard: list[Any] = []
    until(lambda: heard.extend(turn(other)) or heard)
    assert parse(heard[0], COMMANDS) == JobEnd(1, f"ringcast-launch: {error.value}\n", False)


def test_a_node_that_has_left_may_come_again(guests: Guests) -> None:
    guests.come(1).close()
    guests.come(1)
    guests.come(2)
    assert [host for host, _ in meet(guests)[1:]] == ["h1", "h2"]


def test_nodes_that_do_not_come_are_named(guests: Guests) -> None:
    guests.come(2)
    limit = patience(0.5)
    text = rf"node 1 has not come to 127\.0\.0\.1:\d+ within {re.escape(f'{limit:g}')} s; is the command running"
    with pytest.raises(JobError, match=text):
        meet(guests, limit)
    guests.one = replace(guests.one, nnodes=7)
    with pytest.raises(JobError, match=r"nodes 1-6 have not come"):
        meet(guests, 0.1)


def test_those_with_another_key_are_counted(guests: Guests) -> None:
    client = NodeClient(guests.context, f"tcp://127.0.0.1:{guests.one.port}", new_key(), time.monotonic())
    guests.clients.append(client)
    with pytest.raises(
        JobError, match=r"with the same key\? [0-9]+ connections did not show it; make a key once, and exp"
    ):
        meet(guests, patience(2.0))


def test_a_port_that_is_taken(guests: Guests) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", guests.one.port))
        other.listen()
        with pytest.raises(JobError, match=r"127\.0\.0\.1:\d+: the port is taken; does another job have the same"):
            meet(guests)


# Whole jobs, on one machine.


class Launched:
    """Launchers of the nodes of a job on loopback."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port, self.running = folder, free_port(), {}
        (folder / "home").mkdir()
        (folder / "jobs").mkdir()

    def start(
        self,
        node: int,
        *arguments: str,
        of: int = 2,
        program: str = WHERE,
        launch: Sequence[str] = LAUNCH,
        **environment: str,
    ) -> None:
        (self.folder / "program.py").write_text(program)
        where = ("--nnodes", str(of), "--node-rank", str(node), "--rdzv-endpoint", f"localhost:{self.port}")
        own = {"HOME": str(self.folder / "home"), "TMPDIR": str(self.folder / "jobs"), "MINE": f"mine{node}"}
        self.running[node] = subprocess.Popen(
            [*launch, *where, *arguments, "program.py"],
            cwd=self.folder,
            env={**ENVIRONMENT, **own, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(self) -> dict[int, tuple[int, str, str]]:
        """Return exit code, output and error output of each node when all have ended."""
        said = {node: launcher.communicate(timeout=patience(LIMIT)) for node, launcher in self.running.items()}
        return {node: (self.running[node].returncode, *said[node]) for node in said}

    def close(self) -> None:
        for launcher in self.running.values():
            if launcher.poll() is None:
                launcher.kill()
            launcher.communicate()
        assert list((self.folder / "jobs").iterdir()) == []
        assert list((self.folder / "home").glob(".ringcast/*")) == []


@pytest.fixture
def launched(tmp_path: Path) -> Iterator[Launched]:
    made = Launched(tmp_path)
    yield made
    made.close()


@pytest.mark.live
def test_ranks_run_with_the_environment_of_their_node_and_are_printed_on_node_0(launched: Launched) -> None:
    launched.start(1, "-N", "2", "-x", "MINE", OLD_KEY=KEY, RINGCAST_KEY=KEY)
    launched.start(0, "-x", "MINE", OLD_KEY=KEY, RINGCAST_KEY=KEY)
    ended = launched.end()
    lines = ["[0] 0 3 0 1 0 mine0 3 ", "[1] 1 3 0 2 1 mine1 3 ", "[2] 2 3 1 2 1 mine1 3 "]
    assert {node: (code, sorted(out.splitlines())) for node, (code, out, _) in ended.items()} == {
        0: (0, lines),
        1: (0, []),
    }


@pytest.mark.live
def test_the_exit_code_and_the_cause_are_those_of_the_job_everywhere_and_after_restarts(launched: Launched) -> None:
    for node in 0, 1:  # without a key: they share a home
        launched.start(node, "--on-failure", "restart", "--max-restarts", "1", program=FAIL)
    ended = launched.end()
    assert [code for code, _, _ in ended.values()] == [3, 3]
    last = [error.splitlines()[-1] for _, _, error in ended.values()]
    assert last[0] == last[1]
    assert "ringcast-launch: rank 1 (" in last[0]
    assert "starting the job afresh" in ended[0][2]
    assert len(ended[1][2].splitlines()) == 2


@pytest.mark.live
@pytest.mark.parametrize(
    ("ranks", "code", "shown", "said"),
    [
        ("2", 0, ["[2] 2 3 1 2 1 mine1 3 "], ""),
        ("3", 2, [], "ringcast-launch: --ranks-filter '3': there is no rank 3 in a job of 3; the last one is 2\n"),
    ],
)
def test_a_filter_names_ranks_of_all_nodes(
    launched: Launched, ranks: str, code: int, shown: list[str], said: str
) -> None:
    launched.start(0, "--ranks-filter", ranks, "-x", "MINE")
    launched.start(1, "--ranks-filter", ranks, "-x", "MINE", "-N", "2")
    ended = launched.end()
    assert (ended[0][0], ended[0][1].splitlines()) == (code, shown), ended
    assert ended[1][0] == code
    assert all(said in error for _, _, error in ended.values()), ended


@pytest.mark.live
@pytest.mark.parametrize(
    ("own", "joined"),
    [(["localhost", ""], ["localhost", "127.0.0.1"]), (["", "localhost"], ["127.0.0.1", "localhost"])],
)
def test_each_node_says_by_itself_how_its_ranks_are_reached(
    launched: Launched, own: list[str], joined: list[str]
) -> None:
    for node, host in enumerate(own):
        launched.start(node, "-v", "-x", "MINE", RINGCAST_ADVERTISE=host)
    code, _, error = launched.end()[0]
    assert code == 0, error
    for rank, host in enumerate(joined):
        assert f"rank {rank} joined: tcp://{host}:" in error


@pytest.mark.live
def test_who_is_back_before_node_0_has_closed_the_job_that_failed_joins_the_next(launched: Launched) -> None:
    again = ("--on-failure", "restart", "--max-restarts", "1", "--start-timeout", "30")
    launched.start(0, *again, program=FAIL, launch=[sys.executable, "-c", SLOW_TO_CLOSE])
    launched.start(1, *again, program=FAIL)
    ended = launched.end()
    assert [code for code, _, _ in ended.values()] == [3, 3], ended
    assert all("ringcast-launch: rank 1 (" in error.splitlines()[-1] for _, _, error in ended.values())


def keys(launched: Launched) -> list[Path]:
    """Return the files by which a node 0 tells its key."""
    return list((launched.folder / "home").glob(".ringcast/nodes-*"))


@pytest.mark.live
def test_the_key_of_a_node_0_that_is_killed_while_it_waits_goes_with_it(launched: Launched) -> None:
    launched.start(0)
    until(lambda: keys(launched))
    launched.running[0].kill()
    launched.running[0].communicate()
    until(lambda: not keys(launched))
    until(lambda: not list((launched.folder / "jobs").iterdir()))


@pytest.mark.live
def test_the_watchdog_of_a_node_0_leaves_the_key_of_the_next_alone(launched: Launched) -> None:
    launched.start(0)
    until(lambda: keys(launched))
    (file,) = keys(launched)
    (watchdog,) = psutil.Process(launched.running[0].pid).children()
    watchdog.suspend()  # it comes too late
    launched.running[0].kill()
    launched.running[0].communicate()
    file.write_text('{"key": "of the next"}')
    watchdog.resume()
    until(lambda: not alive(watchdog))  # it looks at it last
    assert not list((launched.folder / "jobs").iterdir())
    assert file.read_text() == '{"key": "of the next"}'
    file.unlink()


@pytest.mark.live
def test_a_key_that_node_0_and_its_watchdog_left_behind_gives_way_to_the_next(launched: Launched) -> None:
    launched.start(0)
    until(lambda: keys(launched))
    for one in (*psutil.Process(launched.running[0].pid).children(), launched.running[0]):
        one.kill()
    launched.running[0].communicate()
    assert keys(launched)
    with socket.create_server(("127.0.0.1", launched.port)) as nobody:
        launched.start(1, "--start-timeout", "30")
        nobody.accept()[0].close()  # it has read the old key
    launched.start(0, "--start-timeout", "30")
    ended = launched.end()
    assert [code for code, _, _ in ended.values()] == [0, 0], ended


@pytest.mark.live
@pytest.mark.parametrize(("node", "number"), [(1, signal.SIGINT), (0, signal.SIGTERM)])
def test_a_signal_on_any_node_ends_the_job_on_all(launched: Launched, node: int, number: signal.Signals) -> None:
    for each in 0, 1:
        launched.start(each, program=WAIT)
    assert launched.running[0].stdout.readline() == "[0] there\n"
    workers = [child for one in launched.running.values() for child in psutil.Process(one.pid).children(recursive=True)]
    launched.running[node].send_signal(number)
    assert [code for code, _, _ in launched.end().values()] == [128 + number, 128 + number]
    assert not any(worker.is_running() for worker in workers)


@pytest.mark.live
@pytest.mark.parametrize("nodes", [[0], [1], [0, 1]])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_on_any_node_or_on_all_lets_all_ranks_save(launched: Launched, nodes: list[int], number: int) -> None:
    """A batch system sends it to all launchers at once; that is one signal, and no second one that ends them."""
    for each in 0, 1:
        launched.start(each, program=SAVE)
    assert launched.running[0].stdout.readline() == "[0] there\n"
    for node in nodes:
        launched.running[node].send_signal(number)
    assert {launched.running[0].stdout.readline() for _ in range(2)} == {"[0] saving\n", "[1] saving\n"}
    (launched.folder / "go").touch()
    ended = launched.end()
    code = 143 if number == signal.SIGTERM else 0
    assert [code for code, _, _ in ended.values()] == [code, code]
    assert sorted(ended[0][1].splitlines()) == [f"[0] saved {number:d}", f"[1] saved {number:d}"]


@pytest.mark.live
def test_a_node_that_waits_can_be_ended(launched: Launched) -> None:
    launched.start(1)
    until(lambda: list((launched.folder / "home").glob(".ringcast")))
    launched.running[1].send_signal(signal.SIGINT)
    code, _, error = launched.end()[1]
    assert (code, error) == (130, "ringcast-launch: ended by SIGINT\n")


@pytest.mark.live
def test_node_0_is_not_there(launched: Launched) -> None:
    launched.start(1, "--start-timeout", "0.5", RINGCAST_KEY=KEY)
    launched.start(2, "--start-timeout", "0.5", of=3)
    ended = launched.end()
    end = f"got no answer from node 0 at localhost:{launched.port} within 0.5 s: is it running there"
    assert f"ringcast-launch: node 1 ({socket.gethostname()}) {end}" in ended[1][2]
    assert f"node 2: node 0 has not written {launched.folder}/home/.ringcast/nodes-localhost-" in ended[2][2]
    assert "export RINGCAST_KEY=$(" in ended[2][2]
    assert [code for code, _, _ in ended.values()] == [1, 1]


def test_an_endpoint_that_has_no_address_is_awaited_too(capfd: pytest.CaptureFixture[str]) -> None:
    given = {**GIVEN, "--rdzv-endpoint": "nowhere.invalid:29400", "--start-timeout": "0.3"}
    assert cli.command([*(word for pair in given.items() for word in pair), "true"], os.environ) == 1
    assert "--rdzv-endpoint nowhere.invalid:29400: the host name 'nowhere.invalid'" in capfd.readouterr().err


@pytest.mark.live
def test_another_key_is_named(launched: Launched) -> None:
    launched.start(0, RINGCAST_KEY=KEY)
    launched.start(1, RINGCAST_KEY=new_key())
    assert launched.running[1].wait(patience(LIMIT)) == 1
    launched.running[0].send_signal(signal.SIGINT)
    ended = launched.end()
    assert f"found something at localhost:{launched.port} that does not have the same key" in ended[1][2]
    assert (ended[0][0], ended[0][2]) == (130, "ringcast-launch: ended by SIGINT\n")


# Whole jobs, on emulated hosts.


@pytest.fixture(scope="module")
def three() -> Iterator[Bed]:
    with make_bed("3") as bed:
        yield bed


def launch_on(bed: Bed, folder: Path, program: str, *arguments: str, **environment: str) -> list[subprocess.Popen[str]]:
    (folder / "program.py").write_text(program)
    (folder / "home").mkdir(exist_ok=True)
    (folder / "jobs").mkdir(exist_ok=True)
    own = {"HOME": str(folder / "home"), "TMPDIR": str(folder / "jobs"), "MINE": "", **environment}
    where = ["--nnodes", "3", "--rdzv-endpoint", f"h0:{next(bed.ports)}", "--wdir", str(folder)]
    files = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return [
        bed.start(k, [*LAUNCH, *where, "--node-rank", str(k), *arguments, "program.py"], env=ENVIRONMENT | own, **files)
        for k in range(3)
    ]


def nothing_runs(bed: Bed, folder: Path) -> None:
    """Wait until nothing of a job is left on the hosts; the watchdog of a launcher that was killed takes a moment."""
    until(lambda: list((folder / "jobs").iterdir()) == [])
    for host in range(3):
        until(
            lambda host=host: "program.py" not in on(bed, host, "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
        )


@pytest.mark.live
def test_three_hosts_of_which_one_takes_its_name_for_loopback(three: Bed, tmp_path: Path) -> None:
    on(three, 0, "sh", "-c", "(echo 127.0.1.1 h0; cat /etc/hosts) > /etc/hosts.new; cat /etc/hosts.new > /etc/hosts; "
       "rm /etc/hosts.new")  # fmt: skip
    launchers = launch_on(three, tmp_path, WHERE, "-N", "2", "-v")
    said = [launcher.communicate(timeout=patience(LIMIT)) for launcher in launchers]
    assert [launcher.returncode for launcher in launchers] == [0, 0, 0], said
    lines = [f"[{r}] {r} 6 {r % 2} 2 {r // 2}  15 " for r in range(6)]
    assert sorted(said[0][0].splitlines()) == lines
    assert [out for out, _ in said[1:]] == ["", ""]
    for rank in range(6):
        assert f"rank {rank} joined: tcp://{three.hosts[rank // 2].address}:" in said[0][1]
    assert list((tmp_path / "jobs").iterdir()) == []


@pytest.mark.long
def test_a_pause_on_node_0_is_one_on_all(launched: Launched) -> None:
    for node in 0, 1:
        launched.start(node, program=WAIT.replace("1000", "1"))
    assert launched.running[0].stdout.readline() == "[0] there\n"
    launched.running[0].send_signal(signal.SIGTSTP)
    until(lambda: psutil.Process(launched.running[0].pid).status() == psutil.STATUS_STOPPED)
    time.sleep(SILENCE + 2)  # longer than a launcher may be silent
    launched.running[0].send_signal(signal.SIGCONT)
    assert [code for code, _, _ in launched.end().values()] == [0, 0]


@pytest.mark.long
def test_a_cut_link_ends_the_job_on_both_sides(three: Bed, tmp_path: Path) -> None:
    launchers = launch_on(three, tmp_path, WAIT, RINGCAST_KEY=KEY)
    assert launchers[0].stdout.readline() == "[0] there\n"
    set_link(three, 2, "down")
    said = [launcher.communicate(timeout=patience(LIMIT))[1] for launcher in launchers]
    set_link(three, 2, "up")
    assert all(f"nothing was heard of node 2 (h2) for {SILENCE:.0f} s" in said[k].splitlines()[-1] for k in (0, 1))
    assert "(h2) lost its connection to node 0 at h0:" in said[2].splitlines()[-1]
    assert [launcher.returncode for launcher in launchers] == [1, 1, 1]
    nothing_runs(three, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("victim", [0, 2])
def test_a_launcher_that_is_killed_ends_the_job_on_all_hosts(three: Bed, tmp_path: Path, victim: int) -> None:
    launchers = launch_on(three, tmp_path, WAIT, RINGCAST_KEY=KEY)
    assert launchers[0].stdout.readline() == "[0] there\n"
    launchers[victim].kill()
    said = [launcher.communicate(timeout=patience(LIMIT))[1] for launcher in launchers]
    others = [said[k].splitlines()[-1] for k in range(3) if k != victim]
    if victim == 0:
        assert all("lost its connection to node 0 at h0:" in last for last in others)
    else:
        assert all("the connection to node 2 (h2) was lost" in last for last in others)
    assert all(launcher.returncode != 0 for launcher in launchers)
    nothing_runs(three, tmp_path)


TOLD = """
import time, ringcast
def write(what):
    with open(what, "a") as file:
        file.write(f"{time.monotonic()}\\n")
comm = ringcast.init()
comm.barrier()
if comm.rank == 0:
    print("there", flush=True)
if comm.rank == 2:
    while True:
        write("alive")
        time.sleep(0.05)
try:
    comm.barrier()
except ringcast.RingcastError:
    write("told")
    raise
"""


@pytest.mark.long
def test_the_ranks_of_a_launcher_that_is_stopped_are_ended_before_the_others_are_told(
    three: Bed, tmp_path: Path
) -> None:
    launchers = launch_on(three, tmp_path, TOLD, RINGCAST_KEY=KEY)
    assert launchers[0].stdout.readline() == "[0] there\n"
    launchers[2].send_signal(signal.SIGSTOP)
    said = [one.communicate(timeout=patience(LIMIT))[1] for one in launchers[:2]]
    os.kill(launchers[2].pid, signal.SIGCONT)  # nsenter stops with its command, and would not see it end
    said.append(launchers[2].communicate(timeout=patience(LIMIT))[1])
    alive, told = ([float(line) for line in (tmp_path / name).read_text().split()] for name in ("alive", "told"))
    assert alive[-1] < told[0]
    assert len(told) == 2
    assert re.search(r"ringcast: process \d+ stood still for 9 s \(stopped, or hung\); it was ended with its", said[2])
    assert all("ringcast-launch: rank 2 (h2, pid" in said[k].splitlines()[-1] for k in (0, 1)), said
    assert all(one.returncode != 0 for one in launchers)
    nothing_runs(three, tmp_path)
