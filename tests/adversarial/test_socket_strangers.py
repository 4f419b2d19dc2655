"""At the port of a rank on sockets, only members of the job get in, and the job is not disturbed."""

from __future__ import annotations

import random
import resource
import socket
import ssl
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from ringcast.errors import LinkLost, PeerFailed, RingcastError
from ringcast.net.certificates import LONGEST, fingerprint, new_certificate
from ringcast.net.fd_limits import CROWD, STRANGERS, allow_files
from ringcast.net.strangers import SLACK
from ringcast.net.tls import TlsClient
from ringcast.transports.sockets import door
from ringcast.transports.sockets.door import CLAIMS, SHARE
from ringcast.transports.sockets.greeting import MOST_SAID, hello
from ringcast.transports.sockets.transport import SocketTransport
from ringcast.wire.endpoint_card import EndpointCard
from ringcast.wire.header import LARGEST_FRAME
from support.jobs import Job
from support.patience import patience
from support.socket_jobs import PATIENCE, change_a_byte, join, meet, opened, received
from support.strangers import close_all, ended, garbage, port_of, shaken, stranger, until_counted, until_ended

pytestmark = pytest.mark.usefixtures("nothing_left")
SECURITY = pytest.mark.parametrize("secure", [True, False], ids=["secure", "open"])
CONNECTIONS = 10_000


@pytest.fixture
def pair() -> Iterator[tuple[SocketTransport, SocketTransport]]:
    """Two ranks that are connected."""
    a, b = opened(2)
    join([a, b])
    yield a, b
    a.close()
    b.close()


def works(a: SocketTransport, b: SocketTransport) -> None:
    """Check that messages go both ways."""
    for sender, receiver, peer in (a, b, 1), (b, a, 0):
        sender.send(peer, [b"header", bytes(100_000)])
        arrival = received(receiver, sender)
        assert (arrival.header, arrival.read()) == (b"header", bytes(100_000))
    assert a.poll(0) is b.poll(0) is None


@pytest.mark.parametrize("knows", ["nothing", "a member's certificate", "another job"])
def test_a_client_without_a_members_key_gets_nothing_in(
    knows: str, pair: tuple[SocketTransport, SocketTransport]
) -> None:
    a, b = pair
    own, member = new_certificate(), a._claim
    claim = {"nothing": own.public, "a member's certificate": member, "another job": new_certificate().public}[knows]
    assert shaken(stranger(b), TlsClient(own), claim, b) is None
    assert b.strangers == 1
    works(a, b)


def test_with_the_key_of_a_member_one_gets_in(pair: tuple[SocketTransport, SocketTransport]) -> None:
    """The control of the test above: nothing else is in the way."""
    _, b = pair
    own = new_certificate()
    ranks = {fingerprint(own.public): 2}
    b._door.rank_of = lambda claim: ranks.get(fingerprint(claim))
    wrapped = shaken(stranger(b), TlsClient(own), own.public, b)
    assert wrapped is not None
    wrapped.close()
    assert b.strangers == 0


def test_tls_1_2_is_refused(pair: tuple[SocketTransport, SocketTransport], tmp_path: Path) -> None:
    a, b = pair
    own = new_certificate()
    ranks = {fingerprint(own.public): 2}
    b._door.rank_of = lambda claim: ranks.get(fingerprint(claim))
    for version, admitted in (ssl.TLSVersion.TLSv1_2, False), (ssl.TLSVersion.TLSv1_3, True):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.maximum_version = version
        file = tmp_path / "certificate"
        file.write_bytes(own.secret)
        context.load_cert_chain(file)
        client = TlsClient(own)
        client._context = context
        wrapped = shaken(stranger(b), client, own.public, b)
        assert (wrapped is not None) == admitted
    assert wrapped is not None
    wrapped.close()
    assert b.strangers == 1
    works(a, b)


def test_a_server_without_the_ranks_key_gets_nothing() -> None:
    """Somebody listens at the address of a rank, with a certificate of his own."""
    a, b, impostor = (SocketTransport("tcp://127.0.0.1:*", size=2) for _ in range(3))
    a.meet([a.card, EndpointCard(impostor.address, b.public_key)])
    impostor.meet([a.card, impostor.card])
    a.connect([1])
    a.send(1, [b"secret"])
    deadline = a.clock() + patience(PATIENCE)
    while not (why := a.unreached()[1]):
        assert impostor.poll(impostor.clock()) is None
        assert a.clock() < deadline
    assert why == "the listener there is not that rank"
    with pytest.raises(LinkLost, match="is not that rank"):
        a.send(1, [b"secret"])
    assert impostor.poll(impostor.clock() + 0.02) is None
    for transport in a, b, impostor:
        transport.close()


