"""Move messages between processes by the kernel's TCP sockets: one port per rank, one epoll, no thread.

A connection carries messages in one direction, so each sender makes its own connection, and several where the way is
long (`stripes.py`). Data goes from the sender's
memory into the kernel, and from the kernel into the reader's memory. Connections are encrypted and authenticated by TLS
1.3, by a certificate that each rank makes for itself (`ringcast.net.tls`).

As there is no thread, data that the kernel does not take at once waits until this rank polls, sends again or closes;
`unsent` has the peers of such data. Connections are made and admitted while both ranks poll. Linux only, by epoll.
"""

from __future__ import annotations

import hashlib
import secrets
import socket
import threading
import time
from collections import deque
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from math import inf

from ringcast.errors import LinkLost
from ringcast.net.certificates import fingerprint, new_certificate
from ringcast.net.fd_limits import most_connections
from ringcast.net.tls import TlsClient, TlsServer, TlsStream
from ringcast.procs.portable import Bell
from ringcast.transports.base import LINGER, TURNS, CompiledLane, Frame, MemoryArrival, NoLoans
from ringcast.transports.sockets.door import Door
from ringcast.transports.sockets.greeting import Place
from ringcast.transports.sockets.incoming import Arrival, Incoming
from ringcast.transports.sockets.outgoing import Outgoing
from ringcast.transports.sockets.source import FED, PlainSource, Source, TlsSource
from ringcast.transports.sockets.stripes import Striped
from ringcast.transports.sockets.tcp import listen, resolve, with_route
from ringcast.transports.sockets.watcher import IN, Watcher
from ringcast.wire.endpoint_card import EndpointCard


def _unknown(claim: bytes, job: bytes) -> int | None:
    """Return a negative number, unique for each rank, if the claim shows that the rank knows the job; else None."""
    return -1 - int.from_bytes(claim[len(job) :], "little") if claim[: len(job)] == job else None


