"""The transport on the kernel's sockets keeps the laws of all transports, and laws of its own."""

from __future__ import annotations

import contextlib
import doctest
import errno
import json
import os
import random
import re
import select
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringcast.control import tcp_state
from ringcast.errors import LinkLost
from ringcast.net import tls
from ringcast.net.certificates import LONGEST, fingerprint, new_certificate
from ringcast.net.fd_limits import allow_files
from ringcast.net.keys import is_key
from ringcast.net.tls import RECORD, TlsClient, TlsServer, TlsStream, encrypted
from ringcast.transports.base import HURRIED, Transport
from ringcast.transports.sockets import tcp
from ringcast.transports.sockets import transport as sockets
from ringcast.transports.sockets.connection import Connection
from ringcast.transports.sockets.framing import in_records
from ringcast.transports.sockets.source import FED
from ringcast.transports.sockets.transport import SocketTransport
from ringcast.transports.sockets.watcher import IN
from ringcast.wire.endpoint_card import EndpointCard
from ringcast.wire.header import LARGEST_FRAME
from support import needs
from support.conformance import CHECKS, Check
from support.patience import patience, slowness
from support.socket_jobs import PATIENCE, change_a_byte, join, meet, opened, ranks, received

pytestmark = pytest.mark.usefixtures("nothing_left")
SECURITY = pytest.mark.parametrize("secure", [True, False], ids=["secure", "open"])


@SECURITY
@pytest.mark.parametrize("check", CHECKS, ids=[check.__name__ for check in CHECKS])
def test_conformance(check: Check, secure: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    # What was sent to one that has closed keeps close() waiting for so long.
    monkeypatch.setattr(sockets, "LINGER", patience(1.0))

    def make(size: int) -> Sequence[Transport]:
        return ranks(size, secure=secure)

    check(make)


@pytest.fixture(params=[True, False], ids=["secure", "open"])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[SocketTransport, SocketTransport]]:
    """Two ranks that are connected."""
    a, b = opened(2, secure=request.param)
    join([a, b])
    yield a, b
    a.close()
    b.close()


def lost(a: SocketTransport, peer: int = 1) -> str:
    """Let a rank work until a connection is lost; return why."""
    deadline = a.clock() + patience(PATIENCE)
    while not (why := a._links[peer].lost):
        a.unreached()
        assert a.clock() < deadline
    with pytest.raises(LinkLost, match=re.escape(why)):
        a.send(peer, [b"header"])
    return why


def mixture(seed: int) -> list[list[bytes]]:
    """Return messages of few and many, short and long frames."""
    rng = random.Random(seed)
    sizes = [0, 1, 64, 1000, RECORD - 72, RECORD - 8, RECORD, RECORD + 1, 2 * RECORD, 100_000, 262_144, LARGEST_FRAME]
    messages = [[rng.randbytes(rng.choice(sizes)) for _ in range(rng.choice([1, 2, 3, 9]))] for _ in range(40)]
    return [*messages, [b""], [b"", b""], [b"h", *[b"x"] * 3000], [b"", *[b""] * 20_000, rng.randbytes(100_000)]]


def exchanged(sender: SocketTransport, receiver: SocketTransport, messages: list[list[bytes]]) -> None:
    """Send messages, and check that they come as they are, by one way of reading or the other."""
    for message in messages:
        sender.send(1, message)
    for i, (header, *frames) in enumerate(messages):
        arrival = received(receiver, sender)
        assert arrival.header == header
        for frame in frames:
            if i % 2:
                assert arrival.read() == frame
            else:
                room = bytearray(len(frame))
                assert arrival.read_into(memoryview(room)) == len(frame)
                assert room == frame
        assert not arrival.more


def test_messages_of_any_shape_arrive(pair: tuple[SocketTransport, SocketTransport]) -> None:
    exchanged(*pair, mixture(1))