@SECURITY
def test_members_of_another_job_are_refused_once(secure: bool) -> None:
    a, b = opened(2, secure=secure)
    other, another = opened(2, secure=secure)
    other._cards = [other.card, b.card]
    other.connect([1])
    deadline = a.clock() + patience(PATIENCE)
    while not (why := other.unreached()[1]):
        b.unreached()
        assert a.clock() < deadline
    assert why.startswith("the listener there does not admit this rank")
    assert b.strangers == 1
    for transport in a, b, other, another:
        transport.close()


@pytest.mark.parametrize(("client", "server"), [(True, False), (False, True)])
def test_open_and_encrypted_ranks_do_not_talk(client: bool, server: bool) -> None:
    a, b = (SocketTransport("tcp://127.0.0.1:*", size=2, secure=secure) for secure in (client, server))
    meet([a, b])
    a.connect([1])
    a.send(1, [b"secret"])
    deadline = a.clock() + patience(PATIENCE)
    while not a.unreached()[1]:
        assert b.poll(b.clock()) is None
        assert a.clock() < deadline
    assert b.strangers >= 1
    a.close()
    b.close()


@SECURITY
@pytest.mark.parametrize("size", [0, 1, LONGEST, LONGEST + 1, 65535])
def test_a_claim_of_any_length_is_refused(size: int, secure: bool) -> None:
    a, b = opened(2, secure=secure)
    with stranger(b, hello(bytes(size), secure=secure)) as sock:
        until_ended(sock, b)
    assert b.strangers == 1
    a.close()
    b.close()


@SECURITY
def test_strangers_who_speak_slowly_or_not_at_all_do_not_hinder_a_job(
    secure: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "HANDSHAKE", 0.5)
    a, b = opened(2, secure=secure)
    slow, silent = stranger(b), stranger(b)
    said = iter(hello(bytes(LONGEST), secure=secure))
    join([a, b])
    deadline = a.clock() + patience(PATIENCE)
    while b.strangers < 2 or not (ended(slow) and ended(silent)):
        with suppress(ConnectionError, StopIteration):
            slow.send(bytes([next(said)]))
        works(a, b)
        assert a.clock() < deadline
    assert b.strangers == 2
    close_all([slow, silent])
    a.close()
    b.close()


@SECURITY
def test_ten_thousand_connections_of_garbage_change_nothing(secure: bool) -> None:
    a, b = opened(2, secure=secure)
    join([a, b])
    b._door._work = lambda: 0.0  # so that it does not rest
    rng, half_open = random.Random(7), [stranger(b, b"r") for _ in range(40)]
    for i in range(CONNECTIONS - len(half_open)):
        with stranger(b, garbage(rng, i)):
            pass
        if i % 100 == 0:
            works(a, b)
    until_counted(CONNECTIONS, b)
    assert b.strangers == CONNECTIONS
    works(a, b)
    close_all(half_open)
    a.close()
    b.close()


def waiting(transport: SocketTransport) -> int:
    return len(transport._door._silent) + len(transport._door._named)


@SECURITY
def test_of_a_thousand_silent_connections_few_are_kept(secure: bool) -> None:
    """Before it is known who the members are, and after that; members get in all the while."""
    allow_files(4000)
    a, b, c = (SocketTransport("tcp://127.0.0.1:*", size=3, secure=secure) for _ in range(3))
    cards = [each.card for each in (a, b, c)]
    a.meet(cards)
    c.meet(cards)
    a.connect([1])
    a.send(1, [b"early"])
    with ExitStack() as stack:
        for i in range(1000):
            sock = stack.enter_context(stranger(b, hello(b._claim, secure=secure)[: i % 12]))
            a.unreached()
            b.unreached()
            assert waiting(b) <= 3 + CROWD + SLACK
        deadline = a.clock() + patience(PATIENCE)
        while waiting(b) > 3 + STRANGERS:
            b.wait_for_news(deadline)
            assert a.clock() < deadline
        assert a.unreached() == {1: ""}  # it waits
        assert not ended(sock)
        b.meet(cards)
        assert received(b, a).header == b"early"
        c.send(1, [b"late"])
        assert received(b, c).header == b"late"
    until_counted(1000, b)
    for each in a, b, c:
        each.close()


