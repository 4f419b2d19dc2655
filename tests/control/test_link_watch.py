"""The watch over a rank's links, on real sockets; time is what the test says that it is."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest

from ringcast.control import tcp_state
from ringcast.control.dead_link import HOPELESS, STALL
from ringcast.control.link_watch import CLOSED, PAUSE, LinkWatch
from ringcast.control.tcp_state import TcpState
from support import needs


@pytest.fixture(autouse=True)
def told_by_the_system() -> None:
    needs.connections()


class Clock:
    """Stands in for the kernel: a connection to `address` without any acknowledgement since time 0."""

    def __init__(self) -> None:
        self.now, self.flying, self.rtt = 0.0, 1, 0.0
        self.heard, self.answers, self.every = 0.0, 1, 2.0

    def state(self, file: int, peer: object) -> TcpState:
        resent = int(self.now / self.every)
        return TcpState(100, self.flying, self.now - self.heard, self.answers, self.rtt, resent)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(tcp_state, "state", made.state)
    monkeypatch.setattr(tcp_state, "idle", lambda file: False)
    monkeypatch.setattr(tcp_state, "find", lambda wanted, but: {key: [0] for key in wanted.values()})
    return made


@contextmanager
def listening(backlog: int = 100) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0), backlog=backlog) as listener:
        yield f"tcp://127.0.0.1:{listener.getsockname()[1]}"


@contextmanager
def deaf() -> Iterator[str]:
    """Yield an address that answers nothing: its queue of connections, which come to another address, is full."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("0.0.0.0", 0), backlog=0))
        address = ("127.0.0.1", listener.getsockname()[1])
        for _ in range(3):
            sock = stack.enter_context(socket.socket())
            sock.setblocking(False)
            sock.connect_ex(address)
        yield f"tcp://127.0.0.2:{address[1]}"


def looks(watch: LinkWatch, clock: Clock | None, until: float, start: float = 0.0) -> dict[int, tuple[float, str]]:
    """Look once per second; return when and why links were dead."""
    found: dict[int, tuple[float, str]] = {}
    now = start
    while now <= until:
        if clock is not None:
            clock.now = now
        for peer, why in watch.look(now):
            assert peer not in found
            found[peer] = now, why
        now += 1.0
    return found


def test_a_link_that_was_cut_is_dead_after_eight_seconds(clock: Clock) -> None:
    with deaf() as address:
        watch = LinkWatch(lambda: {3: address})
        when, why = looks(watch, clock, 100)[3]
        watch.close()
    assert when == STALL
    assert "none of 10 new connections was made (no answer)" in why


def test_a_connection_that_was_forgotten_is_dead_after_eight_seconds(clock: Clock) -> None:
    with listening() as address:
        when, why = looks(LinkWatch(lambda: {3: address}), clock, 100)[3]
    assert when == STALL
    assert "new connections are made" in why


def test_a_peer_that_acknowledges_anything_is_alive_however_slowly(clock: Clock) -> None:
    with deaf() as address:
        watch = LinkWatch(lambda: {3: address})
        for start in range(0, 700, 7):
            clock.heard, clock.answers = float(start), start
            assert not looks(watch, clock, start + 6, float(start))
        watch.close()


def test_what_the_peer_sends_again_is_no_answer(clock: Clock) -> None:
    with listening() as address:
        watch = LinkWatch(lambda: {3: address})
        assert not looks(watch, clock, STALL - 2)
        clock.heard = STALL - 2  # with the same number of answers
        assert looks(watch, clock, 100, STALL - 1)[3][0] == STALL


def test_a_connection_that_waits_for_its_retransmission_while_the_network_is_well_again_is_not_dead(
    clock: Clock,
) -> None:
    clock.every = 12.0
    with listening() as address:
        assert looks(LinkWatch(lambda: {3: address}), clock, 100)[3][0] == 13.0


def test_a_window_that_is_closed_is_no_dead_link_while_the_host_answers(clock: Clock) -> None:
    clock.flying = 0
    with listening() as address:
        watch = LinkWatch(lambda: {3: address})
        assert not looks(watch, clock, 60)
        watch.close()
    with deaf() as address:
        watch = LinkWatch(lambda: {3: address})
        assert looks(watch, clock, 60)[3][0] == STALL
        watch.close()


