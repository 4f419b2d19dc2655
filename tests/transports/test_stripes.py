"""Links of several connections keep the laws of all transports, and laws of their own."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator, Sequence
from itertools import product
from random import Random

import pytest

from ringcast.control.link_watch import LinkWatch
from ringcast.errors import LinkLost
from ringcast.net.fd_limits import MOST_CONNECTIONS
from ringcast.net.tls import RECORD
from ringcast.transports.base import HURRIED, Transport
from ringcast.transports.sockets import greeting, outgoing, stripes, tcp
from ringcast.transports.sockets import transport as sockets
from ringcast.transports.sockets.greeting import Place, hello
from ringcast.transports.sockets.incoming import Arrival, Incoming
from ringcast.transports.sockets.source import FED, PlainSource
from ringcast.transports.sockets.stripes import HEAD, NUMBERS, STRIPE, Striped
from ringcast.transports.sockets.transport import SocketTransport
from ringcast.transports.sockets.watcher import Watcher
from ringcast.wire.header import LARGEST_FRAME
from support.conformance import CHECKS, Check
from support.patience import patience
from support.socket_jobs import PATIENCE, join, opened, ranks, received

pytestmark = pytest.mark.usefixtures("nothing_left")
SECURITY = pytest.mark.parametrize("secure", [True, False], ids=["secure", "open"])


@pytest.fixture
def several(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> int:
    """Let every link have so many connections, as if its way were long."""
    count: int = getattr(request, "param", 3)
    monkeypatch.setattr(sockets, "most_connections", lambda size: count)
    monkeypatch.setattr(outgoing, "LONG", 0.0)
    return count


COUNTS = pytest.mark.parametrize("several", [1, 2, 3, 16], indirect=True)


@pytest.fixture(params=[True, False], ids=["secure", "open"])
def pair(several: int, request: pytest.FixtureRequest) -> Iterator[tuple[SocketTransport, SocketTransport]]:
    """Two ranks that are connected."""
    a, b = opened(2, secure=request.param)
    join([a, b])
    assert len(a._links[1].connections) == several
    yield a, b
    a.close()
    b.close()


CASES = [  # each law by one of these links, and in `make test-long` by the other
    pytest.param(
        several, secure, check, id=f"{check.__name__}-{several}", marks=[pytest.mark.long] * (number % 2 != secure)
    )
    for number, check in enumerate(CHECKS)
    for several, secure in ((16, False), (3, True))
]


@pytest.mark.parametrize(("several", "secure", "check"), CASES, indirect=["several"])
def test_conformance(check: Check, secure: bool, several: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # What was sent to one that has closed keeps close() waiting for so long.
    monkeypatch.setattr(sockets, "LINGER", patience(1.0))

    def make(size: int) -> Sequence[Transport]:
        return ranks(size, secure=secure)

    check(make)


def sizes() -> list[int]:
    """Return sizes of messages around those of stripes and records."""
    near = [base + more for base in (RECORD, STRIPE, 2 * STRIPE) for more in (-17, -16, -9, -8, -1, 0, 1)]
    return [0, 1, 2, 63, *near, 5 * STRIPE, LARGEST_FRAME - 1]


@COUNTS
def test_messages_of_any_size_arrive_in_order(pair: tuple[SocketTransport, SocketTransport]) -> None:
    a, b = pair
    rng = Random(1)
    messages = [[rng.randbytes(size)] for size in sizes()]
    messages += [[rng.randbytes(rng.choice((1, 70, 3000))) for _ in range(rng.choice((1, 2, 9)))] for _ in range(200)]
    messages += [[b"header", rng.randbytes(rng.choice(sizes()))] for _ in range(30)]
    rng.shuffle(messages)
    for message in messages:
        a.send(1, message)
    for header, *frames in messages:
        arrival = received(b, a)
        assert arrival.header == header
        assert [bytes(arrival.read()) for _ in frames] == frames
    assert not a.unsent


def test_a_short_way_needs_one_connection_and_a_long_one_many(monkeypatch: pytest.MonkeyPatch) -> None:
    for seconds, expected in ((0.0, 1), (stripes.LONG / 2, 1), (stripes.LONG, MOST_CONNECTIONS)):
        monkeypatch.setattr(outgoing, "round_trip", lambda sock, seconds=seconds: seconds)
        a, b = opened(2)
        join([a, b])
        assert len(a._links[1].connections) == expected
        a.close()
        b.close()


def test_the_round_trip_is_measured_when_the_connection_is_made() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as sock:
        assert tcp.round_trip(sock) == 0.0
        sock.connect(listener.getsockname())
        assert 0.0 < tcp.round_trip(sock) < 1.0


@pytest.mark.parametrize("several", [2, 8], indirect=True)
def test_small_messages_use_one_connection(pair: tuple[SocketTransport, SocketTransport]) -> None:
    a, b = pair
    first, *others = a._links[1].connections
    for other in others:
        other.write = None  # type: ignore[assignment, method-assign]  # a call would fail
    for i in range(50):
        a.send(1, [bytes([i])])
        assert received(b, a).header == bytes([i])
    assert first.made


class Ends:
    """Both ends of the connections of one link; the test writes stripes to them, and reads messages."""

    def __init__(self, count: int) -> None:
        self.watcher = Watcher()
        self.striped = Striped(count, self.watcher)
        self.ended = False
        pairs = [socket.socketpair() for _ in range(count)]
        self.near = [near for near, _ in pairs]
        for i, (_, far) in enumerate(pairs):
            far.setblocking(False)
            self.striped.add(i, far, PlainSource(far), self.end)
        self.ready: list[Incoming] = []
        self.reader = Incoming(self.striped.socks, 7, self.striped, self.ready, lambda reader: self.end())  # type: ignore[arg-type]
        self.striped.begin(self.reader)
        self.got: list[bytes] = []

    def end(self) -> None:
        self.ended = True
        for sock in self.striped.socks:
            self.watcher.remove(sock.fileno())

    def read(self) -> None:
        """Take all that has come."""
        while self.ready or self.watcher._epoll.poll(0):
            self.watcher.wait(time.monotonic())
            if self.ready:
                self._take()

    def _take(self) -> None:
        try:
            arrival = self.reader.next()
        except OSError:
            self.end()
            arrival = None
        if arrival is None:
            self.ready.pop(0).queued = False
        else:
            self.got.append(arrival.header)

    def close(self) -> None:
        for sock in (*self.near, *self.striped.socks):
            self.watcher.remove(sock.fileno())
            sock.close()
        self.watcher.close()


def message(data: bytes) -> bytes:
    return HEAD.pack(1, len(data)) + data  # the number of frames, and the length


def cut(stream: bytes, size: int) -> list[bytes]:
    """Return the stripes of a stream."""
    parts = [stream[at : at + size] for at in range(0, len(stream), size)]
    return [HEAD.pack(i, len(part)) + part for i, part in enumerate(parts)]


MESSAGES = [b"", b"a", b"bcd", b"e" * 40, b"", b"f" * 9]
STREAM = b"".join(map(message, MESSAGES))


@pytest.mark.parametrize("count", [1, 2, 3, 8])
@pytest.mark.parametrize("seed", range(12))
def test_stripes_are_read_in_order_however_their_connections_progress(count: int, seed: int) -> None:
    rng = Random(seed)
    waiting: list[bytearray] = [bytearray() for _ in range(count)]
    for stripe in cut(STREAM, rng.choice((1, 7, 20, 200))):
        waiting[rng.randrange(count)] += stripe
    ends = Ends(count)
    try:
        while any(waiting):
            i = rng.choice([i for i in range(count) if waiting[i]])
            size = rng.choice((1, 5, 30, 1000))
            ends.near[i].send(waiting[i][:size])
            del waiting[i][:size]
            if rng.random() < 0.7:
                ends.read()
        for i in rng.sample(range(count), count):
            if rng.random() < 0.5:
                ends.read()
            ends.near[i].close()
        ends.read()
        assert ends.got == MESSAGES
        assert ends.ended
    finally:
        ends.close()


def test_a_link_ends_wherever_its_connections_do_and_nothing_half_arrives() -> None:
    """Whichever of two connections ends at whichever byte, and all others after it: what is whole arrives, in order."""
    parts = cut(STREAM, 9)
    lines = [b"".join(parts[0::2]), b"".join(parts[1::2])]
    for dead, other in (0, 1), (1, 0):
        for at in range(0, len(lines[dead]) + 1, 3):
            ends = Ends(2)
            try:
                ends.near[dead].send(lines[dead][:at])
                ends.near[dead].close()
                ends.read()
                ends.near[other].send(lines[other])
                ends.read()
                ends.near[other].close()
                ends.read()
                assert ends.ended
                assert ends.got == MESSAGES[: len(ends.got)]
                assert (ends.got == MESSAGES) == (at == len(lines[dead]))
            finally:
                ends.close()


@pytest.mark.parametrize(
    "said",
    [
        [HEAD.pack(0, 0), b""],
        [HEAD.pack(0, STRIPE + 1), b""],
        [HEAD.pack(0, NUMBERS - 1), b""],
        [HEAD.pack(1, 1), HEAD.pack(1, 1)],
        [HEAD.pack(1, 1), HEAD.pack(2, 1)],
        [HEAD.pack(0, 8) + message(b"") + HEAD.pack(0, 1), HEAD.pack(2, 1)],
    ],
    ids=["empty", "long", "huge", "same", "missing", "again"],
)
def test_stripes_that_no_rank_sends_end_the_link(said: list[bytes]) -> None:
    ends = Ends(2)
    try:
        for near, data in zip(ends.near, said, strict=True):
            near.send(data)
        ends.read()
        assert ends.ended
    finally:
        ends.close()


def test_an_early_stripe_stays_where_it_is_and_costs_no_processor_time() -> None:
    ends = Ends(2)
    try:
        ends.near[1].send(HEAD.pack(1, STRIPE) + bytes(1000))
        ends.read()
        for closed in False, True:
            if closed:
                ends.near[1].close()
                ends.read()
            assert ends.watcher._epoll.poll(0) == []
        assert not ends.ended
    finally:
        ends.close()


@pytest.mark.parametrize("dead", [0, 1, 2])
@pytest.mark.parametrize("side", ["sender", "receiver"])
def test_the_loss_of_one_connection_is_the_loss_of_the_link(
    dead: int, side: str, pair: tuple[SocketTransport, SocketTransport]
) -> None:
    a, b = pair
    for i in range(40):
        a.send(1, [bytes([i]), bytes(100_000)])
    (incoming,) = b._incoming
    sock = a._links[1].connections[dead].sock if side == "sender" else incoming.socks[dead]
    sock.shutdown(socket.SHUT_RDWR)
    got = []
    deadline = a.clock() + patience(PATIENCE)
    while b._incoming or not a._links[1].lost:
        assert a.clock() < deadline
        a.unreached()
        arrival = b.poll(b.clock() + 0.001)
        if isinstance(arrival, Arrival):
            got.append(arrival.header[0])
            with contextlib.suppress(LinkLost):
                assert arrival.read() == bytes(100_000)
    assert got == [*range(len(got))]
    with pytest.raises(LinkLost, match="it was closed by the other side or by the network"):
        a.send(1, [b"header"])
    assert not a.unsent
    assert a._links[1].connections[dead].sock.fileno() == -1


def test_what_is_complete_arrives_after_the_sender_has_ended(pair: tuple[SocketTransport, SocketTransport]) -> None:
    a, b = pair
    b.unreached()
    for size in (0, 10, 200_000):
        a.send(1, [b"header", bytes(size)])
    a.close()
    for size in (0, 10, 200_000):
        assert received(b).read() == bytes(size)
    assert b.poll(b.clock() + 0.01) is None
    assert not b._incoming


def test_a_connection_that_breaks_off_before_admission_is_made_anew(several: int) -> None:
    a, b = opened(2)
    a.send(1, [b"early"])
    deadline = a.clock() + patience(PATIENCE)
    while len(a._links[1].connections) < several:
        assert a.clock() < deadline
        a.unreached()
        b.unreached()
    old = a._links[1].connections[1]
    before = old._attempts
    old.sock.shutdown(socket.SHUT_RDWR)
    assert received(b, a).header == b"early"
    assert old._attempts <= before + 1
    a.close()
    b.close()


def greeted(b: SocketTransport, a: SocketTransport, *places: tuple[int, int]) -> list[bytes]:
    """Greet rank b as rank a does, without encryption, at these places; return the answers."""
    host, port = b.address.removeprefix("tcp://").split(":")
    answers = []
    with contextlib.ExitStack() as stack:
        for place in places:
            sock = stack.enter_context(socket.create_connection((host, int(port)), timeout=patience(PATIENCE)))
            sock.send(hello(a._claim, secure=False, place=Place(*place)))
            sock.setblocking(False)
            answer, deadline = None, b.clock() + patience(PATIENCE)
            while answer is None:
                assert b.clock() < deadline
                b.unreached()
                with contextlib.suppress(BlockingIOError):
                    answer = sock.recv(100)
            answers.append(answer)
        b.unreached()
        sock_count = sum(len(striped.socks) for striped in b._striped.values())
        answers.append(str(sock_count).encode())
    return answers


NONSENSE = [(1, 1), (2, 2), (255, 3), (0, 0), (0, MOST_CONNECTIONS + 1), (16, 16)]


@pytest.mark.parametrize("place", NONSENSE, ids=map(str, NONSENSE))
def test_a_place_that_there_is_not_is_refused(place: tuple[int, int]) -> None:
    a, b = opened(2, secure=False)
    answer, kept = greeted(b, a, place)
    assert answer.startswith(b"ringcast refuses")
    assert kept == b"0"
    assert b.strangers == 1
    a.close()
    b.close()


@pytest.mark.parametrize(("places", "kept"), [([(0, 3), (1, 2)], 0), ([(0, 3), (0, 3)], 1), ([(0, 2), (0, 1)], 0)])
def test_of_a_rank_that_contradicts_itself_no_more_is_kept_than_of_others(
    places: list[tuple[int, int]], kept: int
) -> None:
    a, b = opened(2, secure=False)
    assert greeted(b, a, *places)[-1] == str(kept).encode()
    a.close()
    b.close()


@SECURITY
def test_a_place_that_was_changed_on_the_way_is_noticed(
    secure: bool, several: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hello is not encrypted, so the welcome repeats the place."""
    assert several > 1
    monkeypatch.setattr(greeting, "hello", lambda claim, secure, place: hello(claim, secure=secure))
    a, b = opened(2, secure=secure)
    a.connect([1])
    deadline = a.clock() + patience(PATIENCE)
    while not a._links[1].lost:
        assert a.clock() < deadline
        a.unreached()
        b.unreached()
    assert a._links[1].lost.startswith("the listener there does not admit this rank")
    a.close()
    b.close()


