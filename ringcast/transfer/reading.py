"""Read segments of a source on this host, by a thread for each connection, straight into the memory of the result."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import closing

from ringcast._util.dataclass import dataclass
from ringcast.transfer.ranges import Range, Ranges
from ringcast.transfer.shares import Report, Turn
from ringcast.transfer.sources import tries as limits
from ringcast.transfer.sources.base import Busy, Changed, Connection, Interrupted, Source, Trouble, Unreadable

MOST_RANGES = 24  # in a report
_AGAIN = 0.05  # seconds
_PAUSE = 1.0  # seconds, where the server does not say
_SEEN = 0.1  # seconds in which a server that counts connections sees that some have ended


@dataclass(slots=True, eq=False)
class _Segment:
    position: int
    stop: int


@dataclass(frozen=True, slots=True)
class Problem:
    """Why this host reads no more: the reason, the segment, and whether the source has changed."""

    reason: str
    segment: Range | None
    changed: bool


class Reading:
    """Threads that read what they are given; the main thread takes reports and passes on the turns."""

    def __init__(self, source: Source, memory: memoryview, connections: int, limit: limits.Limit) -> None:
        """Read by so many connections; a source that gives nothing for the time of a limit is given up."""
        self._source, self._memory, self._limit = source, memory, limit
        self.problem: Problem | None = None
        self._ready = Ranges()  # read, and not passed on yet
        self._waiting: deque[_Segment] = deque()
        self._under_way: list[_Segment] = []
        self._reads: set[Connection] = set()  # that read now
        self._most = self._requests = connections
        self._heard = time.monotonic()  # when the last byte came, or the first segment
        self._read_bytes, self._busy, self._since = 0, 0.0, 0.0  # seconds of reading until then, and since when
        self._resume = 0.0  # no request before this time
        self._epoch = self._refused = 0
        self._reason = ""  # of the last try that failed
        self._pause = 0.0  # seconds, which a server asks for and others have not heard yet
        self._closed = False
        self._lock = threading.Condition()
        self._wake = threading.Event()  # of threads that wait before their next try
        self._threads: list[threading.Thread] = []

    def report(self, room: int, patience: float) -> Report:
        """Return the news, at most `room` bytes of it; wait until there are some, `patience` seconds at most."""
        with self._lock:
            self._lock.wait_for(lambda: self._ready or self._pause or self.problem is not None, patience)
            self._look()
            ready: list[Range] = []
            length = 0
            for start, stop in self._ready:
                if length >= room or len(ready) == MOST_RANGES:
                    break
                ready.append((start, min(stop, start + room - length)))
                length += ready[-1][1] - start
            pause, self._pause = self._pause, 0.0
            stalled = time.monotonic() - max(self._heard, self._resume)
            gone = self.problem is not None
            busy = self._waiting or self._under_way
            return Report(
                tuple(ready), int(1000 * max(stalled, 0.0)) if busy else 0, int(1000 * pause), self._refused, gone
            )

    def _look(self) -> None:
        """Give up a source that has been silent for too long, also where it has asked for a pause."""
        waiting = [*self._under_way, *self._waiting]
        if waiting and self.problem is None and time.monotonic() - self._heard >= self._limit.seconds:
            self._fail(self._limit.passed(self._reason), waiting[0])

    def passed_on(self, ready: Sequence[Range]) -> None:
        """Forget bytes of a report, which others have by now."""
        with self._lock:
            for each in ready:
                self._ready.remove(each)

    def has(self, ready: Sequence[Range]) -> None:
        """Pass on bytes that are in the memory already."""
        with self._lock:
            for each in ready:
                self._ready.add(each)

    def take(self, turn: Turn, me: int) -> None:
        """Do what a turn says."""
        with self._lock:
            if turn.pause:
                self._resume = max(self._resume, time.monotonic() + turn.pause / 1000)
            self._epoch, self._requests = turn.epoch, turn.requests[me]
            for each in turn.taken[me]:
                self._drop(each)
            if turn.given[me]:
                if not (self._waiting or self._under_way):
                    self._heard = time.monotonic()
                self._waiting += [_Segment(*each) for each in turn.given[me]]
                self._start()
            self._lock.notify_all()

    @property
    def work(self) -> tuple[int, float]:
        """Bytes that have been read, and seconds in which at least one segment was under way."""
        return self._read_bytes, self._busy

    def close(self) -> None:
        """End all threads."""
        with self._lock:
            self._closed = True
            self._wake.set()
            self._lock.notify_all()
        for thread in self._threads:
            while thread.is_alive():
                self._interrupt()  # again: it may have begun another request after the first time
                thread.join(_AGAIN)

    def _interrupt(self) -> None:
        with self._lock:
            for connection in self._reads:  # the others can be used again by the next read
                connection.interrupt()

    def _drop(self, taken: Range) -> None:
        for segment in self._under_way:
            if taken[0] <= segment.position < taken[1]:
                segment.stop = segment.position
        self._waiting = deque(each for each in self._waiting if not taken[0] <= each.position < taken[1])

    def _start(self) -> None:
        while len(self._threads) < self._requests and not (self._closed or self.problem):
            thread = threading.Thread(target=self._run, args=(len(self._threads),), name="ringcast reader", daemon=True)
            self._threads.append(thread)
            thread.start()

    # In the threads.

    def _run(self, number: int) -> None:
        with closing(self._source.connect()) as connection:
            try:
                while (segment := self._next(number, connection)) is not None:
                    self._read(number, connection, segment)
                    with self._lock:
                        self._reads.discard(connection)
                        self._under_way.remove(segment)
                        if not self._under_way:
                            self._busy += time.monotonic() - self._since
                        if segment.position < segment.stop and not self.problem:
                            self._waiting.appendleft(segment)
            except Exception as error:  # whatever it is: the main thread waits
                self._fail(Unreadable(f"{type(error).__name__}: {error}"), None)
            finally:
                with self._lock:
                    self._reads.discard(connection)

    def _next(self, number: int, connection: Connection) -> _Segment | None:
        """Return the next segment when it may be read; None at the end."""
        with self._lock:
            while not (self._closed or self.problem):
                wait = self._resume - time.monotonic()
                if number >= self._requests:
                    connection.interrupt()  # so that it is closed, not kept: servers count connections, too
                    connection.close()
                elif self._waiting and wait <= 0:
                    segment = self._waiting.popleft()
                    if not self._under_way:
                        self._since = time.monotonic()
                    self._under_way.append(segment)
                    self._reads.add(connection)
                    return segment
                self._lock.wait(wait if self._waiting and wait > 0 else None)
            return None

    def _read(self, number: int, connection: Connection, segment: _Segment) -> None:
        """Read a segment, by several tries; leave the rest of it where a server wants a pause, or after a problem."""
        tries = 0
        while segment.position < segment.stop and number < self._requests and not (self._closed or self.problem):
            before, epoch = segment.position, self._epoch
            try:
                self._read_once(number, connection, segment)
            except Busy as error:
                self._reason = error.reason
                self._refuse(error, epoch, segment)
                return
            except Interrupted as error:
                self._reason = error.reason
                tries = 1 if segment.position > before else tries + 1
                if tries == limits.MOST:
                    self._fail(error, segment)
                    return
                self._wake.wait(limits.BACKOFF * 2 ** (tries - 1))
            except Trouble as error:
                self._fail(error, segment)
                return

    def _read_once(self, number: int, connection: Connection, segment: _Segment) -> None:
        start, stop = segment.position, segment.stop
        steps = connection.read(start, self._memory[start:stop])
        with closing(steps):  # type: ignore[type-var]  # a generator
            for length in steps:
                with self._lock:
                    self._heard = time.monotonic()
                    self._read_bytes += length
                    self._ready.add((start, start + length))
                    start += length
                    segment.position = max(segment.position, min(start, segment.stop))
                    self._lock.notify_all()
                    if start >= segment.stop or number >= self._requests:
                        break
        if start < stop and self._requests < self._most:
            self._wake.wait(_SEEN)  # the next request needs another connection

    def _refuse(self, error: Busy, epoch: int, segment: _Segment) -> None:
        seconds = max(_SEEN, _PAUSE if error.after is None else error.after)
        if seconds > limits.LONGEST_PAUSE:
            self._fail(Unreadable(f"{error.reason}, and to ask again after {seconds:,.0f} s"), segment)
            return
        with self._lock:
            self._pause, self._refused = seconds, epoch
            self._resume = max(self._resume, time.monotonic() + seconds)
            self._lock.notify_all()

    def _fail(self, error: Trouble, segment: _Segment | None) -> None:
        with self._lock:
            if self._closed:
                return
            changed = isinstance(error, Changed)
            if self.problem is None or (changed and not self.problem.changed):
                part = None if segment is None else (segment.position, segment.stop)
                self.problem = Problem(error.reason, part, changed)
            self._waiting.clear()
            self._wake.set()
            self._lock.notify_all()
            for connection in self._reads:
                connection.interrupt()
