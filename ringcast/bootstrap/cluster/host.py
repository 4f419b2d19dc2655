"""The ranks of one host as the caller of a cluster sees them: it sends calls, and takes outcomes and output.

`HereRanks` has the ranks of this host: a Unix socket to each, and a pipe for each of its output streams. Elsewhere a
relay has them, and its caller a `relay.ThereRanks`, which is used in the same way.
"""

from __future__ import annotations

import os
import select
import socket
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple, Protocol

from ringcast.bootstrap.cluster.channel import CALL, INTERRUPT, OUTCOME, Channel

SOCKET, SETTINGS = "ranks", "settings"  # names in the folder that the ranks of a host know
RANK = struct.Struct("<I")
NUMBER = struct.Struct("<Q")
CHUNK = 1 << 16
MOST = 1 << 20  # bytes: no pipe holds more, unless a privileged process asks for it
START = 120.0  # seconds that a rank may take for its first words


class Kind(IntEnum):
    """Kind of an event."""

    JOINED = 0
    OUTCOME = 1
    STDOUT = 2
    STDERR = 3
    DIED = 4
    READY = 5  # the ranks may be started; no rank says this


class Event(NamedTuple):
    """One event of a rank; `data` is its pickled outcome, some of its output, or empty."""

    kind: Kind
    rank: int
    data: bytes = b""


class HostRanks(Protocol):
    """The ranks of one host. No method blocks."""

    def register(self, poller: select.poll) -> list[int]:
        """Send as much as the system takes; return the descriptors whose events in the poller concern these ranks."""

    def call(self, body: bytes, memory: int | None) -> None:
        """Have each rank make a call, whose large buffers lie in `memory`."""

    def interrupt(self, rank: int, run: int) -> None:
        """Have a rank end the call of this number."""

    def take(self, file: int) -> Iterable[Event]:
        """Return the events that have come at one of the descriptors; none if others have brought its end already."""

    def drain(self) -> Iterable[Event]:
        """Return all output that was printed by now."""

    def leave(self) -> None:
        """Let the ranks leave; idempotent."""

    def close(self) -> None:
        """Give everything back; idempotent."""


class HereRanks:
    """The ranks of this host, whose sockets are in `folder`; fulfils `HostRanks`."""

    def __init__(self, folder: Path, size: int) -> None:
        self._channels: dict[int, Channel] = {}
        self._outputs: dict[int, Event] = {}  # by descriptor: rank and stream
        self._lost: set[int] = set()  # ranks that have ended
        self._door = socket.socket(socket.AF_UNIX)
        try:
            self._door.bind(str(folder / SOCKET))
            self._door.listen(size)
        except BaseException:
            self._door.close()
            raise

    def register(self, poller: select.poll) -> list[int]:
        self._flush()
        for channel in self._alive:
            poller.register(channel.connection, select.POLLIN | (select.POLLOUT if channel.unsent else 0))
        for file in (self._door.fileno(), *self._outputs):
            poller.register(file, select.POLLIN)
        return [self._door.fileno(), *self._outputs, *(channel.connection.fileno() for channel in self._alive)]

    @property
    def _alive(self) -> list[Channel]:
        return [channel for rank, channel in self._channels.items() if rank not in self._lost]

    def _flush(self) -> None:
        for channel in self._alive:
            with suppress(ConnectionError):  # its end is seen by reading
                channel.flush()

    def call(self, body: bytes, memory: int | None) -> None:
        for channel in self._channels.values():
            channel.put(CALL, body, memory)
        self._flush()  # so that the descriptor of the memory is sent: each socket is empty

    def interrupt(self, rank: int, run: int) -> None:
        self._channels[rank].put(INTERRUPT, NUMBER.pack(run))

    def take(self, file: int) -> Iterator[Event]:
        if file == self._door.fileno():
            yield self._admit()
        elif file in self._outputs:
            yield from self._printed(file)
        else:
            rank = next((rank for rank, one in self._channels.items() if one.connection.fileno() == file), None)
            if rank is not None:  # else it is an output that was drained to its end since it was polled
                yield from self._said(rank)

    def _admit(self) -> Event:
        connection, _ = self._door.accept()
        connection.settimeout(START)
        data, ends, *_ = socket.recv_fds(connection, RANK.size, 2)
        (rank,) = RANK.unpack(data)
        self._channels[rank] = Channel(connection)
        for kind, end in zip((Kind.STDOUT, Kind.STDERR), ends, strict=True):
            os.set_blocking(end, False)
            self._outputs[end] = Event(kind, rank)
        return Event(Kind.JOINED, rank)

    def _said(self, rank: int) -> Iterator[Event]:
        try:
            come = self._channels[rank].take()
        except ConnectionError:
            self._lost.add(rank)
            yield from self.drain()
            yield Event(Kind.DIED, rank)
            return
        for kind, body in come:
            if kind == OUTCOME:
                yield from self.drain()  # output from before
                yield Event(Kind.OUTCOME, rank, body)

    def _printed(self, file: int) -> Iterator[Event]:
        try:
            data = os.read(file, CHUNK)
        except BlockingIOError:
            return
        if data:
            yield self._outputs[file]._replace(data=data)
        else:
            del self._outputs[file]
            os.close(file)

    def drain(self) -> Iterator[Event]:
        for file in [*self._outputs]:
            taken = 0
            while taken < MOST and (event := next(self._printed(file), None)) is not None:
                taken += len(event.data)
                yield event

    def leave(self) -> None:
        for channel in self._channels.values():
            with suppress(OSError):
                channel.connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._door.close()
        for channel in self._channels.values():
            channel.connection.close()
        for file in self._outputs:
            os.close(file)
        self._channels, self._outputs = {}, {}