@pytest.mark.parametrize("side", ["sender", "receiver"])
def test_messages_arrive_where_the_kernel_has_little_room(
    side: str, pair: tuple[SocketTransport, SocketTransport]
) -> None:
    """Messages are sent and received in pieces, that end anywhere."""
    a, b = pair
    if side == "sender":
        a._links[1].first.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    else:
        (connection,) = b._incoming
        connection.socks[0].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 100_000)  # with less TCP waits for timers
    exchanged(a, b, mixture(2)[::4])


def test_what_is_sent_is_the_callers_again(pair: tuple[SocketTransport, SocketTransport]) -> None:
    """Also where the kernel did not take it."""
    a, b = pair
    memory = bytearray(500_000)
    for i in range(60):
        memory[:] = bytes([i]) * len(memory)
        a.send(1, [b"header", memory])
    assert a.unsent
    for i in range(60):
        assert received(b, a).read() == bytes([i]) * len(memory)
    assert not a.unsent


def arrived(a: SocketTransport) -> None:
    """Wait until the kernel of the other rank has all that was sent: where it has much to do it brings it later."""
    deadline = a.clock() + patience(PATIENCE)
    while a.unsent or tcp_state.of(a._links[1].first.sock).queued:
        assert a.clock() < deadline


def test_many_small_messages_take_few_looks(pair: tuple[SocketTransport, SocketTransport]) -> None:
    a, b = pair
    (connection,) = b._incoming
    looks = [0]

    def counted() -> None:
        looks[0] += 1
        connection.fill()

    b._watcher.pass_on(connection.socks[0].fileno(), IN, counted)
    for _ in range(100):
        a.send(1, [bytes(64)])
    arrived(a)
    for _ in range(100):
        assert received(b).header == bytes(64)
    assert 1 <= looks[0] <= 2


def test_many_records_take_few_system_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = {"write": 0, "feed": 0}

    def counted(kind: type, name: str, of: str) -> None:
        whole = getattr(kind, name)

        def count(*args: object) -> object:
            calls[of] += 1
            return whole(*args)

        monkeypatch.setattr(kind, name, count)

    a, b = opened(2)
    join([a, b])
    counted(Connection, "_write", "write")
    counted(TlsStream, "feed", "feed")
    for _ in range(10):
        a.send(1, [bytes(64), bytes(16 * RECORD)])
        assert received(b, a).read() == bytes(16 * RECORD)
    assert calls["write"] <= 10 * 4
    # It is 10 * 3 where the kernel brings a message at once; each of the 10 * 16 records alone would be too many.
    assert calls["feed"] < min(10 * 6 * slowness(), 10 * 16)
    a.close()
    b.close()


def test_the_messages_of_one_rank_do_not_keep_those_of_another_waiting() -> None:
    """However many of them TLS holds already, or wait in the kernel."""
    made = opened(3)
    join(made)
    a, b, c = made
    for _ in range(1000):
        a.send(1, [b"many", bytes(100)])
    c.send(1, [b"other"])
    deadline = b.clock() + patience(PATIENCE)
    before, arrival = 0, None
    while arrival is None or arrival.header != b"other":
        arrival = b.poll(deadline)
        assert b.clock() < deadline
        before += 1
    assert before <= 1 + FED // (4 + 4 + 4 + 4 + 100 + 22)
    for transport in made:
        transport.close()