def test_the_watch_over_links_sees_every_connection(
    pair: tuple[SocketTransport, SocketTransport], several: int
) -> None:
    a, _ = pair
    a.stop_watching()
    watch = LinkWatch(a.links)
    for now in range(3):
        assert not watch.look(float(now))
    link = watch._watched[1]
    assert link is not None
    files = {connection.sock.fileno() for connection in a._links[1].connections}
    assert {connection.file for connection in link.connections} == files
    assert len(files) == several
    watch.close()


def test_memory_of_early_stripes_is_bounded(pair: tuple[SocketTransport, SocketTransport]) -> None:
    """A reader takes nothing from a connection whose turn has not come: TLS has as much as it is fed at once."""
    a, b = pair
    (incoming,) = b._incoming
    parts = b._striped[incoming.rank]._parts
    for _ in range(100):
        a.send(1, [b"header", bytes(100_000)])
        b.unreached()
    held = [part.source._stream.held for part in parts.values() if hasattr(part.source, "_stream")]
    assert all(size <= FED + RECORD for size in held)
    a.close(HURRIED)


@pytest.mark.parametrize(("count", "at"), [*product([2, 3], range(3))])
def test_connections_are_admitted_in_any_order(count: int, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "most_connections", lambda size: count)
    monkeypatch.setattr(outgoing, "LONG", 0.0)
    a, b = opened(2)
    entered: list[tuple[object, ...]] = []
    enter, b._door._enter = b._door._enter, lambda *each: entered.append(each)
    a.send(1, [b"header", bytes(300_000)])
    deadline = a.clock() + patience(PATIENCE)
    while len(entered) < count:
        assert a.clock() < deadline
        a.unreached()
        b.unreached()
    Random(at).shuffle(entered)
    for each in entered:
        enter(*each)  # type: ignore[arg-type]
    assert received(b, a).read() == bytes(300_000)
    a.close()
    b.close()


@pytest.mark.parametrize("several", [2], indirect=True)
def test_a_stripe_goes_to_the_connection_that_sends_it_first(
    pair: tuple[SocketTransport, SocketTransport], several: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = pair
    link = a._links[1]
    trips = {connection.sock: 3.0 - i for i, connection in enumerate(link.connections)}
    monkeypatch.setattr(outgoing, "round_trips", trips.__getitem__)
    assert link._free() is link.connections[several - 1]
    trips[link.first.sock] = outgoing.AT_ONCE / 2
    assert link._free() is link.first
    a.send(1, [b"header", bytes(3 * STRIPE)])
    assert received(b, a).read() == bytes(3 * STRIPE)


def test_the_kernel_tells_for_how_long_a_connection_has_bytes_to_send() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as sock:
        assert tcp.round_trips(sock) == 0.0
        sock.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                sock.send(bytes(1 << 16))
        assert tcp.round_trips(sock) > 1.0
        before = tcp.round_trips(sock)
    assert tcp.round_trips(sock) == 0.0 < before  # closed
