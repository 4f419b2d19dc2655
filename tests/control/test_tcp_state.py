"""The kernel's state of connections: of this process's own sockets, and of libzmq's."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest
import zmq

from ringcast.control import tcp_state
from ringcast.control.tcp_state import Address, find, idle, parse, state
from support import needs


@pytest.fixture(autouse=True)
def told_by_the_system() -> None:
    needs.connections()


@contextmanager
def connection(family: int = socket.AF_INET, host: str = "127.0.0.1") -> Iterator[tuple[socket.socket, Address]]:
    """Yield a connection to a peer that does not read, and the peer's address."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server((host, 0), family=family))
        address = listener.getsockname()
        sock = stack.enter_context(socket.create_connection(address[:2]))
        stack.enter_context(listener.accept()[0])
        yield sock, (socket.AddressFamily(family), address)


@pytest.mark.parametrize("error", [OSError(92, "Protocol not available"), struct.error("too short")])
def test_without_the_calls_nothing_is_known(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Else each connection would count as closed by the network, and a rank that is well would be given up."""

    def fail(_: socket.socket) -> None:
        raise error

    monkeypatch.setattr(tcp_state, "of", fail)
    assert not tcp_state.known()


def test_a_connection_that_waits_for_nothing() -> None:
    with connection() as (sock, address):
        assert idle(sock.fileno())
        seen = state(sock.fileno(), address)
        assert seen is not None
        assert (seen.queued, seen.flying, seen.retransmitted) == (0, 0, 0)
        assert seen.silent < 60
        assert seen.rtt < 60


def test_a_peer_that_does_not_read_closes_its_window() -> None:
    with connection() as (sock, address):
        sock.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                sock.send(bytes(1 << 20))
        assert not idle(sock.fileno())
        while (seen := state(sock.fileno(), address)) is not None and seen.flying:  # the last ones are under way
            pass
        assert seen is not None
        assert seen.queued > 0


def test_a_descriptor_that_was_closed_and_used_again_is_not_taken_for_the_connection() -> None:
    with connection() as (sock, address), connection() as (other, _):
        file = sock.fileno()
        assert state(file, address) is not None
        os.dup2(other.fileno(), file)
        assert state(file, address) is None
        with open(os.devnull) as nothing:
            os.dup2(nothing.fileno(), file)
        assert state(file, address) is None
        assert not idle(file)
    assert state(file, address) is None


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_a_connection_is_found_by_its_peer_and_nothing_is_left_open(family: int, host: str) -> None:
    if family == socket.AF_INET6:
        needs.ipv6()
    here, there = socket.socketpair()  # neither of these is taken for one
    with here, there, connection(family, host) as (sock, address), connection() as (_, other):
        before = os.listdir("/proc/self/fd")
        nobody = (socket.AF_INET, ("127.0.0.1", 1))
        found = find({address: 5, nobody: 6, other: 7})
        assert found[5] == [sock.fileno()]
        assert set(found) == {5, 7}
        assert os.listdir("/proc/self/fd") == before


def test_the_connection_of_a_zeromq_socket_is_found() -> None:
    with zmq.Context() as context, context.socket(zmq.PULL) as pull, context.socket(zmq.PUSH) as push:
        port = pull.bind_to_random_port("tcp://127.0.0.1")
        push.connect(f"tcp://127.0.0.1:{port}")
        push.send(b"hello")
        assert pull.recv() == b"hello"
        address = parse(f"tcp://127.0.0.1:{port}")
        assert address is not None
        (file,) = find({address: 0})[0]
        assert state(file, address) is not None


@pytest.mark.parametrize("text", ["", "ipc:///tmp/x", "tcp://", "tcp://host.example:5", "tcp://*:5", "tcp://1.2.3.4:x"])
def test_what_is_no_address_is_none(text: str) -> None:
    assert parse(text) is None
