"""The choice of connections to shut down: real ones, with files as ZeroMQ has them, on a clock that the test moves."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator

import pytest

from ringcast.net import fd_limits
from ringcast.net.fd_limits import CROWD, STRANGERS
from ringcast.net.strangers import ADMITTED, GRACE, MOST_SAID, SHARE, SLACK, TICK, WELCOMED, Strangers, exchanged

pytestmark = pytest.mark.usefixtures("nothing_left")


class Door:
    """A socket that listens, and the connections to it."""

    def __init__(self, stack: contextlib.ExitStack, members: int = 0) -> None:
        self.now = 0.0
        self.strangers = Strangers(members, lambda: self.now, lambda: self.now)
        self._stack = stack
        self._listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))

    def connect(self, said: int = 0, answered: int = 0) -> socket.socket:
        """Return the accepted end of a new connection on which so many bytes have gone in each direction."""
        other = self._stack.enter_context(socket.create_connection(self._listener.getsockname()))
        mine = self._stack.enter_context(self._listener.accept()[0])
        other.sendall(bytes(said))
        mine.sendall(bytes(answered))
        for sock, count in (mine, said), (other, answered):
            while count:
                count -= len(sock.recv(count))
        while exchanged(mine.fileno()) != (answered, said):  # an acknowledgement may take a moment
            os.sched_yield()
        self.strangers.come(mine.fileno())
        return mine

    def look(self) -> None:
        self.strangers.look(lambda: None)


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as made:
        yield made


def is_open(sock: socket.socket) -> bool:
    """Return whether nobody has shut down a connection that is silent."""
    sock.setblocking(False)
    try:
        return sock.recv(1) != b""
    except BlockingIOError:
        return True


def test_what_the_kernel_counts_is_what_was_said(stack: contextlib.ExitStack) -> None:
    sock = Door(stack).connect(said=1234, answered=77)
    assert exchanged(sock.fileno()) == (77, 1234)


def test_of_what_is_no_connection_nothing_is_known(stack: contextlib.ExitStack) -> None:
    file = os.open(os.devnull, os.O_RDONLY)
    stack.callback(os.close, file)
    assert exchanged(file) == (0, 0)
    assert exchanged(1 << 20) == (0, 0)


@pytest.mark.parametrize(("said", "stays"), [(0, True), (MOST_SAID, True), (MOST_SAID + 1, False), (100_000, False)])
def test_who_says_too_much_is_shut_down(said: int, stays: bool, stack: contextlib.ExitStack) -> None:
    door = Door(stack)
    sock, quiet = door.connect(said), door.connect()
    door.look()
    assert (is_open(sock), is_open(quiet)) == (stays, True)
    assert (len(door.strangers), door.strangers.shut) == (1 + stays, 1 - stays)


def test_who_was_admitted_may_say_anything(stack: contextlib.ExitStack) -> None:
    door = Door(stack)
    sock = door.connect(100_000, ADMITTED)
    door.look()
    assert is_open(sock)
    assert (len(door.strangers), door.strangers.due) == (0, None)


@pytest.mark.parametrize("members", [0, 1, 5])
def test_the_oldest_of_too_many_go_first_and_those_that_know_the_key_last(
    members: int, stack: contextlib.ExitStack
) -> None:
    door = Door(stack, members)
    known = door.connect(500, WELCOMED)
    silent = [door.connect() for _ in range(STRANGERS + members - 1)]
    door.now = 5 * GRACE
    door.look()
    assert door.strangers.shut == 0
    silent += [door.connect() for _ in range(3)]
    door.look()
    assert door.strangers.shut == 3
    assert [is_open(sock) for sock in silent] == [i >= 3 for i in range(len(silent))]
    assert is_open(known)


def test_who_has_just_come_has_a_moment_though_there_are_too_many(stack: contextlib.ExitStack) -> None:
    door = Door(stack)
    known = door.connect(500, WELCOMED)
    door.now = GRACE
    for _ in range(STRANGERS + 49):
        door.connect()
    door.now = 2 * GRACE - 0.01
    door.look()
    assert door.strangers.shut == 0
    door.now = 2 * GRACE
    door.look()
    assert door.strangers.shut == 50
    assert is_open(known)
    assert len(door.strangers) == STRANGERS


@pytest.mark.parametrize("members", [0, 5])
def test_no_more_than_a_crowd_may_come_in_that_moment(members: int, stack: contextlib.ExitStack) -> None:
    fd_limits.allow_files(4 * (members + CROWD))
    door = Door(stack, members)
    silent = [door.connect() for _ in range(members + CROWD)]
    door.look()
    assert door.strangers.shut == 0
    silent.append(door.connect())
    assert door.strangers.due == door.now
    door.look()
    assert door.strangers.shut == SLACK + 1
    assert [is_open(sock) for sock in silent] == [i > SLACK for i in range(len(silent))]


def test_a_number_that_means_another_file_by_now_is_left_alone(stack: contextlib.ExitStack) -> None:
    door = Door(stack)
    sock = door.connect(100_000)

    def refresh() -> None:
        door.strangers.leave(sock.fileno())
        door.strangers.come(sock.fileno())

    door.strangers.look(refresh)
    assert is_open(sock)
    door.look()
    assert not is_open(sock)


def test_a_file_that_is_closed_is_no_error(stack: contextlib.ExitStack) -> None:
    door = Door(stack)
    for said in 0, 100_000:
        sock = door.connect(said)
        sock.close()
    door.look()
    assert door.strangers.shut == 0


def test_looks_take_a_bounded_share_of_the_time(stack: contextlib.ExitStack) -> None:
    door = Door(stack)
    assert door.strangers.due is None
    door.connect()
    assert door.strangers.due == TICK
    door.now = 5.0
    door.look()
    assert door.strangers.due == 5.0 + TICK
    door.connect(100_000)

    def slow() -> None:
        door.now += 1.0

    door.strangers.look(slow)
    assert door.strangers.due == 6.0 + SHARE * 1.0


def test_elsewhere_nobody_is_shut_down(stack: contextlib.ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringcast.net.strangers._able", lambda: False)
    door = Door(stack)
    sock = door.connect(100_000)
    door.look()
    assert is_open(sock)
    assert (len(door.strangers), door.strangers.due) == (0, None)
