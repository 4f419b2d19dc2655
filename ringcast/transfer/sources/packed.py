"""Files of one store as a single source: their contents follow each other, as in the stream of a manifest.

A window of it is read at a time. Connections to the files stay open from one window to the next.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate

from ringcast.transfer.ranges import Range
from ringcast.transfer.sources.base import Changed, Connection, Interrupted, Source, Trouble

PACED = 4 << 20  # bytes that are asked for at once, after a wait for their time


class Packed:
    """Files, each with the size that it had when they were listed, and the function that opens it by its number."""

    def __init__(
        self,
        sizes: Sequence[int],
        names: Sequence[str],
        opened: Callable[[int], Source],
        rate: float | None = None,
    ) -> None:
        """Take files; all connections together read at most `rate` bytes in a second."""
        self._rate, self._due = rate, 0.0
        self._starts = [*accumulate(sizes, initial=0)]
        self._names, self._open = names, opened
        self._sources: dict[int, Source] = {}
        self._free: dict[int, list[Connection]] = {}  # connections that no thread uses
        self._lock = threading.Lock()
        self._opening = [threading.Lock() for _ in names]

    def parts(self, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """Yield the files in which bytes [start, stop) are, each with the first byte there and their number."""
        number = bisect_right(self._starts, start) - 1
        while start < stop:
            if (length := min(stop, self._starts[number + 1]) - start) > 0:
                yield number, start - self._starts[number], length
                start += length
            number += 1

    def begun(self, there: Iterable[Range]) -> list[int]:
        """Return the files of which some of the bytes are there, and others are not: ranges end inside of them."""
        ends = {end for each in there for end in each if end < self._starts[-1]}
        return sorted({number for end in ends for number, first, _ in self.parts(end, end + 1) if first})

    def source(self, number: int) -> Source:
        """Return a file, which is opened at its first use.

        Raises:
            Trouble: it cannot be opened, or has another size than in the list.
        """
        with self._opening[number]:
            found = self._sources.get(number)
            if found is None:
                found = self._open(number)
                size = self._starts[number + 1] - self._starts[number]
                if found.size != size:
                    found.close()
                    raise Changed(f"it has {found.size:,} bytes, and had {size:,} in the list")
                with self._lock:
                    self._sources[number] = found
        return found

    def take(self, number: int) -> Connection:
        """Return a connection to a file, for one thread."""
        with self._lock:
            free = self._free.get(number)
            if free:
                return free.pop()
        return self.source(number).connect()

    def give_back(self, number: int, connection: Connection) -> None:
        """Keep a connection for another thread."""
        with self._lock:
            self._free.setdefault(number, []).append(connection)

    def pace(self, length: int, given_up: threading.Event) -> None:
        """Wait until so many bytes may be read, or the read is given up."""
        if self._rate is None:
            return
        with self._lock:
            now = time.monotonic()
            wait = max(0.0, self._due - now)
            self._due = max(self._due, now) + length / self._rate
        given_up.wait(wait)

    def done(self, before: int) -> None:
        """Check and close files that end before this byte of the stream.

        Raises:
            Changed: one of them has changed meanwhile.
        """
        for number in [number for number in self._sources if self._starts[number + 1] <= before]:
            try:
                self._sources[number].check()
            except Changed as trouble:
                raise self.named(number, trouble) from None
            except Trouble:  # all is there, and every part has been checked
                pass
            self._close(number)

    def close(self) -> None:
        """Close all files and connections."""
        for number in [*self._sources]:
            self._close(number)

    def _close(self, number: int) -> None:
        for connection in self._free.pop(number, []):
            connection.close()
        self._sources.pop(number).close()

    def named(self, number: int, trouble: Trouble) -> Trouble:
        """Return an error with the name of the file."""
        trouble.reason = f"{self._names[number]}: {trouble.reason}"
        return trouble


class Window:
    """Bytes [start, stop) of packed files, as a source."""

    def __init__(self, packed: Packed, start: int, stop: int, version: str) -> None:
        self._packed, self._start = packed, start
        self.size, self.version = stop - start, version

    def connect(self) -> _Across:
        """Return a connection that reads across the ends of files."""
        return _Across(self._packed, self._start)

    def check(self) -> None:
        """Do nothing: a file is checked when all of it has come (`Packed.done`)."""

    def close(self) -> None:
        """Leave the files open for the next window."""


class _Across:
    """A connection to the file that is being read, and to the next one after it."""

    def __init__(self, packed: Packed, start: int) -> None:
        self._packed, self._start = packed, start
        self._used: tuple[int, Connection] | None = None
        self._interrupted = threading.Event()

    def read(self, start: int, into: memoryview) -> Iterator[int]:
        at, begin = 0, self._start + start
        for number, first, length in self._packed.parts(begin, begin + len(into)):
            try:
                for done in range(0, length, PACED):
                    piece = min(PACED, length - done)
                    self._packed.pace(piece, self._interrupted)
                    if self._interrupted.is_set():
                        raise Interrupted("it was interrupted")
                    yield from self._to(number).read(first + done, into[at + done : at + done + piece])
            except Trouble as trouble:
                raise self._packed.named(number, trouble) from None
            at += length

    def _to(self, number: int) -> Connection:
        if self._used is None or self._used[0] != number:
            self._leave()
            self._used = number, self._packed.take(number)
        return self._used[1]

    def interrupt(self) -> None:
        """Interrupt the read of the file that is being read, or the wait before it."""
        self._interrupted.set()
        if (used := self._used) is not None:
            used[1].interrupt()

    def close(self) -> None:
        self._leave()
        self._interrupted.clear()

    def _leave(self) -> None:
        """Keep the connection for another thread, or close it after it was interrupted."""
        used, self._used = self._used, None
        if used is not None and self._interrupted.is_set():
            used[1].close()
        elif used is not None:
            self._packed.give_back(*used)
