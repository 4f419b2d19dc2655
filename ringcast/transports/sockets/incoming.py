"""Read the messages from one rank.

Small messages are read many at once, into memory of this connection. Only the beginning of a larger message is read
there: the rest stays in the kernel until all of it has come, and goes from there straight into the reader's memory. So
a reader never waits in the middle of a message for a sender that may have ended. The kernel does not wake us before all
has come (SO_RCVLOWAT); where it has no room for all, the message is put together in memory of this connection.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable, Sequence

from ringcast.errors import LinkLost
from ringcast.net.tls import RECORD
from ringcast.transports.base import Frame
from ringcast.transports.sockets.framing import ONE, START, sizes_of, start_of
from ringcast.transports.sockets.source import Source

_ROOM = 2 * RECORD  # bytes of the memory: room for the unread rest of a message and another record


class Incoming:
    """The connection, or the several connections, of one rank from which messages are read."""

    def __init__(
        self,
        socks: Sequence[socket.socket],
        rank: int,
        source: Source,
        ready: deque[Incoming],
        end: Callable[[Incoming], None],
    ) -> None:
        """Read from `socks` by `source`; it enters `ready` when it may have a message, and calls `end` when it ends."""
        self.socks, self.rank, self._source, self._ready, self._on_end = socks, rank, source, ready, end
        self.queued = False  # whether it is in `ready`
        self.in_parts = False  # whether the message returned last may have frames that are not read yet
        self.drained = False  # whether nothing can have come behind that message
        self._own = self._memory = bytearray(_ROOM)
        self._own_view = self._view = memoryview(self._memory)
        self._front = self._view[:RECORD]  # where most messages are read
        self._start = self._end = 0  # of the unread bytes in the memory
        self._awaited = 0  # bytes of a message whose rest is awaited in the kernel

    def fill(self) -> None:
        """Take the bytes that have come, without a wait."""
        try:
            if not self._awaited or not self._has_come():
                room = self._room() if self._end else self._front
                if room:
                    got = self._source.recv_into(room)
                    if not got:
                        raise ConnectionResetError("it was closed by the other side")
                    self._end += got
        except BlockingIOError:
            return
        except OSError:
            self.end()
            return
        if not self.queued:
            self.queued = True
            self._ready.append(self)

    def end(self) -> None:
        """End the connection, with all that has not come."""
        self._on_end(self)

    def _has_come(self) -> bool:
        """Return whether the kernel has the rest of the message that is awaited there; it is awaited no longer."""
        total, self._awaited = self._awaited, 0
        self._source.tell_of_all()
        if self._source.has(total - (self._end - self._start)):
            return True
        self._enlarge(total)  # the kernel has no room for more, or no more will come
        return False

    def next(self) -> Arrival | None:
        """Return the next message; None if not all of it has come.

        Raises:
            Malformed: the bytes are no message.
            OSError: the connection has ended.
        """
        if not self._end and self._source.readable:
            self._end = self._source.read_into(self._front)
        start, end = self._start, self._end
        if end - start >= START:
            count, size = ONE.unpack_from(self._memory, start)
            stop = start + START + size
            if count == 1 and stop <= end:  # all of a message of one frame, as most are
                arrival = Arrival(self, (size,), bytes(self._view[start + START : stop]))
                self.in_parts, self.drained = False, stop == end and not self._source.readable
                if stop < end:
                    self._start = stop
                elif self._memory is self._own:
                    self._start = self._end = 0
                else:
                    self._rest()
                return arrival
        self.in_parts, self.drained = True, False
        return self._next()

    def _next(self) -> Arrival | None:
        while (arrival := self._first()) is None and not self._awaited and self._source.readable:
            got = self._source.read_into(self._room())
            if not got:
                break
            self._end += got
        return arrival

    def _first(self) -> Arrival | None:
        """Return the message at the front of the memory; None if not all of it has come."""
        start, have = self._start, self._end - self._start
        if have < START:
            if not have:
                self._rest()
            return None
        prefix, sizes = start_of(self._memory, start)
        if sizes is None:
            if have < prefix:
                self._await_here(prefix)
                return None
            sizes = sizes_of(self._memory, start, prefix)
        total = prefix + sum(sizes)
        if have < total and not (self._may_stay(total) and self._source.has(total - have)):
            self._await(total)
            return None
        self._start += prefix
        return Arrival(self, sizes, bytes(self.take(sizes[0])))

    def take(self, size: int) -> Frame:
        """Return the next bytes of a message that has come.

        Raises:
            LinkLost: see `take_into`.
        """
        if self._end - self._start >= size:
            start = self._start
            self._start = end = start + size
            return bytes(self._view[start:end])
        data = bytearray(size)
        self.take_into(memoryview(data))
        return data

    def take_into(self, view: memoryview) -> None:
        """Fill `view` with the next bytes of a message that has come.

        Raises:
            LinkLost: the connection breaks off before its end.
        """
        size = len(view)
        done = min(self._end - self._start, size)
        view[:done] = self._view[self._start : self._start + done]
        self._start += done
        recv_into = self._source.recv_into
        while done < size:
            try:
                got = recv_into(view[done:] if done else view)
            except BlockingIOError:
                got = 0
            except OSError as error:
                raise LinkLost(self.rank, str(error)) from error
            if not got:  # the member violates the layout of records, and could keep us waiting
                raise LinkLost(self.rank, "it sends other bytes than it announced")
            done += got

    def skip(self, size: int) -> None:
        """Drop the next bytes of a message that has come.

        Raises:
            LinkLost: see `take_into`.
        """
        there = min(self._end - self._start, size)
        self._start += there
        size -= there
        scratch = memoryview(bytearray(min(size, RECORD)))
        while size:
            part = scratch[:size]
            self.take_into(part)
            size -= len(part)

    def _room(self) -> memoryview:
        """Return memory for the next read; of the own memory only so much that little of a large message is copied."""
        if self._memory is not self._own:  # there is room for one message, and for nothing behind it
            return self._view[self._end :]
        if self._start and len(self._memory) - self._end < RECORD:
            self._move_to(self._own, self._own_view)
        return self._view[self._end : self._end + RECORD]

    def _may_stay(self, total: int) -> bool:
        """Return whether the rest of a message that is too long for the memory can stay in the kernel."""
        return self._source.can_wait and total > _ROOM and self._memory is self._own

    def _await(self, total: int) -> None:
        """Go on when the kernel has the rest of the message whose beginning is in the memory."""
        if self._may_stay(total):
            self._awaited = total
            self._source.tell_of(total - (self._end - self._start))
        else:
            self._await_here(total)

    def _await_here(self, total: int) -> None:
        """Go on when the memory has `total` bytes."""
        if total > len(self._memory):
            self._enlarge(total)

    def _enlarge(self, total: int) -> None:
        """Make memory for a whole message."""
        memory = bytearray(total)
        self._move_to(memory, memoryview(memory))

    def _rest(self) -> None:
        """Begin again at the start of the own memory; call this when no byte is unread."""
        self._start = self._end = 0
        self._memory, self._view = self._own, self._own_view

    def _move_to(self, memory: bytearray, view: memoryview) -> None:
        size = self._end - self._start
        view[:size] = bytes(self._view[self._start : self._end])
        self._memory, self._view, self._start, self._end = memory, view, 0, size


class Arrival:
    """A message that has come; its frames are read one after the other."""

    __slots__ = ("_next", "_sizes", "connection", "header")
    loan = None

    def __init__(self, connection: Incoming, sizes: tuple[int, ...], header: bytes) -> None:
        self.connection, self._sizes, self.header, self._next = connection, sizes, header, 1

    @property
    def more(self) -> bool:
        return self._next < len(self._sizes)

    def read(self) -> Frame:
        frame = self.connection.take(self._sizes[self._next])
        self._next += 1
        return frame

    def read_into(self, view: memoryview) -> int:
        size, room = self._sizes[self._next], len(view)
        self.connection.take_into(view if size == room else view[:size])
        if size > room:
            self.connection.skip(size - room)
        self._next += 1
        return size

    def drop(self) -> None:
        """Drop the frames that were not read.

        Raises:
            LinkLost: the connection breaks off before their end, or did so at the read of one of them.
        """
        if self._next < len(self._sizes):
            self.connection.skip(sum(self._sizes[self._next :]))
            self._next = len(self._sizes)
