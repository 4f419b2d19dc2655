"""Accept connections at the port of a rank, and admit the members' connections.

As many connections may wait as the job has members, plus `STRANGERS`. More may wait for one second, but never more than
`CROWD` beside the members: then the oldest are closed, first the ones that have not named a member. No connection waits
longer than `HANDSHAKE`, once the members are known. A stranger who has seen a member's certificate can name that
member; so of the connections that named the same member the newest `CLAIMS` stay, because a handshake takes memory. A
member whose connection was closed in this way tries again.

All of this happens in the thread that uses the transport, while it polls. The work for connections that end without
admission takes at most one part in `SHARE` of the thread's time; beyond that the door rests. Meanwhile connections wait
in the kernel, which takes `BACKLOG` of them.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import TypeAlias

from ringcast.net.fd_limits import CROWD, MOST_CONNECTIONS, STRANGERS
from ringcast.net.strangers import GRACE, SLACK
from ringcast.net.tls import TlsServer, TlsStream
from ringcast.transports.sockets.greeting import REFUSED, Place, Refused, Steps, answer
from ringcast.transports.sockets.tcp import accepted
from ringcast.transports.sockets.watcher import IN, Watcher

HANDSHAKE = 60.0  # seconds
PAUSE = 0.1  # seconds of rest after an accept that failed for lack of files or memory
_LAST = 1 << 12  # bytes that a stranger may have sent after the hello
CLAIMS = 2 * MOST_CONNECTIONS  # connections that may be in a handshake in the name of one member
SHARE = 4  # of the time, in which the work for strangers is one part
_AT_ONCE = 64  # connections that are accepted before something else is done

Enter: TypeAlias = Callable[[socket.socket, int, Place, TlsStream | None], None]
RankOf: TypeAlias = Callable[[bytes], int | None]


class Door:
    """The connections of one port that are not admitted yet; `enter` gets admitted ones, with rank and place."""

    def __init__(
        self,
        listener: socket.socket,
        watcher: Watcher,
        enter: Enter,
        *,
        members: int,
        tls: TlsServer | None,
        work: Callable[[], float] = time.thread_time,
    ) -> None:
        """Serve `listener`; `watcher` is the transport's, `work` returns the processor time of this thread."""
        self._listener, self._outer, self._enter, self._tls, self._work = listener, watcher, enter, tls, work
        self._watcher = Watcher()  # of the port and the waiting connections, so that all of them can rest at once
        self._most, self._crowd = members + STRANGERS, members + CROWD
        self.rank_of: RankOf | None = None  # None: the members are not known yet
        self.strangers = 0  # connections that are not admitted, whether they wait or have ended
        self._silent: dict[int, _Newcomer] = {}  # by their files, in the order in which they came, …
        self._named: dict[int, _Newcomer] = {}  # … and the same for connections that have named a member
        self._wasted = 0.0  # seconds of work for connections that have ended, since the last rest
        self._rests_until = 0.0
        self.due = inf  # the time at which `look` has something to do
        self._watcher.add(listener.fileno(), IN, self._accept)
        watcher.add(self._watcher.fileno(), IN, self._serve)

    def admit(self, rank_of: RankOf) -> None:
        """Admit a connection only if `rank_of` returns a rank for its claim. Called once."""
        self.rank_of = rank_of
        for newcomer in [*self._silent.values()]:
            newcomer.since = time.monotonic()
            newcomer.resume()
        self._plan()

    def look(self) -> None:
        """Close connections that have waited too long, and go on after a rest."""
        now = time.monotonic()
        if self._rests_until and now >= self._rests_until:
            self._rests_until = 0.0
            self._outer.change(self._watcher.fileno(), IN)
        too_many = len(self._silent) + len(self._named) - self._most
        for waiting in self._silent, self._named:
            for newcomer in [*waiting.values()]:
                age = now - newcomer.since
                if age < GRACE or (too_many <= 0 and (age < HANDSHAKE or self.rank_of is None)):
                    break  # the following ones came later
                newcomer.end()
                too_many -= 1
        self._plan()

    def close(self) -> None:
        """Close the port, and all waiting connections; idempotent."""
        self._outer.remove(self._watcher.fileno())
        self._watcher.remove(self._listener.fileno())
        self._listener.close()
        for waiting in self._silent, self._named:
            for newcomer in [*waiting.values()]:
                newcomer.end()
        self._watcher.close()

    def _plan(self) -> None:
        """Set the time of the next look."""
        oldest = [next(iter(waiting.values())).since for waiting in (self._silent, self._named) if waiting]
        crowded = len(self._silent) + len(self._named) > self._most
        wait = GRACE if crowded else HANDSHAKE if self.rank_of is not None else inf
        self.due = min([self._rests_until or inf, *(since + wait for since in oldest)])

    def _serve(self) -> None:
        """Serve the port and the waiting connections, and rest if time was spent on refused ones."""
        self._watcher.wait(-inf)
        if self._wasted:
            self._rest((SHARE - 1) * self._wasted)
            self._wasted = 0.0

    def _rest(self, seconds: float) -> None:
        self._rests_until = max(self._rests_until, time.monotonic() + seconds)
        self._outer.change(self._watcher.fileno(), 0)
        self._plan()

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            begun = self._work()
            try:
                sock, _ = self._listener.accept()
            except BlockingIOError:
                break
            except ConnectionError:  # the connection has ended already
                continue
            except OSError:  # no descriptors are left, or no memory
                self._make_room()
                break
            accepted(sock)
            self.strangers += 1
            newcomer = _Newcomer(self, sock, self._work() - begun)
            self._silent[newcomer.file] = newcomer
            self._watcher.add(newcomer.file, IN, newcomer.resume)
            newcomer.resume()  # its hello has mostly arrived already
        self._thin()
        self._plan()

    def _thin(self) -> None:
        """Close the oldest connections if more than the crowd's bound wait."""
        waiting = [*self._silent.values(), *self._named.values()]
        if len(waiting) > self._crowd:
            for newcomer in waiting[: len(waiting) - self._crowd + SLACK]:
                newcomer.end()

    def _make_room(self) -> None:
        """Close one waiting connection; without one rest a moment, or epoll would report the port again at once."""
        for waiting in self._silent, self._named:
            if waiting:
                next(iter(waiting.values())).end()
                return
        self._rest(PAUSE)