def test_ports_and_files_are_given_back_and_there_is_no_thread() -> None:
    threads, before = threading.active_count(), set(os.listdir("/proc/self/fd"))
    made = opened(3)
    join(made)
    assert threading.active_count() == threads
    for rank, transport in enumerate(made):
        for peer in range(3):
            if peer != rank:
                transport.send(peer, [b"header", bytes(100_000)])
    for transport in made:
        transport.close()
        transport.close()
    assert set(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("bad", ["taken", "tcp://127.0.0.1", "tcp://127.0.0.1:x", "tcp://192.0.2.1:*", "udp://1:2", ""])
def test_an_address_that_cannot_be_bound_is_an_error_and_leaves_nothing(bad: str) -> None:
    first = SocketTransport("tcp://127.0.0.1:*")
    with pytest.raises(OSError, match=r".") as error:
        SocketTransport(first.address if bad == "taken" else bad)
    assert (error.value.errno == errno.EADDRINUSE) == (bad == "taken")
    second = SocketTransport([first.address, "tcp://127.0.0.1:*"])
    assert second.address not in ("", first.address)
    first.close()
    second.close()


@pytest.mark.parametrize("address", ["", "nonsense", "tcp://host", "ipc://x", "udp://1:2", "tcp://127.0.0.1:70000"])
def test_a_peer_whose_address_is_nonsense_cannot_be_reached(address: str) -> None:
    with contextlib.closing(SocketTransport("tcp://127.0.0.1:*", size=2)) as transport:
        transport.meet([EndpointCard(address), transport.card])
        with pytest.raises(LinkLost, match="cannot be used"):
            transport.send(0, [b"x"])


def test_ranks_meet_over_ipv6() -> None:
    needs.ipv6()
    made = [SocketTransport("tcp://[::1]:*", size=2) for _ in range(2)]
    meet(made)
    made[0].send(1, [b"header"])
    assert received(made[1], made[0]).header == b"header"
    assert made[0].links() == {1: made[1].address}
    for transport in made:
        transport.close()


def test_connections_under_way_are_no_links_and_tell_why_they_fail() -> None:
    a, b = opened(2)
    b.close()
    a.connect([1])
    assert a.links() == {}
    assert lost(a) == a.unreached()[1] == "it was refused, or there is no way there"
    a.stop_watching()
    assert a.unreached() == {}
    assert a.links() == {1: b.address}
    a.close()


def test_a_wait_for_news_ends_when_there_are_some() -> None:
    a, b = opened(2)
    a.connect([1])
    deadline = a.clock() + patience(PATIENCE)
    while a.unreached():
        b.unreached()
        a.wait_for_news(a.clock() + 0.01)
        assert a.clock() < deadline
    for _ in range(2):
        a.inject([b"news"])
        a.wait_for_news(deadline)
        assert a.clock() < deadline
        assert a.poll(a.clock()) is not None
    a.wait_for_news(a.clock() + 0.01)
    a.close()
    b.close()


def test_connections_have_their_options(pair: tuple[SocketTransport, SocketTransport]) -> None:
    a, b = pair
    (connection,) = b._incoming
    for sock in a._links[1].first.sock, connection.socks[0]:
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == tcp.KEEPALIVE
        # The kernel would end a connection to a rank that computes for long, and takes nothing meanwhile.
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 0
    with contextlib.closing(tcp.connecting(tcp.with_route(tcp.resolve(a.address)))) as sock:
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == tcp.SILENCE


def test_the_descriptor_works_in_another_epoll(pair: tuple[SocketTransport, SocketTransport]) -> None:
    a, b = pair
    with contextlib.closing(select.epoll()) as outer:
        outer.register(b.fileno(), select.EPOLLIN)
        assert b.poll(b.clock()) is None
        assert outer.poll(0) == []
        for sent in lambda: a.send(1, [b"header"]), lambda: b.inject([b"header"]):
            sent()
            assert outer.poll(patience(PATIENCE))
            assert received_any(b) == b"header"
            assert b.poll(b.clock()) is None
            assert outer.poll(0) == []


def received_any(transport: SocketTransport) -> bytes:
    deadline = transport.clock() + patience(PATIENCE)
    while (arrival := transport.poll(deadline)) is None:
        assert transport.clock() < deadline
    return arrival.header


def test_a_frame_beyond_the_limit_closes_the_connection(pair: tuple[SocketTransport, SocketTransport]) -> None:
    a, b = pair
    a.send(1, [b"header", bytes(LARGEST_FRAME + 1)])
    deadline = a.clock() + patience(PATIENCE)
    while b._incoming:
        assert b.poll(b.clock()) is None
        a.unreached()
        assert a.clock() < deadline
    lost(a)


def test_close_is_bounded_where_nobody_takes_what_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "LINGER", 1.0)
    a, b = opened(2)
    a.send(1, [b"header"])
    for within, most in (HURRIED, 2.0), (None, 5.0):
        c = SocketTransport("tcp://127.0.0.1:*", size=2)
        c.meet([c.card, b.card])
        c.send(1, [b"header"])
        start = c.clock()
        c.close(within)
        assert c.clock() - start < patience(most)
    a.close(HURRIED)
    b.close()