class SocketTransport(NoLoans):
    """One rank's connections; fulfils `Transport`. Bind first, then exchange addresses, then `meet` the others."""

    clock = staticmethod(time.monotonic)

    def __init__(self, bind: str | Sequence[str], *, size: int = 1, secure: bool = True) -> None:
        """Bind the port to `bind`: `tcp://host:*`, or the first of several whose port is free.

        `size` is the number of ranks of the job; without `secure` nothing is encrypted.

        Raises:
            OSError: the port cannot be bound; with EADDRINUSE all ports are taken.
        """
        self.public_key = ""  # the fingerprint by which the other ranks know this one; empty where nothing is encrypted
        self._most = most_connections(size)  # to one peer
        self._claim = b""  # the proof of membership in this rank's hello
        self._client: TlsClient | None = None
        server: TlsServer | None = None
        self._scratch = memoryview(bytearray(FED if secure else 0))  # of all sources
        if secure:
            own = new_certificate()
            self._claim, self.public_key = own.public, fingerprint(own.public)
            self._client, server = TlsClient(own), TlsServer(own)
        self._links: dict[int, Outgoing] = {}
        self.unsent: set[int] = set()
        self._called: set[int] = set()  # all peers of `connect`
        self._watched: set[int] = set()  # the peers of `connect` that `unreached` looks at
        self._cards: Sequence[EndpointCard] = ()
        self._incoming: set[Incoming] = set()
        self._striped: dict[int, Striped] = {}  # links of several connections, by rank, from their first connection on
        self._ready: deque[Incoming] = deque()  # connections in which there may be a message
        self._from: dict[int, Incoming] = {}  # the same by rank, where TLS says which rank it is
        self._heads: dict[int, Arrival] = {}  # messages that were looked at, and are to be taken first
        self._arrival: Arrival | None = None  # the last one, if it may have unread frames
        self._injected: deque[Sequence[bytes]] = deque()
        self._before = 0  # messages that were taken while the first of `_injected` waited
        self._closed = False
        # The lock of the bell, which several threads use; reentrant, as a signal may come while it is held.
        self._lock = threading.RLock()
        listener, self.address = listen([bind] if isinstance(bind, str) else bind)
        with ExitStack() as undo:
            undo.callback(listener.close)
            self._watcher = Watcher()
            undo.callback(self._watcher.close)
            self._bell = Bell()
            undo.callback(self._bell.close)
            self._watcher.add(self._bell.fileno(), IN, self._silence)
            self._door = Door(listener, self._watcher, self._enter, members=size, tls=server)
            undo.pop_all()

    @property
    def noticed(self) -> bool:
        return bool(self._injected)

    @property
    def strangers(self) -> int:
        """Number of connections to the port that were refused, or are not admitted yet."""
        return self._door.strangers

    @property
    def card(self) -> EndpointCard:
        """The card with which another rank connects to this one."""
        return EndpointCard(self.address, self.public_key)

    def meet(self, cards: Sequence[EndpointCard]) -> None:
        """Set the cards of all ranks, whose ports are bound already. Called once."""
        self._cards = cards
        if self._client is None:
            job = hashlib.sha256("\n".join(card.address for card in cards).encode()).digest()
            self._claim = job + secrets.token_bytes(8)  # marks connections of the same rank
            self._door.admit(lambda claim: _unknown(claim, job))
        else:
            ranks = {card.key: rank for rank, card in enumerate(cards)}
            self._door.admit(lambda claim: ranks.get(fingerprint(claim)))

    def connect(self, peers: Sequence[int]) -> None:
        for peer in peers:
            if peer not in self._links:
                self._open(peer)
                self._watched.add(peer)
                self._called.add(peer)

    def unreached(self) -> dict[int, str]:
        """Return the peers of `connect` without a connection so far, each with the reason if it was broken off."""
        self._wait(-inf)
        self._watched = {peer for peer in self._watched if not self._links[peer].made}
        return {peer: self._links[peer].lost for peer in self._watched}

    def unheard(self) -> Collection[int]:
        """Return the peers of `connect` that have not connected to this rank; without TLS all of them or none."""
        heard = {connection.rank for connection in self._incoming}
        if self._client is None:
            return self._called if len(heard) < len(self._called) else ()
        return self._called - heard

    def wait_for_news(self, deadline: float) -> None:
        """Wait until something arrives, or a connection of `unreached` is made or broken, or until the deadline."""
        if not (self._injected or self._ready or self._heads):
            self._wait(deadline)

    def stop_watching(self) -> None:
        """Stop watching the connections that are being made."""
        self._watched.clear()

    def links(self) -> dict[int, str]:
        """Return the addresses to which this rank has connected, or tries to, by rank; from any thread."""
        return {peer: self.address_of(peer) for peer in list(self._links) if peer not in self._watched}

    def address_of(self, peer: int) -> str:
        """Return the address of `peer`'s port."""
        return self._cards[peer].address

    def _open(self, peer: int) -> Outgoing:
        card = self._cards[peer]
        try:
            address = with_route(resolve(card.address))
        except OSError as error:
            raise LinkLost(peer, f"its address {card.address!r} cannot be used: {error}") from None
        to = address, self._claim, self._client, card.key
        link = self._links[peer] = Outgoing(peer, *to, self._watcher, self.unsent, self._most)
        return link

    def send(self, peer: int, frames: Sequence[Frame]) -> None:
        link = self._links.get(peer) or self._open(peer)
        try:
            link.send(frames)
        except LinkLost as error:
            ends = f"from {self.address} to {self.address_of(peer)}"
            raise LinkLost(peer, f"the connection {ends}: {error.cause}") from None

    def poll(self, deadline: float | None) -> Arrival | MemoryArrival | None:
        if self._arrival is not None:
            self._drop()
        if self._heads:
            return self._take_head()
        until = inf if deadline is None else deadline
        looked, empty, ready, unsent = False, False, self._ready, bool(self.unsent)
        while True:
            if self._injected and (empty or self._before >= TURNS):
                self._before = 0
                return MemoryArrival(self._injected.popleft())
            while ready:
                connection = ready[0]
                try:
                    arrival = connection.next()
                except (OSError, ValueError):  # ValueError: the connection was closed in the middle of a message
                    self._end(connection)
                    arrival = None
                if arrival is not None:
                    if connection.in_parts:
                        self._arrival = arrival
                    elif connection.drained:
                        ready.popleft().queued = False
                    if self._injected:
                        self._before += 1
                    return arrival
                ready.popleft().queued = False
            injected = bool(self._injected)  # before the look: a peer may have sent before that
            if looked and not injected and self.clock() >= until:
                return None
            self._wait(-inf if injected else until)
            looked, empty = True, injected and not ready
            if unsent and not (self.unsent or self._injected or ready):
                return None

    @property
    def lanes(self) -> SocketTransport | None:
        return None if self._client is None else self

    def attach(self, compiled: CompiledLane) -> bool:  # noqa: ARG002 (there is no shared memory)
        return False

    def put(self, peer: int, frame: Frame) -> bool:
        link = self._links.get(peer)
        if link is None or not link.made or peer in self.unsent:
            return False
        try:
            link.send((frame,))
        except LinkLost:  # `send` raises it again
            return False
        return True

    def head(self, peer: int, patience: float) -> memoryview | None:
        if self._arrival is not None:
            self._drop()
        until = 0.0
        while not self._injected:
            arrival = self._look_at(peer)
            if arrival is not None:
                return None if arrival.more or arrival.connection.in_parts else memoryview(arrival.header)
            until = until or self.clock() + patience
            self._wait(until)
            if self.clock() >= until and self._look_at(peer) is None:
                return None
        return None

    def release(self, peer: int) -> None:
        del self._heads[peer]

    def _look_at(self, peer: int) -> Arrival | None:
        """Return the next message of a peer, which stays the next one; None if none has come."""
        connection = self._from.get(peer)
        if peer not in self._heads and connection is not None and connection.queued:
            try:
                arrival = connection.next()
            except (OSError, ValueError):  # `poll` gets it again
                return None
            if arrival is not None:
                self._heads[peer] = arrival
            if arrival is None or connection.drained:  # it enters `ready` again when more has come
                self._ready.remove(connection)
                connection.queued = False
        return self._heads.get(peer)

    def _take_head(self) -> Arrival:
        """Return a message that was looked at, as `poll` does."""
        arrival = self._heads.pop(next(iter(self._heads)))
        if arrival.connection.in_parts:
            self._arrival = arrival
        return arrival

    def inject(self, frames: Sequence[bytes]) -> None:
        with self._lock:
            if not self._closed:  # else the bell is closed too
                self._injected.append(frames)
                self._bell.ring()

    def fileno(self) -> int:
        return self._watcher.fileno()

    def close(self, within: float | None = None) -> None:
        if self._closed:
            return
        with self._lock:
            self._closed = True
        try:
            self._door.close()
            for rank in {*self._striped, *(connection.rank for connection in self._incoming)}:
                self._end_all(rank)
            deadline = self.clock() + (LINGER if within is None else within)
            while self.unsent and self.clock() < deadline:
                self._watcher.wait(deadline)
        finally:
            for link in self._links.values():
                link.close()
            self._watcher.close()
            self._bell.close()

    def _wait(self, until: float) -> None:
        """Wait for an event at any file, at most until this time; one that has passed stands for a look."""
        if self._arrival is not None:
            self._drop()
        door = self._door
        self._watcher.wait(min(until, door.due))
        if door.due != inf and door.due <= self.clock():
            door.look()

    def _drop(self) -> None:
        """Drop the unread frames of the last arrival."""
        arrival, self._arrival = self._arrival, None
        assert arrival is not None
        try:
            arrival.drop()
        except OSError:
            self._end(arrival.connection)

    def _enter(self, sock: socket.socket, rank: int, place: Place, stream: TlsStream | None) -> None:
        source = PlainSource(sock) if stream is None else TlsSource(sock, stream, self._scratch)
        if place.of > 1:
            self._gather(sock, rank, place, source)
            return
        self._end_all(rank)  # a rank has one link; it makes another one only if the welcome did not reach it
        connection = self._begin([sock], rank, source)
        self._watcher.add(sock.fileno(), IN, connection.fill)

    def _gather(self, sock: socket.socket, rank: int, place: Place, source: Source) -> None:
        """Add one of several connections to the link of a rank; a rank that contradicts itself has no link any more."""
        striped = self._striped.get(rank)
        if striped is None:
            self._end_all(rank)
            striped = self._striped[rank] = Striped(place.of, self._watcher)
        elif striped.begun or striped.count != place.of:
            sock.close()
            self._end_all(rank)
            return
        whole = striped.complete
        striped.add(place.at, sock, source, lambda: self._end_all(rank))
        if striped.complete and not whole:
            striped.begin(self._begin(striped.socks, rank, striped))

    def _begin(self, socks: Sequence[socket.socket], rank: int, source: Source) -> Incoming:
        """Read messages of a rank."""
        connection = Incoming(socks, rank, source, self._ready, self._end)
        self._incoming.add(connection)
        self._from[rank] = connection
        return connection

    def _end_all(self, rank: int) -> None:
        """Close all connections of a rank."""
        for connection in [each for each in self._incoming if each.rank == rank]:
            self._end(connection)
        striped = self._striped.pop(rank, None)
        if striped is not None:
            self._close(striped.socks)

    def _end(self, connection: Incoming) -> None:
        """Close a connection; messages in its memory may still be taken."""
        if connection in self._incoming:
            self._incoming.remove(connection)
            self._striped.pop(connection.rank, None)
            if self._from.get(connection.rank) is connection:
                del self._from[connection.rank]
            self._close(connection.socks)

    def _close(self, socks: Sequence[socket.socket]) -> None:
        for sock in socks:
            self._watcher.remove(sock.fileno())
            sock.close()

    def _silence(self) -> None:
        self._bell.silence()
