"""The ranks of a host of a cluster: the order in which events are taken changes none; a relay ends with its ranks."""

from __future__ import annotations

import itertools
import os
import select
import socket
import sys
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from ringcast.bootstrap.cluster import relay
from ringcast.bootstrap.cluster.channel import HEAD, OUTCOME
from ringcast.bootstrap.cluster.host import RANK, SOCKET, Event, HereRanks, HostRanks, Kind
from support.cases import each
from support.patience import patience

PATIENCE = 60.0  # seconds within which what must happen does, on a loaded machine too

pytestmark = pytest.mark.usefixtures("nothing_left")


class Rank:
    """The end of a rank: its connection, and its output streams."""

    def __init__(self, folder: Path, rank: int) -> None:
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(str(folder / SOCKET))
        pipes = [os.pipe() for _ in range(2)]
        socket.send_fds(self._connection, [RANK.pack(rank)], [reading for reading, _ in pipes])
        for reading, _ in pipes:
            os.close(reading)
        self._streams = [writing for _, writing in pipes]

    def prints(self, text: bytes) -> None:
        os.write(self._streams[0], text)

    def returns(self, body: bytes) -> None:
        self._connection.sendall(HEAD.pack(OUTCOME, len(body)) + body)

    def wait(self) -> None:
        """Wait until the cluster lets this rank leave."""
        assert self._connection.recv(1) == b""

    def close(self) -> None:
        """End as a process that is killed."""
        for stream in self._streams:
            os.close(stream)
        self._streams = []
        self._connection.close()


def polled(ranks: HostRanks, seconds: float = 0.0) -> list[int]:
    """Return the descriptors that have something, by one look."""
    poller = select.poll()
    ranks.register(poller)
    return [file for file, _ in poller.poll(1000 * seconds)]


def taken(ranks: HostRanks, files: Sequence[int]) -> list[Event]:
    return [event for file in files for event in ranks.take(file)]


def came(ranks: HostRanks) -> list[Event]:
    """Return the next events."""
    while not (events := taken(ranks, polled(ranks, patience(PATIENCE)))):
        pass
    return events


@each("order", itertools.permutations(range(4)))
def test_the_end_of_a_rank_is_seen_whatever_is_taken_before(short_path: Path, order: Sequence[int]) -> None:
    """Its connection and its output streams end together, while another rank returns."""
    with ExitStack() as stack:
        ranks = HereRanks(short_path, 2)
        stack.callback((short_path / SOCKET).unlink)
        stack.enter_context(closing(ranks))
        returns, dies = (stack.enter_context(closing(Rank(short_path, rank))) for rank in range(2))
        while (door := polled(ranks)) != []:
            assert {event.kind for event in taken(ranks, door)} == {Kind.JOINED}
        returns.returns(b"outcome")
        dies.prints(b"last words")
        dies.close()

        files = polled(ranks)
        assert len(files) == len(order)
        events = taken(ranks, [files[i] for i in order])

        assert [event for event in events if event.rank == 0] == [Event(Kind.OUTCOME, 0, b"outcome")]
        died = [Event(Kind.STDOUT, 1, b"last words"), Event(Kind.DIED, 1)]
        assert [event for event in events if event.rank == 1] == died
        assert polled(ranks) == []


def test_a_relay_ends_when_the_ranks_that_live_have_left(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not wait for one that has ended before: else its caller would end it, and its folder would stay."""
    monkeypatch.setattr(relay, "END", patience(PATIENCE))
    program = f"""
from ringcast.bootstrap.cluster import relay
from ringcast.monitoring import jobs
jobs.bases, relay.END = lambda: [{str(short_path)!r}], 3600.0
relay.main("cluster-0", 2)
"""
    monkeypatch.setattr(relay, "ssh_argv", lambda host, command: [sys.executable, "-c", program])
    with ExitStack() as stack:
        there = stack.enter_context(closing(relay.ThereRanks("there", "cluster", [0, 1], b"")))
        assert came(there) == [Event(Kind.READY, 0)]
        leaves, dies = (stack.enter_context(closing(Rank(short_path / "cluster-0", rank))) for rank in range(2))
        joined: set[int] = set()
        while len(joined) < 2:
            joined |= {event.rank for event in came(there) if event.kind == Kind.JOINED}
        dies.close()
        assert came(there) == [Event(Kind.DIED, 1)]
        there.leave()
        leaves.wait()
        leaves.close()
        there.close()
    assert list(short_path.iterdir()) == []