class _Newcomer:
    """An incoming connection that is not authenticated yet; `work` has been spent on it."""

    def __init__(self, door: Door, sock: socket.socket, work: float) -> None:
        self._door, self.sock, self.file, self.since = door, sock, sock.fileno(), time.monotonic()
        self._work, self._rank = work, -1
        self.stream: TlsStream | None = None
        self._steps: Steps[tuple[int, Place]] = answer(self, self, door._tls)
        self._events = IN

    @property
    def known(self) -> bool:
        return self._door.rank_of is not None

    def rank_of(self, claim: bytes) -> int | None:
        assert self._door.rank_of is not None
        rank = self._door.rank_of(claim)
        if rank is not None:
            self._rank, named = rank, self._door._named
            claims = [other for other in named.values() if other._rank == rank]
            if len(claims) >= CLAIMS:
                claims[0].end()
            named[self.file] = self._door._silent.pop(self.file)
        return rank

    def resume(self) -> None:
        """Go on as far as possible."""
        door, begun = self._door, self._door._work()
        try:
            events = next(self._steps)
        except StopIteration as done:
            self._forget()
            door.strangers -= 1
            rank, place = done.value
            door._enter(self.sock, rank, place, self.stream)
        except OSError as error:
            self._work += door._work() - begun
            self.end(REFUSED if isinstance(error, Refused) else b"")
        else:
            self._work += door._work() - begun
            if events != self._events:
                door._watcher.change(self.file, events)
                self._events = events

    def end(self, last: bytes = b"") -> None:
        """Close the connection, after the bytes `last`.

        Unread bytes are read first: else the kernel would reset the connection, and drop `last`.
        """
        begun = self._door._work()
        self._forget()
        with suppress(OSError), self.sock:
            if last:
                self.sock.send(last)
                self.sock.shutdown(socket.SHUT_WR)
                self.sock.recv(_LAST)
        self._door._wasted += self._work + self._door._work() - begun

    def _forget(self) -> None:
        self._door._silent.pop(self.file, None)
        self._door._named.pop(self.file, None)
        self._door._watcher.remove(self.file)
        self._steps.close()