def test_a_member_that_was_closed_in_a_crowd_tries_again(pair: tuple[SocketTransport, SocketTransport]) -> None:
    a, b = pair
    c = SocketTransport("tcp://127.0.0.1:*", size=3)
    cards = [a.card, b.card, c.card]
    c.meet(cards)
    ranks = {card.key: rank for rank, card in enumerate(cards)}
    b._door.rank_of = None
    c.connect([1])
    c.send(1, [b"header"])
    for _ in range(3):
        deadline = c.clock() + patience(PATIENCE)
        while not b._door._silent:
            assert c.unreached() == {1: ""}
            b.unreached()
            assert c.clock() < deadline
        for newcomer in [*b._door._silent.values()]:
            newcomer.end()
    b._door.rank_of = lambda claim: ranks.get(fingerprint(claim))
    assert received(b, c).header == b"header"
    assert c.unreached() == {}
    c.close()


def half_handshake(claim: bytes, more: bytes = b"") -> bytes:
    """Return the first words of a client that shows this certificate and goes no further."""
    stream = TlsClient(new_certificate()).stream()
    with suppress(ssl.SSLWantReadError):
        stream.shake()
    return hello(claim, secure=True) + stream.unsent() + more


def test_of_many_handshakes_in_the_name_of_a_member_few_are_kept_and_the_member_gets_in(
    pair: tuple[SocketTransport, SocketTransport],
) -> None:
    a, b = pair
    c = SocketTransport("tcp://127.0.0.1:*", size=3)
    cards = [a.card, b.card, c.card]
    c.meet(cards)
    ranks = {card.key: rank for rank, card in enumerate(cards)}
    b._door.rank_of = lambda claim: ranks.get(fingerprint(claim))
    with ExitStack() as stack:
        for i in range(5 * CLAIMS):
            stack.enter_context(stranger(b, half_handshake(c._claim)))
            until_counted(i + 1, b)
            assert len(b._door._named) <= CLAIMS
        assert waiting(b) <= CLAIMS
        c.connect([1])
        c.send(1, [b"header"])
        assert received(b, c).header == b"header"
    works(a, b)
    c.close()


def test_who_says_too_much_in_the_handshake_is_refused(pair: tuple[SocketTransport, SocketTransport]) -> None:
    a, b = pair
    announced = b"\x17\x03\x03\x40\x00"  # a record of 16 kB
    with stranger(b, half_handshake(a._claim, announced + bytes(MOST_SAID))) as sock:
        until_ended(sock, b)
    assert not waiting(b)
    works(a, b)