def test_a_queue_of_seconds_is_waited_for(clock: Clock) -> None:
    clock.rtt = 5.0
    with deaf() as address:
        watch = LinkWatch(lambda: {3: address})
        assert looks(watch, clock, 100)[3][0] == STALL + 10
        watch.close()


def test_time_in_which_this_process_was_stopped_does_not_count(clock: Clock) -> None:
    with deaf() as address:
        watch = LinkWatch(lambda: {3: address})
        for start in range(0, 1000, 40):  # seven seconds of each forty
            assert not looks(watch, clock, start + STALL - 1, float(start))
        again = 1000 + PAUSE
        assert looks(watch, clock, again + 60, again)[3][0] == again + STALL
        watch.close()


def test_a_connection_that_never_comes_up_is_told() -> None:
    with deaf() as address:
        watch = LinkWatch(lambda: {1: address})
        when, why = looks(watch, None, 100)[1]
        watch.close()
    assert when == STALL
    assert why.startswith("no connection came up for 8 s")


def test_trials_that_are_made_are_not_taken_for_the_connection() -> None:
    with listening() as address:
        when, why = looks(LinkWatch(lambda: {1: address}), None, 100)[1]
    assert when == STALL
    assert why.startswith("no connection came up for 8 s, though new connections are made")


def test_a_connection_that_was_refused_is_told() -> None:
    with listening() as address:
        pass
    when, why = looks(LinkWatch(lambda: {1: address}), None, 100)[1]
    assert when == STALL
    assert "Connection refused" in why


def test_links_are_watched_from_when_they_are_made_and_no_longer_than_their_peer_is_there() -> None:
    links: dict[int, str] = {}
    with deaf() as address:
        watch = LinkWatch(lambda: links)
        assert not looks(watch, None, 20)
        links |= {1: address, 2: address}
        assert not looks(watch, None, 24, 21.0)
        watch.forget(2)
        assert set(looks(watch, None, 60, 25.0)) == {1}
        watch.close()


def test_a_connection_that_is_closed_is_told_a_little_later() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        with socket.create_connection(address):
            watch = LinkWatch(lambda: {1: f"tcp://127.0.0.1:{address[1]}"})
            assert not watch.look(0.0)
    found = looks(watch, None, 100, 1.0)
    assert found == {1: (1.0 + CLOSED, "the connection was closed by the network")}


def test_connections_at_rest_are_no_failure_and_nothing_stays_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        with socket.create_connection(address):
            before = os.listdir("/proc/self/fd")
            watch = LinkWatch(lambda: {1: f"tcp://127.0.0.1:{address[1]}", 2: "tcp://name.example:5", 3: "ipc:///a"})
            assert not looks(watch, None, 2 * HOPELESS)
            assert os.listdir("/proc/self/fd") == before


@contextmanager
def few_files(left: int) -> Iterator[None]:
    """Let this process open so many files more, and no others."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 10, hard))
    files = []
    with suppress(OSError):
        while True:
            files.append(os.dup(0))
    try:
        for _ in range(left):
            os.close(files.pop())
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for file in files:
            os.close(file)


@pytest.mark.parametrize("left", [0, 1, 2, 3])
def test_without_a_file_left_nothing_is_judged_and_nothing_raised(left: int) -> None:
    with deaf() as address, socket.create_server(("127.0.0.1", 0)) as listener:
        sock = socket.create_connection(listener.getsockname())
        watch = LinkWatch(lambda: {1: address, 2: f"tcp://127.0.0.1:{listener.getsockname()[1]}"})
        with sock:
            sock.setblocking(False)
            assert not watch.look(0.0)
            with suppress(BlockingIOError):
                while True:
                    sock.send(bytes(1 << 20))
            with few_files(left):
                found = looks(watch, None, 3 * STALL, 1.0)
                watch.close()
    assert 2 not in found
    assert left or not found
