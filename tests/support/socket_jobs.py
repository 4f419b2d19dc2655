"""Transports on sockets inside the test process."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

from ringcast.transports.base import Frame, MemoryArrival
from ringcast.transports.sockets.connection import Connection
from ringcast.transports.sockets.incoming import Arrival
from ringcast.transports.sockets.transport import SocketTransport
from support.patience import patience

PATIENCE = 30.0  # seconds in which everything here happens


def opened(size: int, *, secure: bool = True) -> list[SocketTransport]:
    """Return transports of one job, which have met."""
    made = [SocketTransport("tcp://127.0.0.1:*", size=size, secure=secure) for _ in range(size)]
    meet(made)
    return made


def meet(made: Sequence[SocketTransport]) -> None:
    """Tell every rank where the others are."""
    cards = [transport.card for transport in made]
    for transport in made:
        transport.meet(cards)


def join(made: Sequence[SocketTransport]) -> None:
    """Connect every rank with every other one."""
    everybody = range(len(made))
    for rank, transport in enumerate(made):
        transport.connect([peer for peer in everybody if peer != rank])
    until_reached(*made)


def until_reached(*made: SocketTransport) -> None:
    """Let ranks make the connections that they have begun."""
    deadline = made[0].clock() + patience(PATIENCE)
    while missing := [peers for transport in made if (peers := transport.unreached())]:
        assert made[0].clock() < deadline, missing
        assert not any(why for peers in missing for why in peers.values()), missing


def received(transport: SocketTransport, *others: SocketTransport) -> Arrival:
    """Return the next message of a rank, while the `others` work too."""
    deadline = transport.clock() + patience(PATIENCE)
    while (arrival := transport.poll(transport.clock() + 0.001 * bool(not others))) is None:
        assert transport.clock() < deadline
        for other in others:
            other.unreached()
    assert isinstance(arrival, Arrival)
    return arrival


def change_a_byte(connection: Connection, at: int, *, least: int) -> None:
    """Change a byte of every message of at least so many bytes that an encrypted connection sends from now on."""
    stream = connection.stream
    assert stream is not None
    encrypt = stream.encrypt

    def changed(pieces: Iterable[Frame]) -> list[bytes]:
        message = bytearray(b"".join(encrypt(pieces)))
        if len(message) >= least:
            message[at] ^= 1
        return [bytes(message)]

    stream.encrypt = changed


class Rank(SocketTransport):
    """A rank of a job whose ranks all do their part while one of them polls, as they do in a call of the program."""

    def join(self, others: Sequence[Rank]) -> None:
        self.others, self.lock = others, threading.RLock()

    def work(self) -> None:
        if self.lock.acquire(blocking=False):  # else another thread uses it
            try:
                if not self._closed:
                    self.unreached()
            finally:
                self.lock.release()

    def send(self, peer: int, frames: Sequence[Frame]) -> None:
        with self.lock:
            super().send(peer, frames)

    def poll(self, deadline: float | None) -> Arrival | MemoryArrival | None:
        while True:
            with self.lock:
                soon = self.clock() + 0.001
                arrival = super().poll(soon if deadline is None else min(soon, deadline))
            if arrival is not None or (deadline is not None and self.clock() >= deadline):
                return arrival
            for other in self.others:
                other.work()

    def close(self, within: float | None = None) -> None:
        with self.lock:
            super().close(within)


def ranks(size: int, *, secure: bool) -> list[Rank]:
    """Return such ranks."""
    made = [Rank("tcp://127.0.0.1:*", size=size, secure=secure) for _ in range(size)]
    meet(made)
    for each in made:
        each.join([other for other in made if other is not each])
    join(made)
    return made
