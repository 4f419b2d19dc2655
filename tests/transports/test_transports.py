"""Every transport keeps the laws of `support.conformance`, and each the promises of its own."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest
import zmq

from ringcast.control import new_key
from ringcast.errors import LinkLost
from ringcast.transports import routed, zeromq
from ringcast.transports.base import TURNS, Arrival, Transport
from ringcast.transports.simulated import SimulatedWire
from ringcast.transports.threads import ThreadHub
from ringcast.transports.zeromq import ZeroMQTransport
from ringcast.wire.endpoint_card import EndpointCard
from ringcast.wire.header import LARGEST_FRAME
from support import conformance
from support.conformance import CHECKS, Check
from support.jobs import KINDS, meet, transports
from support.patience import patience

THREADED = {"inject_wakes_a_waiting_poll", "inject_may_come_from_many_threads"}
# All ranks of a simulated wire live in one thread: what several threads do is not asked of it.
CASES = [(check, kind) for check in CHECKS for kind in (*KINDS, "mixed", "routed")] + [
    (check, "simulated") for check in CHECKS if check.__name__ not in THREADED
]


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize(("check", "kind"), CASES, ids=[f"{check.__name__}-{kind}" for check, kind in CASES])
def test_conformance(check: Check, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # What a rank had sent to one that has closed keeps its own close() waiting for so long.
    monkeypatch.setattr(zeromq, "LINGER", patience(1.0))
    monkeypatch.setattr(routed, "LINGER", patience(1.0))

    def make(size: int) -> Sequence[Transport]:
        if kind == "simulated":
            return SimulatedWire(size).ends
        folder = tmp_path / os.urandom(3).hex()
        folder.mkdir()
        return transports(kind, size, folder)

    check(make)


def test_every_check_is_listed() -> None:
    laws = {
        value
        for name, value in vars(conformance).items()
        if callable(value) and not name.startswith("_") and getattr(value, "__module__", "") == conformance.__name__
    }
    assert laws == set(CHECKS)
    assert all(check.__doc__ for check in CHECKS)


class Broken:
    """A transport with a fault: proof that the checks find it."""

    def __init__(self, inner: Transport) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)


class Reordering(Broken):
    def send(self, peer: int, frames: Sequence[bytes]) -> None:
        if len(frames) > 2 and frames[2] == b"7":
            self.kept = frames
            return
        self.inner.send(peer, frames)
        if len(frames) > 2 and frames[2] == b"8":
            self.inner.send(peer, self.kept)


class DroppingEmptyFrames(Broken):
    def send(self, peer: int, frames: Sequence[bytes]) -> None:
        self.inner.send(peer, [frame for frame in frames if frame])


class Impatient(Broken):
    def poll(self, deadline: float | None) -> Arrival | None:
        return self.inner.poll(self.inner.clock())


@pytest.mark.parametrize(
    ("fault", "law"),
    [
        (Reordering, "order_is_kept_per_peer"),
        (DroppingEmptyFrames, "frames_are_kept_apart"),
        (Impatient, "a_deadline_ends_a_wait"),
    ],
)
def test_the_checks_find_faults(fault: type[Broken], law: str) -> None:
    def make(size: int) -> Sequence[Transport]:
        return [fault(transport) for transport in transports("threads", size)]

    (check,) = (check for check in CHECKS if check.__name__ == law)
    with pytest.raises(AssertionError):
        check(make)


# Messages of the control plane.

HERE = "threads", "shm", "sockets", "routed"  # where a message is there when `send` has returned


@pytest.fixture(params=[(kind, sender) for kind in HERE for sender in (0, 2)], ids=str)
def neighbours(request: pytest.FixtureRequest) -> Iterator[tuple[Transport, Transport]]:
    """Yield two connected ranks: a sender and a reader."""
    kind, sender = request.param
    made = transports(kind, 3)
    a, b = made[sender], made[1]
    try:
        a.send(1, [b"first"])
        assert next_of(b) == b"first"
        yield a, b
    finally:
        for end in made:
            end.close(0.0)


def next_of(transport: Transport) -> bytes:
    """Return the next message's header."""
    end = transport.clock() + patience(5)
    while (arrival := transport.poll(end)) is None:
        assert transport.clock() < end, "no message"
    return arrival.header