def test_what_is_complete_arrives_after_the_sender_has_ended(pair: tuple[SocketTransport, SocketTransport]) -> None:
    a, b = pair
    b.unreached()
    for size in (0, 10, 200_000):
        a.send(1, [b"header", bytes(size)])
    a.close()
    for size in (0, 10, 200_000):
        assert received(b).read() == bytes(size)
    assert b.poll(b.clock() + 0.01) is None


KILLED = """
import json, sys, time
from ringcast.transports.sockets.transport import SocketTransport
from ringcast.wire.endpoint_card import EndpointCard
a = SocketTransport("tcp://127.0.0.1:*", size=2, secure={secure})
print(json.dumps([a.address, a.public_key]), flush=True)
a.meet([a.card, EndpointCard(*json.loads(sys.stdin.readline()))])
a.send(1, [b"whole", bytes(300_000)])
while a.unsent:
    a.unreached()
link = a._links[1].first
whole = link._write
link._write = lambda pieces: whole([memoryview(b"".join(pieces))[:{bytes}]])
a.send(1, [b"cut", bytes(1_000_000)])
print("sent", flush=True)
sys.stdin.readline()
"""


@SECURITY
@pytest.mark.parametrize("size", [1, 20, 100_000, 999_999])
def test_of_a_sender_that_is_killed_in_the_middle_of_a_message_nothing_half_arrives(size: int, secure: bool) -> None:
    b = SocketTransport("tcp://127.0.0.1:*", size=2, secure=secure)
    program = KILLED.format(secure=secure, bytes=size)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", program], **pipes) as process:
        b.meet([EndpointCard(*json.loads(process.stdout.readline())), b.card])
        process.stdin.write(json.dumps([b.address, b.public_key]) + "\n")
        process.stdin.flush()
        arrival = received(b)
        assert (arrival.header, arrival.read()) == (b"whole", bytes(300_000))
        assert process.stdout.readline() == "sent\n"
        assert b.poll(b.clock() + 0.05) is None
        process.kill()
    deadline = b.clock() + patience(PATIENCE)
    while b._incoming:
        assert b.poll(b.clock() + 0.01) is None
        assert b.clock() < deadline
    b.close()


@pytest.mark.parametrize("frames", [[60_000], [40_000, 20_000]], ids=["one", "two"])
@pytest.mark.parametrize("into", [False, True], ids=["read", "read_into"])
@pytest.mark.parametrize("at", [-20_000, -1])
def test_a_byte_that_was_changed_on_the_way_ends_the_connection(at: int, into: bool, frames: list[int]) -> None:
    """Where all of the message has come, and its reader finds the record that is broken."""
    a, b = opened(2)
    join([a, b])
    change_a_byte(a._links[1].first, at, least=60_000)
    (connection,) = b._incoming
    connection.socks[0].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)  # so that all comes before it is read
    a.send(1, [b"header", *map(bytes, frames)])
    a.send(1, [b"header", b"behind"])
    arrival = received(b, a)
    assert arrival.header == b"header"

    def take(size: int) -> object:
        return arrival.read_into(memoryview(bytearray(size))) if into else arrival.read()

    with pytest.raises(LinkLost, match=r"rank 0 .*bad record mac"):
        list(map(take, frames))
    assert b.poll(b.clock() + 0.01) is None
    assert not b._incoming
    lost(a)
    a.close()
    b.close()


