"""Control server and clients over real sockets, and the process that stands in for a launcher."""

import os
import queue
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from math import ceil
from pathlib import Path

import msgpack
import psutil
import pytest
import zmq
from zmq.utils.monitor import recv_monitor_message

from ringcast.config.worker import WorkerConfig
from ringcast.control import ControlServer, Pace, new_key, version
from ringcast.control import server as server_module
from ringcast.control.envelope import open_sealed, seal
from ringcast.control.events import AllJoined
from ringcast.errors import PeerFailed, RendezvousError
from ringcast.wire.codec import encode, parse, plain
from ringcast.wire.control_messages import (
    Abort,
    Bye,
    Failed,
    Failing,
    Finished,
    Hello,
    Moving,
    Refused,
    Revoke,
    Roster,
    Waiting,
)
from ringcast.wire.endpoint_card import EndpointCard
from ringcast.wire.failure import Failure
from ringcast.wire.reports import CallRecord, Deadlock, OperationReport, StallReport
from ringcast.wire.votes import AGREE, Vote
from support.controlled import KEY, NONCE, Worker, job, serving
from support.patience import patience
from support.ports import free_port

pytestmark = pytest.mark.usefixtures("nothing_left")

IMPATIENT = Pace(beat=0.05, silence=0.6, unreachable=0.6, linger=2.0)  # where silence is what is tested


@pytest.fixture
def context() -> Iterator[zmq.Context]:
    context = zmq.Context()
    yield context
    context.destroy(linger=0)


