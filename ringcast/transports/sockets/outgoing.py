"""Write messages to one rank, over one connection, or over several ones where the way is long.

All messages wait until the connections are made. The first one shows how long a round trip takes: that determines their
number (`stripes.py`). The loss of one of them is the loss of the link.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from math import inf

from ringcast.errors import LinkLost
from ringcast.net.tls import TlsClient
from ringcast.transports.base import Frame
from ringcast.transports.sockets.connection import Connection, cause_of
from ringcast.transports.sockets.framing import lengths
from ringcast.transports.sockets.greeting import Place
from ringcast.transports.sockets.stripes import HEAD, LONG, NUMBERS, STRIPE
from ringcast.transports.sockets.tcp import Address, hold_little, round_trip, round_trips
from ringcast.transports.sockets.watcher import Watcher

AT_ONCE = 0.5  # round trips for which a connection may have bytes to send, so that none is better
_INTERRUPTED = "an interrupt broke off a message in the middle"


class Outgoing:
    """The link to a rank, to which messages are written."""

    def __init__(
        self,
        peer: int,
        address: Address,
        claim: bytes,
        tls: TlsClient | None,
        key: str,
        watcher: Watcher,
        unsent: set[int],
        most: int,
    ) -> None:
        """Begin to connect to the address of a rank with this `key`, by at most so many connections.

        `unsent` has the rank while data waits for it.
        """
        self.peer, self.made, self.lost = peer, False, ""  # `lost`: why there is no link
        self._to, self._most = (address, claim, tls, key, watcher), most
        self._early: list[bytes] = []  # messages from before the link was made
        self._unsent = unsent
        self._count = 0  # of connections; 0: not known
        self._waiting: deque[Frame] = deque()  # parts of the stream that are in no stripe yet, none longer than STRIPE
        self._number = 0  # of the next stripe
        self.first = Connection(self, *self._to)
        self.connections = [self.first]
        self.first.begin()

    def send(self, frames: Sequence[Frame]) -> None:
        """Send a message.

        Raises:
            LinkLost: there is no link any more.
        """
        if self.lost:
            raise LinkLost(self.peer, self.lost)
        prefix, total = lengths(frames)
        if not self.made:
            self._early.append(b"".join((prefix, *frames)))
            self._unsent.add(self.peer)
            return
        try:
            self._write((prefix, *frames), total)
        except OSError as error:
            self.lose(cause_of(error))
            raise LinkLost(self.peer, self.lost) from None
        except BaseException:  # an interrupt: nothing may follow half a message
            self.lose(_INTERRUPTED)
            raise

    def close(self) -> None:
        """Close the connections; waiting data is lost. Idempotent."""
        self.lose("this rank has closed it")

    def place_of(self, connection: Connection) -> Place:
        """Return the place of a connection; the first one shows how long the way is."""
        if not self._count:
            self._count = self._most if round_trip(connection.sock) >= LONG else 1
        return Place(self.connections.index(connection), self._count)

    def go_on(self) -> None:
        """Begin the other connections, once their number is known."""
        while len(self.connections) < self._count and not self.lost:
            other = Connection(self, *self._to)
            self.connections.append(other)
            other.begin()

    def welcomed(self, connection: Connection) -> None:
        """Take note that the other rank has admitted a connection; with the last one the link is made."""
        self.go_on()
        if self._count > 1 and not self.lost:
            hold_little(connection.sock, self._count)
        if self.lost or not all(each.made for each in self.connections):
            return
        self.made = True
        try:
            for message in self._early:
                self._write((message,), len(message))
            self._early.clear()
            self._settle()
        except OSError as error:
            self.lose(cause_of(error))

    def emptied(self, connection: Connection) -> None:
        """Go on with what waits, now that a connection is free."""
        try:
            while self._waiting and not connection.queue:
                self._write_stripe(connection, self._next_parts())
            self._settle()
        except OSError:
            raise  # the connection says why it is lost
        except BaseException:
            self.lose(_INTERRUPTED)
            raise

    def lose(self, cause: str) -> None:
        """Close all connections, for this reason."""
        if not self.lost:
            self.lost, self.made = cause, False
            self._early.clear()
            self._waiting.clear()
            self._unsent.discard(self.peer)
            for connection in self.connections:
                connection.close()

    def _write(self, message: Sequence[Frame], total: int) -> None:
        if self._count > 1:
            for stripe in _stripes(message):
                self._stripe(stripe)
            if self._waiting:
                self._unsent.add(self.peer)
        elif self.first.write(message, total):
            self._unsent.discard(self.peer)
        else:
            self._unsent.add(self.peer)

    def _stripe(self, parts: Sequence[Frame]) -> None:
        """Write a stripe to the free connection that will send it first; without one it waits."""
        free = None if self._waiting else self._free()
        if free is None:
            self._waiting.append(b"".join(parts))
        else:
            self._write_stripe(free, parts)

    def _free(self) -> Connection | None:
        """Return the connection with the least to send, of those whose bytes the kernel has taken."""
        least, found = inf, None
        for connection in self.connections:
            if not connection.queue and (left := round_trips(connection.sock)) < least:
                if left < AT_ONCE:
                    return connection
                least, found = left, connection
        return found

    def _next_parts(self) -> list[Frame]:
        """Return the next of the waiting parts that fit one stripe."""
        parts, size = [], 0
        while self._waiting and size + len(self._waiting[0]) <= STRIPE:
            parts.append(self._waiting.popleft())
            size += len(parts[-1])
        return parts

    def _write_stripe(self, connection: Connection, parts: Sequence[Frame]) -> None:
        size = sum(map(len, parts))
        head = HEAD.pack(self._number, size)
        self._number = (self._number + 1) % NUMBERS
        if not connection.write((head, *parts), HEAD.size + size):
            self._unsent.add(self.peer)

    def _settle(self) -> None:
        """Take note if nothing waits any more."""
        if not self._waiting and not any(connection.queue for connection in self.connections):
            self._unsent.discard(self.peer)


def _stripes(message: Sequence[Frame]) -> Iterator[list[Frame]]:
    """Yield the bytes of a message in parts of STRIPE bytes, and less in the last."""
    parts: list[Frame] = []
    room = STRIPE
    for frame in message:
        view, at = memoryview(frame), 0
        while at < len(view):
            part = view[at : at + room]
            parts.append(part)
            at, room = at + len(part), room - len(part)
            if not room:
                yield parts
                parts, room = [], STRIPE
    if parts:
        yield parts