@pytest.mark.parametrize("count", [0, 1, TURNS])
def test_what_is_injected_comes_after_messages_that_have_arrived(
    neighbours: tuple[Transport, Transport], count: int
) -> None:
    a, b = neighbours
    for _ in range(2):
        for _ in range(count):
            a.send(1, [b"data"])
        b.inject([b"notice"])
        assert [next_of(b) for _ in range(count + 1)] == [b"data"] * count + [b"notice"]


def test_messages_without_end_do_not_hold_back_what_is_injected(neighbours: tuple[Transport, Transport]) -> None:
    a, b = neighbours
    for _ in range(2):
        a.send(1, [b"data"])
        b.inject([b"notice"])
        came = []
        while b"notice" not in came and len(came) < 3 * TURNS:
            a.send(1, [b"data"])
            came.append(next_of(b))
        assert b"notice" in came


# Threads.


def test_a_message_between_the_last_look_and_the_reset_of_the_bell_is_not_missed() -> None:
    """The descriptor is reset by a look that finds nothing; what comes just then must be found all the same."""
    hub = ThreadHub(2)
    a, b = hub.transport(0), hub.transport(1)
    b.fileno()
    queue = hub.inboxes[1].messages

    class Late:
        """A queue in which a message arrives just after the look."""

        late = True

        def get(self, *args: object, **kwargs: object) -> object:
            try:
                return queue.get(block=False)
            except Exception:
                if self.late:
                    self.late = False
                    a.send(1, [b"header"])
                raise

        get_nowait = get

        def put(self, frames: object) -> None:
            queue.put(frames)

    hub.inboxes[1].messages = Late()
    arrival = b.poll(b.clock())
    bell = hub.inboxes[1].bell
    assert bell is not None
    assert arrival is not None or bell.silence()
    b.close()


# ZeroMQ.


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[ZeroMQTransport, ZeroMQTransport]]:
    """Two ranks on tcp."""
    monkeypatch.setattr(zeromq, "LINGER", 0.5)  # a frame may be left that nobody takes
    a, b = (ZeroMQTransport("tcp://127.0.0.1:*") for _ in range(2))
    meet([a, b])
    yield a, b
    a.close()
    b.close()


@pytest.fixture
def outside() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    """The sockets of a stranger to the job."""
    context = zmq.Context()
    yield context
    context.destroy(linger=0)


def refused(monitor: zmq.Socket[bytes]) -> bool:
    """Wait until a connection is shut; whether a handshake had not succeeded before."""
    from zmq.utils.monitor import recv_monitor_message

    while monitor.poll(10_000):
        event = recv_monitor_message(monitor)["event"]
        if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            return False
        if event in (
            zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL,
            zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL,
            zmq.EVENT_HANDSHAKE_FAILED_AUTH,
            zmq.EVENT_DISCONNECTED,
        ):
            return True
    raise AssertionError("no handshake was tried")


@pytest.mark.parametrize("knows", ["nothing", "another key"])
def test_a_stranger_gets_nothing_in(
    knows: str,
    pair: tuple[ZeroMQTransport, ZeroMQTransport],
    outside: zmq.Context[zmq.Socket[bytes]],
) -> None:
    a, b = pair
    stranger = outside.socket(zmq.PUSH)
    stranger.setsockopt(zmq.RECONNECT_IVL, -1)
    monitor = stranger.get_monitor_socket()
    if knows == "another key":
        other = new_key().encode()
        stranger.curve_secretkey = other
        stranger.curve_publickey = stranger.curve_serverkey = zmq.curve_public(other)
    stranger.connect(b.address)
    with contextlib.suppress(zmq.Again):  # refused already
        stranger.send(b"forged", zmq.DONTWAIT)
    assert refused(monitor)
    stranger.disable_monitor()
    monitor.close()
    stranger.close(0)
    a.send(1, [b"genuine"])
    deadline = b.clock() + patience(10)
    while (arrival := b.poll(deadline)) is None:
        assert b.clock() < deadline
    assert arrival.header == b"genuine"
    assert b.poll(b.clock() + 0.02) is None