@SECURITY
def test_33_ranks_are_all_connected(secure: bool) -> None:
    p = 33
    allow_files(3 * p * p)
    made = opened(p, secure=secure)
    join(made)
    for rank, transport in enumerate(made):
        for peer in range(p):
            if peer != rank:
                transport.send(peer, [bytes([rank]), bytes([peer]) * 1000])
    for rank, transport in enumerate(made):
        got = set()
        for _ in range(p - 1):
            arrival = received(transport)
            assert arrival.read() == bytes([rank]) * 1000
            got.add(arrival.header[0])
        assert got == set(range(p)) - {rank}
        assert transport.strangers == 0
    for transport in made:
        transport.close()


@given(st.lists(st.integers(0, 3 * RECORD), min_size=1, max_size=6))
def test_records_are_full_but_for_the_last(sizes: list[int]) -> None:
    frames = [random.Random(i).randbytes(size) for i, size in enumerate(sizes)]
    pieces = [bytes(piece) for piece in in_records(frames)]
    assert b"".join(pieces) == b"".join(frames)
    assert all(len(piece) % RECORD == 0 for piece in pieces[:-1])


def test_so_many_bytes_travel_under_tls() -> None:
    """By OpenSSL's own count, on which the receiver relies."""
    own = new_certificate()
    server, client = TlsServer(own), TlsClient(own)
    server.trust(own.public)
    a, b = client.stream(), server.stream()
    for _ in range(2):
        for one, other in (a, b), (b, a):
            with contextlib.suppress(ssl.SSLWantReadError):
                one.shake()
            other.feed(one.unsent())
    b.shake()
    room = memoryview(bytearray(2 * RECORD))
    for size in (1, 100, RECORD - 1, RECORD, RECORD + 1, 4 * RECORD, 4 * RECORD + 1):
        (data,) = a.encrypt([bytes(size)])
        assert len(data) == encrypted(size)
        b.feed(data)
        assert b.held == len(data)
        while size:
            size -= b.read_into(room[: 1 + size // 2])
            assert b.held >= encrypted(size)
        assert b.held == 0


def test_certificates_are_new_short_and_have_no_secret_to_print() -> None:
    one, other = new_certificate(), new_certificate()
    assert fingerprint(one.public) != fingerprint(other.public)
    assert is_key(fingerprint(one.public))
    assert len(one.public) <= LONGEST // 2
    assert b"PRIVATE KEY" in one.secret
    assert b"PRIVATE KEY" not in one.public
    assert "PRIVATE" not in repr(one)


def test_cryptography_is_loaded_only_where_something_is_encrypted() -> None:
    program = """
import sys
from ringcast.transports.sockets.transport import SocketTransport
SocketTransport("tcp://127.0.0.1:*", secure=False).close()
assert "cryptography" not in sys.modules
SocketTransport("tcp://127.0.0.1:*").close()
assert "cryptography" in sys.modules
"""
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_examples() -> None:
    assert [doctest.testmod(module).failed for module in (tls, tcp)] == [0, 0]


def test_the_state_of_a_link_is_found(pair: tuple[SocketTransport, SocketTransport]) -> None:
    """By its address, as the search for dead links does."""
    a, b = pair
    address = tcp_state.parse(b.address)
    assert address is not None
    a.stop_watching()
    assert a.links() == {1: b.address}
    ((file,),) = tcp_state.find({address: 1}).values()
    assert file == a._links[1].first.sock.fileno()
    assert tcp_state.state(file, address) is not None


@pytest.mark.parametrize("secure", [True, False])
def test_a_rank_knows_whose_connections_it_has_still_to_admit(secure: bool) -> None:
    """Else it would leave the start, and compute, while others wait there for it."""
    a, b = made = opened(2, secure=secure)
    try:
        a.connect([1])
        deadline = a.clock() + patience(PATIENCE)
        while a.unreached():
            assert a.clock() < deadline
            b.unreached()
        assert [*a.unheard()] == [1]
        assert [*b.unheard()] == []
        b.connect([0])
        while b.unreached() or a.unheard():
            assert a.clock() < deadline
            a.unreached()
        assert [*b.unheard()] == []
    finally:
        for each in made:
            each.close()