def test_the_port_rests_from_strangers_in_proportion_to_its_work_for_them(
    pair: tuple[SocketTransport, SocketTransport], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = pair
    port, ticks = b._door, count()
    monkeypatch.setattr(port, "_work", lambda: next(ticks) * 10.0)  # seconds to accept, to read, to close
    with stranger(b, b"no hello of ours"):
        until_counted(1, b)
        while not port._rests_until:
            b.unreached()
        assert port._rests_until - time.monotonic() == pytest.approx((SHARE - 1) * 30, abs=20)
        with stranger(b):
            works(a, b)
            assert b.strangers == 1, "the port rests, and the job goes on"
            port._rests_until = time.monotonic()
            port._plan()
            until_counted(2, b)


FLOOD = """
import socket, sys
address, open_ = ("127.0.0.1", int(sys.argv[1])), []
print(flush=True)
while True:
    sock = socket.socket()
    sock.setblocking(False)
    sock.connect_ex(address)
    open_.append(sock)
    if len(open_) > 200:
        open_.pop(0).close()
"""


@pytest.mark.live
def test_a_flood_of_connections_takes_a_small_share_of_a_ranks_time(
    pair: tuple[SocketTransport, SocketTransport],
) -> None:
    a, b = pair
    with subprocess.Popen([sys.executable, "-c", FLOOD, str(port_of(b.address))], stdout=subprocess.PIPE) as flood:
        try:
            assert flood.stdout is not None
            flood.stdout.readline()
            begun, used, seen = time.monotonic(), time.thread_time(), b.strangers
            while (seconds := time.monotonic() - begun) < 3:
                assert b.poll(b.clock() + 0.1) is None
            share = (time.thread_time() - used) / seconds
            assert b.strangers > seen + 100
            works(a, b)
        finally:
            flood.kill()
    assert share < 0.5, share


def test_a_member_has_one_connection(pair: tuple[SocketTransport, SocketTransport]) -> None:
    a, b = pair
    own = new_certificate()
    ranks = {fingerprint(own.public): 0}
    b._door.rank_of = lambda claim: ranks.get(fingerprint(claim))
    made = [shaken(stranger(b), TlsClient(own), own.public, b) for _ in range(3)]
    assert len(b._incoming) == 1
    lost = [wrapped for wrapped in made if wrapped is None or ended(wrapped)]
    assert lost == made[:2]
    assert a.unreached() == {}
    for wrapped in made:
        assert wrapped is not None
        wrapped.close()


def test_without_free_files_the_port_waits_and_the_job_goes_on(pair: tuple[SocketTransport, SocketTransport]) -> None:
    a, b = pair
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    others = [socket.socket() for _ in range(3)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(sock.fileno() for sock in others) + 1, hard))
    try:
        others[0].connect(("127.0.0.1", port_of(b.address)))  # for which no number is left at the other end
        for _ in range(20):
            works(a, b)
        while not b._door._rests_until:
            works(a, b)
        assert b.strangers == 0
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    until_counted(1, b)
    close_all(others)


@SECURITY
@pytest.mark.parametrize(
    "said",
    [
        struct.pack("<II", 1, LARGEST_FRAME + 1),
        struct.pack("<II", 1, 0xFFFFFFFF),
        struct.pack("<II", 0, 0),
        struct.pack("<II", 0xFFFFFFFF, 0),
        struct.pack("<17I", 16, 8, *[LARGEST_FRAME] * 14, LARGEST_FRAME + 1),
        struct.pack("<18I", 17, *[LARGEST_FRAME] * 17),
    ],
    ids=["frame", "huge frame", "no frames", "too many frames", "later frame", "message"],
)
def test_what_is_no_message_closes_the_connection(said: bytes, secure: bool) -> None:
    """A member is trusted, but bounded."""
    a, b = opened(2, secure=secure)
    join([a, b])
    link = a._links[1].first
    link.sock.send(said if link.stream is None else b"".join(link.stream.encrypt([said])))
    deadline = a.clock() + patience(PATIENCE)
    while not a._links[1].lost:
        assert b.poll(b.clock()) is None
        a.unreached()
        assert a.clock() < deadline
    with pytest.raises(LinkLost):
        a.send(1, [b"header"])
    a.close()
    b.close()


def test_who_changes_a_byte_of_a_large_message_ends_the_call_with_an_error_that_names_its_sender() -> None:
    job = Job("sockets", 2)
    try:
        sender, receiver = (endpoint.transport for endpoint in job.endpoints)
        change_a_byte(sender._links[1].first, -1000, least=80_000)
        for connection in receiver._incoming:  # so that all of the message comes before it is read
            connection.socks[0].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        ends = job.run(lambda comm: comm.bcast(np.zeros(10_000) if comm.rank == 0 else None))
        assert isinstance(ends[1], PeerFailed), ends
        assert ends[1].peer == 0
        assert "the link from rank 0 to rank 1 broke off in the middle of a message: " in str(ends[1])
        assert isinstance(ends[0], RingcastError), ends
        assert not any(endpoint.torn for endpoint in job.endpoints)
    finally:
        job.close()


def test_who_shows_a_members_certificate_and_breaks_off_ends_nothing(
    pair: tuple[SocketTransport, SocketTransport],
) -> None:
    """The certificate is public: whoever has seen it may show it, and then reset the connection with bytes unread."""
    a, b = pair
    for more in b"", b"x", b"\x16\x03\x01" + bytes(100):
        sock = stranger(b, hello(a._claim, secure=True) + more)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()
        for _ in range(20):
            assert b.poll(b.clock() + 0.001) is None
    a.send(1, [b"header"])
    assert received(b, a).header == b"header"