@pytest.fixture(params=["ipc", "tcp"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"ipc://{tmp_path}/control" if request.param == "ipc" else "tcp://127.0.0.1:*"


def test_all_ranks_get_the_roster(context: zmq.Context, address: str) -> None:
    with job(context, address, 5) as (server, _):
        assert len(server.notice(AllJoined).cards) == 5


def test_the_roster_is_encoded_once(context: zmq.Context, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[object] = []
    monkeypatch.setattr(server_module, "encode", lambda message: encoded.append(type(message)) or encode(message))
    with job(context, address, 5) as (server, _):
        assert len(server.notice(AllJoined).cards) == 5
        assert encoded.count(Roster) == 1


def test_bye_tells_the_count_and_why_and_who_has_left(context: zmq.Context, address: str) -> None:
    with job(context, address, 3) as (server, workers):
        said = Finished(1, {0: 7, 2: 2**40}, failure=Failure("KeyError: 1", "Traceback ..."))
        workers[1].client.send(said)
        for rank, count in ((0, 7), (2, 2**40)):
            assert workers[rank].news() == Bye(1, count, said.failure.at(socket.gethostname(), os.getpid()))
        assert server.notice(Finished) == said


def test_what_was_said_before_close_was_heard_when_close_returns(context: zmq.Context, address: str) -> None:
    with job(context, address, 2) as (server, workers):
        workers[0].client.send(Finished(0, {}))
        workers[0].client.close()
        assert server.notice(Finished) == Finished(0, {})
        workers[0].client.close()
        workers[0].client.send(Revoke(0, 1, "after close it is nobody's concern"))


def test_a_revocation_arrives_with_context_and_cause(context: zmq.Context, address: str) -> None:
    with job(context, address, 3) as (_, workers):
        said = Revoke(2, 2**63 + 1, "timeout – größer")
        workers[2].client.send(said)
        assert [workers[rank].news() for rank in (0, 1)] == [said, said]
        assert workers[2].inbox.empty()


def waits(rank: int, context: int, peer: int, sent: dict[int, int], seen: dict[int, int]) -> Waiting:
    call = CallRecord(context, 16, 2**64 - 1, "barrier()", "prog.py:1")
    wait = OperationReport(call, 0, (peer,), (peer,), ())
    return Waiting(StallReport(rank, (wait,), 1, True, {}, sent, seen, times=2))


def test_a_deadlock_is_told_to_its_ranks(context: zmq.Context, address: str) -> None:
    with job(context, address, 3) as (_, workers):
        workers[0].client.send(waits(0, 7, 1, {1: 2**40}, {}))
        workers[0].client.send(Moving(0))
        workers[0].client.send(waits(0, 8, 1, {1: 2**40}, {}))
        workers[0].client.send(Revoke(0, 1, "all this was heard"))
        assert [worker.news() for worker in workers[1:]] == [Revoke(0, 1, "all this was heard")] * 2
        workers[1].client.send(waits(1, 7, 0, {}, {0: 2**40}))
        for rank in (0, 1):
            found = workers[rank].news()
            assert isinstance(found, Deadlock)
            assert (found.rank, found.context, found.cycle) == (rank, 8 - rank, (0, 1))
        assert workers[2].inbox.empty()


def test_a_failing_rank_reaches_the_others_and_the_owner(context: zmq.Context, address: str) -> None:
    with job(context, address, 2) as (server, workers):
        error = PeerFailed(1, 0, "\ud800" * 10**6)
        workers[1].client.send(Failing(1, Failure.of(error)))
        report = server.notice(Failing)
        assert isinstance(report, Failing)
        assert (report.rank, report.failure.blames, len(report.failure.traceback)) == (1, (0,), 100_000)
        server.do(lambda: server.server.declare_failed(1, Failure("exit code 1")))
        assert workers[0].news() == Failed(1, report.failure.at(socket.gethostname(), os.getpid()))


def test_a_text_without_utf_8_travels_with_question_marks(context: zmq.Context, address: str) -> None:
    with job(context, address, 2) as (_, workers):
        workers[1].client.send(Revoke(1, 1, "file \udcff"))
        assert workers[0].news() == Revoke(1, 1, "file ?")


def test_the_supervisor_declares_and_aborts(context: zmq.Context, address: str) -> None:
    with job(context, address, 3) as (server, workers):
        server.do(lambda: server.server.declare_failed(1, Failure("killed by SIGKILL")))
        assert workers[0].news() == Failed(1, Failure("killed by SIGKILL").at(socket.gethostname(), os.getpid()))
        server.do(lambda: server.server.abort("enough"))
        for rank in (0, 2):
            while not isinstance(found := workers[rank].news(), Abort):
                pass
            assert found == Abort("enough")


def test_when_the_launcher_vanishes_the_worker_is_told_once(context: zmq.Context, address: str) -> None:
    with serving(context, address, 1) as server:
        worker = Worker(context, server.server.address, 0, 1, pace=IMPATIENT)
        worker.client.join(patience(10))
    begin = time.monotonic()
    told = worker.news()
    assert isinstance(told, Abort)
    assert "the launcher is gone" in told.cause
    assert time.monotonic() - begin < patience(5)
    begin = time.monotonic()
    worker.client.send(Finished(0, {}))
    worker.client.close()
    assert time.monotonic() - begin < patience(0.5)  # nobody is waited for who is known to be gone
    assert worker.inbox.empty()


def test_a_worker_of_another_version_is_refused_by_name_whatever_else_it_says(
    context: zmq.Context, tmp_path: Path
) -> None:
    address = f"ipc://{tmp_path}/control"
    with serving(context, address, 2) as server, context.socket(zmq.DEALER) as other:
        other.connect(address)
        other.send(msgpack.packb([NONCE, 0, ["Hello", "9.0 (protocol 9)", 1, {"what": "else"}, None]]))
        assert other.poll(patience(10) * 1000)
        _, values = open_sealed(other.recv(), NONCE)
        assert parse(values, (Refused,)) == Refused(
            f"rank 1 runs ringcast 9.0 (protocol 9), but this job runs {version()}"
        )
        assert server.server.dropped == 0


def test_missing_ranks_are_named(context: zmq.Context, address: str) -> None:
    with serving(context, address, 3, start_timeout=0.2) as server:
        worker = Worker(context, server.server.address, 1, 3)
        with pytest.raises(RendezvousError, match=r"ranks 0, 2 of 3 did not join within 0.2 s"):
            worker.client.join(patience(10))
        worker.client.close()


def test_a_second_worker_of_the_same_rank_is_refused(context: zmq.Context, address: str) -> None:
    with job(context, address, 1) as (server, _):
        second = Worker(context, server.server.address, 0, 1)
        with pytest.raises(RendezvousError, match=f"rank 0 has joined already, as pid {os.getpid()}"):
            second.client.join(patience(10))
        second.client.close()


def test_without_server_joining_ends_with_advice(context: zmq.Context, tmp_path: Path) -> None:
    worker = Worker(context, f"ipc://{tmp_path}/control", 0, 2)
    with pytest.raises(RendezvousError, match=r"no control plane answers at ipc:.*is rank 0 .* running"):
        worker.client.join(0.2)
    worker.client.close()


def test_a_client_may_come_before_the_server(context: zmq.Context, tmp_path: Path) -> None:
    address = f"ipc://{tmp_path}/control"
    worker = Worker(context, address, 0, 1)
    with ThreadPoolExecutor(1) as pool:
        joined = pool.submit(worker.client.join, 10)
        with serving(context, address, 1):
            assert joined.result().cards == (EndpointCard("data0"),)
            worker.client.close()


@pytest.mark.parametrize(
    ("control", "key"),
    [("tcp://nowhere", KEY), ("tcp://127.0.0.1:1", "short"), ("udp:x", "")],
    ids=["port", "key", "udp"],
)
def test_an_unusable_address_or_key_is_said_at_once(context: zmq.Context, control: str, key: str) -> None:
    worker = Worker(context, control, 0, 1, key=key)
    with pytest.raises(RendezvousError, match="rank 0 cannot connect to"):
        worker.client.join(patience(10))
    worker.client.close()


def test_an_address_that_cannot_be_bound(context: zmq.Context, tmp_path: Path) -> None:
    with pytest.raises(RendezvousError, match="the control plane cannot listen at ipc:///nowhere/x"):
        ControlServer(context, "ipc:///nowhere/x", size=1, nonce=1)
    with pytest.raises(RendezvousError, match="tcp needs the job's secret key"):
        ControlServer(context, "tcp://127.0.0.1:*", size=1, nonce=1)


def test_the_ipc_socket_is_its_owners_and_goes_with_the_server(context: zmq.Context, tmp_path: Path) -> None:
    path = tmp_path / "control"
    server = ControlServer(context, f"ipc://{path}", size=1, nonce=1)
    assert path.stat().st_mode & 0o777 == 0o600
    server.close()
    server.close()
    assert not path.exists()


@pytest.mark.parametrize("key", ["", new_key()], ids=["no key", "wrong key"])
def test_a_stranger_on_tcp_gets_nowhere(context: zmq.Context, key: str) -> None:
    with serving(context, "tcp://127.0.0.1:*", 1) as server:
        stranger = context.socket(zmq.DEALER)
        if key:
            stranger.curve_serverkey = zmq.curve_public(key.encode())
            stranger.curve_publickey, stranger.curve_secretkey = zmq.curve_keypair()
        monitor = stranger.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
        stranger.connect(server.server.address)
        stranger.send(msgpack.packb([NONCE, 0, ["Leave"]]))  # would be answered, if it were heard
        worker = Worker(context, server.server.address, 0, 1)
        assert worker.client.join(patience(10)).cards == (EndpointCard("data0"),)
        worker.client.close()
        assert monitor.poll(10_000)
        event = recv_monitor_message(monitor)
        assert event["event"] == zmq.EVENT_DISCONNECTED  # and no handshake before it
        assert not stranger.poll(100)
        assert server.server.dropped == 0
        stranger.disable_monitor()
        monitor.close()
        stranger.close(linger=0)


GARBAGE = [
    [b""],
    [b"\xc1"],
    [b"\xff" * 100],
    [b"a", b"b"],
    [msgpack.packb(["Alive", 0])],
    [msgpack.packb([NONCE, 0, "alive"])],
    [msgpack.packb([NONCE + 1, 0, ["Leave"]])],
    [msgpack.packb([NONCE, 0, ["Alive", 0]])],
    [msgpack.packb([NONCE, 0, ["Finished", 0, {}]])],
    [msgpack.packb([NONCE, 0, ["Hello", version(), "0"]])],
    [msgpack.packb([NONCE, 0, {"type": "alive"}])],
    [msgpack.packb([NONCE, 0, {("a", "b"): 1}])],
    [msgpack.packb([NONCE, 0, [[[[[[]]]]]]])],
]


STALLED = plain(waits(0, 7, 1, {}, {}))[1]  # its report, as in the class
VOTE = plain(Vote(0, 1, 1, AGREE))  # name, rank, context, number, verb, flag, acknowledged


def but(values: list[object], place: int, value: object) -> list[object]:
    """Return the list with another value at one place."""
    return [*values[:place], value, *values[place + 1 :]]


def test_garbage_is_dropped_and_counted_and_harms_nobody(context: zmq.Context, tmp_path: Path) -> None:
    with job(context, f"ipc://{tmp_path}/control", 2) as (server, workers):
        stranger = context.socket(zmq.DEALER)
        stranger.connect(server.server.address)
        for frames in GARBAGE:
            stranger.send_multipart(frames)
        stranger.send(msgpack.packb([NONCE, 0, ["Leave"]]))
        assert stranger.poll(10_000)  # all before was handled
        assert server.server.dropped == len(GARBAGE)
        stranger.close(linger=0)
        workers[0].client.send(Revoke(0, 1, "still here"))
        assert workers[1].news() == Revoke(0, 1, "still here")


def test_a_member_that_talks_nonsense_is_heard_as_if_it_were_silent(context: zmq.Context, tmp_path: Path) -> None:
    address = f"ipc://{tmp_path}/control"
    with serving(context, address, 1) as server, context.socket(zmq.DEALER) as liar:
        nonsense = [
            ["Revoke", 0, -1, "", None],
            ["Revoke", 0, 1, "", -1],
            ["Revoke", 1, 1, "in the name of another rank", None],
            ["Finished", 0, {0: -1}, {}, {}, ["", "", [], "", 0], None],
            ["Finished", 0, {"a": 1}, {}, {}, ["", "", [], "", 0], None],
            ["Failing", 0, ["", "", [0.5], "", 0]],
            ["Waiting", {}],
            ["Waiting", but(STALLED, 2, -1)],
            ["Waiting", but(STALLED, 0, 1)],
            ["Waiting"],
            *[but(VOTE, *wrong) for wrong in [(2, -1), (3, "1"), (4, "rule"), (5, 1 << 63), (6, [-1])]],
            ["Vote"],
            ["What"],
            {"type": "alive"},
        ]
        liar.linger = 0
        liar.connect(address)
        liar.send(seal(NONCE, 0, Hello(version(), 0, 1)))
        for number, message in enumerate(nonsense, start=1):
            liar.send(msgpack.packb([NONCE, number, message]))
        liar.send(seal(NONCE, len(nonsense) + 1, Finished(0, {})))
        assert server.notice(Finished) == Finished(0, {})
        assert server.server.dropped == len(nonsense)


def test_a_lost_message_is_noticed(context: zmq.Context, tmp_path: Path) -> None:
    with job(context, f"ipc://{tmp_path}/control", 2) as (server, workers):
        server.do(lambda: server.server._sent.update(dict.fromkeys(server.server._sent, 10**6)))
        assert workers[0].news() == Abort("messages from the control plane were lost")


def test_without_a_launcher_a_rank_that_cannot_be_reached_is_declared_failed(
    context: zmq.Context, tmp_path: Path
) -> None:
    address = f"ipc://{tmp_path}/control"
    with serving(context, address, 2, hosted=False, pace=IMPATIENT), context.socket(zmq.DEALER) as silent:
        silent.linger = 0
        silent.connect(address)
        silent.send(seal(NONCE, 0, Hello(version(), 1, 2, pid=1, host="there")))
        worker = Worker(context, address, 0, 2)
        worker.client.join(patience(10))
        assert not silent.closed
        with pytest.raises(queue.Empty):  # silence alone is no failure
            worker.inbox.get(timeout=2 * IMPATIENT.unreachable)
        silent.close()
        told = worker.news()
        assert isinstance(told, Failed)
        assert told.rank == 1
        assert told.failure.cause == "there is no connection to it, and nothing was heard of it for 0.6 s"
        worker.client.close()


@pytest.mark.parametrize("transport", ["ipc", "tcp"])
def test_a_stopped_rank_is_not_reached_but_a_busy_one_is(
    context: zmq.Context, start: "Start", tmp_path: Path, transport: str
) -> None:
    address = f"ipc://{tmp_path}/control" if transport == "ipc" else "tcp://127.0.0.1:*"
    pace = Pace(beat=0.05, unreachable=patience(0.6), answer=patience(0.3))
    with serving(context, address, 2, hosted=False, pace=pace) as server:
        worker, process = Worker(context, server.server.address, 0, 2), start(1, 2, server.server.address, KEY)
        worker.client.join(patience(30))
        assert line_of(process) == "data0 data1"
        process.stdin.write(f"sleep {ceil(2 * pace.unreachable)}\n")
        process.stdin.flush()
        assert line_of(process) == "awake"  # after some time with the interpreter's lock, in which it said nothing
        assert worker.inbox.empty()
        process.send_signal(signal.SIGSTOP)
        told = worker.news()
        assert isinstance(told, Failed)
        assert told.rank == 1
        silence = f"{pace.unreachable:g} s"
        assert told.failure.cause == f"there is no connection to it, and nothing was heard of it for {silence}"
        worker.client.close()


# Without a launcher: rank 0 starts a process for the control plane.

PROGRAM = """
import ctypes, os, queue, sys, zmq
from ringcast.config.worker import from_environment
from ringcast.wire.codec import decode
from ringcast.wire.control_messages import NOTICES, Failed, Failing, Finished
from ringcast.wire.endpoint_card import EndpointCard
from ringcast.control import ControlClient
from ringcast.wire.failure import Failure
settings = from_environment()
context, failures = zmq.Context(), queue.Queue()
def inject(frames):
    if isinstance(notice := decode(frames[1], NOTICES), Failed):
        failures.put((notice.rank, notice.failure.cause))
client = ControlClient(settings, EndpointCard(f"data{settings.rank}"), inject, context)
try:
    print(*(card.address for card in client.join(settings.start_timeout).cards), flush=True)
    order = sys.stdin.readline()
    if order == "fail":
        client.send(Failing(settings.rank, Failure("ValueError: bad")))
    if order.startswith("sleep"):
        ctypes.PyDLL(None).sleep(int(order.split()[1]))
        print("awake", flush=True)
        sys.stdin.readline()
    if order == "wait\\n":
        print(*failures.get(timeout=settings.start_timeout), flush=True)
    client.send(Finished(settings.rank, {}))
except Exception as error:
    print(error, flush=True)
client.close()
context.term()
"""


Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Return a function that starts a worker which does not outlive the test."""
    workers: list[subprocess.Popen[str]] = []

    def run(
        rank: int, size: int, control: str, key: str = "", start_timeout: float | None = None
    ) -> subprocess.Popen[str]:
        settings = WorkerConfig(rank, size, control, nonce=NONCE, key=key, start_timeout=start_timeout or patience(20))
        environment = {**os.environ, **settings.environment()}
        worker = subprocess.Popen(
            [sys.executable, "-c", PROGRAM], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        workers.append(worker)
        return worker

    yield run
    for worker in workers:
        if worker.returncode is None:
            worker.kill()
            worker.communicate()


def say(worker: subprocess.Popen[str], order: str) -> str:
    return worker.communicate(order, timeout=patience(30))[0].strip()


def line_of(worker: subprocess.Popen[str]) -> str:
    assert worker.stdout is not None
    assert select.select([worker.stdout], [], [], patience(30))[0]
    return worker.stdout.readline().strip()


def servers_of(control: str) -> list[psutil.Process]:
    """Return the processes that listen on the job's socket."""
    rows = Path("/proc/net/unix").read_text().splitlines()
    sockets = {f"socket:[{row.split()[6]}]" for row in rows if row.endswith(control.removeprefix("ipc://"))}
    found = []
    for process in psutil.process_iter():
        try:
            files = {os.readlink(file) for file in Path(f"/proc/{process.pid}/fd").iterdir()}
        except OSError:
            continue
        if files & sockets:
            found.append(process)
    return found


def wait_until_gone(processes: list[psutil.Process]) -> None:
    assert psutil.wait_procs(processes, timeout=patience(15))[1] == []


@pytest.mark.parametrize("transport", ["ipc", "tcp"])
def test_without_a_launcher_the_ranks_find_each_other(start: Start, tmp_path: Path, transport: str) -> None:
    control = f"ipc://{tmp_path}/control" if transport == "ipc" else f"tcp://127.0.0.1:{free_port()}"
    workers = [start(rank, 3, control, KEY) for rank in (2, 1, 0)]
    assert [line_of(worker) for worker in workers] == ["data0 data1 data2"] * 3
    servers = servers_of(control)
    assert len(servers) == (1 if transport == "ipc" else 0)
    for server in servers:
        assert KEY not in " ".join(server.cmdline())
    for worker in workers:
        say(worker, "")
    assert [worker.returncode for worker in workers] == [0] * 3
    wait_until_gone(servers)
    assert list(tmp_path.iterdir()) == []


def test_the_end_of_rank_0_is_told_to_the_others_at_once(start: Start, tmp_path: Path) -> None:
    control = f"ipc://{tmp_path}/control"
    workers = [start(rank, 3, control) for rank in range(3)]
    assert [line_of(worker) for worker in workers] == ["data0 data1 data2"] * 3
    servers = servers_of(control)
    begin = time.monotonic()
    workers[0].send_signal(signal.SIGKILL)
    for worker in workers[1:]:
        worker.stdin.write("wait\n")
        worker.stdin.flush()
    assert [line_of(worker) for worker in workers[1:]] == ["0 its process ended"] * 2
    assert time.monotonic() - begin < patience(5)
    for worker in workers:
        say(worker, "")
    wait_until_gone(servers)


def test_rank_0_may_finish_first(start: Start, tmp_path: Path) -> None:
    control = f"ipc://{tmp_path}/control"
    workers = [start(rank, 3, control) for rank in range(3)]
    assert [line_of(worker) for worker in workers] == ["data0 data1 data2"] * 3
    servers = servers_of(control)
    say(workers[0], "")
    say(workers[2], "fail")
    workers[1].stdin.write("wait\n")
    workers[1].stdin.flush()
    assert line_of(workers[1]) == "2 ValueError: bad"
    say(workers[1], "")
    wait_until_gone(servers)  # all have left or failed: it does not wait for silence


def test_a_start_without_all_ranks_is_given_up_by_name(start: Start, tmp_path: Path) -> None:
    seconds = patience(0.5)
    said = say(start(0, 3, f"ipc://{tmp_path}/control", start_timeout=seconds), "")
    assert f"ranks 1, 2 of 3 did not join within {seconds:g} s" in said


def test_rank_0_says_why_the_control_plane_cannot_start(start: Start) -> None:
    said = say(start(0, 2, "ipc:///nowhere/control"), "")
    assert "could not start the control plane: the control plane cannot listen at ipc:///nowhere/control" in said