def listening() -> set[tuple[str, int]]:
    connections = psutil.Process().net_connections(kind="inet")
    return {tuple(c.laddr) for c in connections if c.status == psutil.CONN_LISTEN}


def test_nothing_listens_but_the_inbox_on_the_address_it_was_given() -> None:
    before = listening()
    transport = ZeroMQTransport("tcp://127.0.0.1:*")
    assert listening() - before == {("127.0.0.1", int(transport.address.rpartition(":")[2]))}
    transport.close()
    assert listening() == before


def test_ipc_opens_no_port(tmp_path: Path) -> None:
    before = listening()
    transport = ZeroMQTransport(f"ipc://{tmp_path}/0")
    assert listening() == before
    assert [path.name for path in tmp_path.iterdir()] == ["0"]
    transport.close()


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("kind", ["ipc", "tcp", "mixed"])
def test_close_gives_back_threads_files_and_sockets(kind: str, tmp_path: Path) -> None:
    made = transports(kind, 3, tmp_path)
    for a, transport in enumerate(made):
        transport.fileno()
        for b in range(3):
            if a != b:
                transport.send(b, [b"header", bytes(100_000)])
    for transport in made:
        for _ in range(2):
            while transport.poll(None) is None:
                pass
    for transport in made:
        transport.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("bad", ["tcp", "ipc", "folder", "scheme"])
def test_an_address_that_cannot_be_bound_is_an_error_and_leaves_nothing(bad: str, tmp_path: Path) -> None:
    first = ZeroMQTransport("tcp://127.0.0.1:*")
    address = {
        "tcp": first.address,
        "ipc": f"ipc://{tmp_path}/{'x' * 200}",  # longer than a socket's path may be
        "folder": f"ipc://{tmp_path}/missing/0",
        "scheme": "nonsense://0",
    }[bad]
    with pytest.raises(zmq.ZMQError) as error:
        ZeroMQTransport(address)
    if bad == "tcp":
        assert error.value.errno == errno.EADDRINUSE
    first.close()


def test_a_frame_beyond_the_limit_closes_the_connection(pair: tuple[ZeroMQTransport, ZeroMQTransport]) -> None:
    a, b = pair
    a.send(1, [b"header"])
    while b.poll(None) is None:
        pass
    a.send(1, [b"header", bytes(LARGEST_FRAME + 1)])
    deadline = a.clock() + patience(20)
    with pytest.raises(LinkLost):  # noqa: PT012 (it is the first send after the connection was closed that raises)
        while a.clock() < deadline:
            a.send(1, [b"header"])
            a.poll(a.clock() + 0.001)


def test_a_peer_that_does_not_listen_is_no_reason_to_wait_long(tmp_path: Path) -> None:
    """Close ends within its bound although what was sent cannot be delivered."""
    transport = ZeroMQTransport(f"ipc://{tmp_path}/0")
    transport.meet([transport.card, EndpointCard(f"ipc://{tmp_path}/nobody")])
    start = transport.clock()
    transport.connect([1])
    closing = threading.Thread(target=transport.close)
    closing.start()
    closing.join(patience(10))
    assert not closing.is_alive()
    assert transport.clock() - start < patience(6)


@pytest.mark.parametrize("address", ["", "nonsense", "tcp://host", "ipc://" + "x" * 200, "udp://1:2"])
def test_a_peer_whose_address_is_nonsense_cannot_be_reached(address: str, tmp_path: Path) -> None:
    with contextlib.closing(ZeroMQTransport(f"ipc://{tmp_path}/inbox")) as transport:
        transport.meet([EndpointCard(address), transport.card])
        with pytest.raises(LinkLost, match="cannot be used"):
            transport.send(0, [b"x"])
