"""The rounds in which the readers of a file pass on to each other the bytes that each has read.

In a round they exchange their reports (`shares.py`), while an allgatherv passes on the bytes of the round before, and
the connections go on reading. A round takes as long as it takes to pass these bytes on, so that rounds are short while
the source is slow, and long, up to a fifth of a second, while the network is. A checksum of what each reader has passed
on follows in its next report.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import field
from typing import Any, Protocol
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from ringcast._util.dataclass import dataclass
from ringcast.errors import RingcastError
from ringcast.requests.request import Request
from ringcast.transfer import records
from ringcast.transfer.ranges import Range, Ranges
from ringcast.transfer.reading import MOST_RANGES, Problem, Reading
from ringcast.transfer.shares import Report, Shares

PATIENCE = 0.01  # seconds for which a reader without news lets the others wait
ROUND = 24 << 20  # bytes of a round at most; two of them are the memory beside the result
_SHORTEST_ROUND, _FIRST_ROUND = 1 << 20, 4 << 20
_ROUND_TIME = 0.2  # seconds, in which a pause or a lost reader is noticed
_DAMAGED = "its bytes have changed on the way between two hosts"

Bytes = NDArray[np.uint8]


class Readers(records.Ranks, Protocol):
    """The part of a communicator that rounds use."""

    def iallgatherv(self, value: Any, counts: Any = None, *, out: Any = None) -> Request[Any]: ...


@dataclass(slots=True)
class Work:
    """Bytes that were moved, and the seconds for which that was under way."""

    nbytes: int = 0
    seconds: float = 0.0

    def add(self, nbytes: int, seconds: float) -> None:
        """Count more of it."""
        self.nbytes += nbytes
        self.seconds += seconds


@dataclass(slots=True)
class Traffic:
    """The work of this host: bytes that it has read from the source, and bytes that other hosts have passed on to it.

    `watch` is called in each round with the number of bytes of the file that are here.
    """

    source: Work = field(default_factory=Work)
    network: Work = field(default_factory=Work)
    watch: Callable[[int], object] = lambda _: None


class Rounds:
    """The rounds of the readers, seen from one of them."""

    def __init__(
        self, readers: Readers, memory: memoryview, there: Ranges, shares: Shares, traffic: Traffic | None = None
    ) -> None:
        self._traffic = traffic or Traffic()
        self._readers, self._memory, self._there, self._shares = readers, memory, there, shares
        self._me, self._size = readers.rank, len(readers.members)
        self._data = np.frombuffer(memory, np.uint8) if len(memory) else np.empty(0, np.uint8)
        self._buffers = [np.empty(0, np.uint8), np.empty(0, np.uint8)]
        self._passing: _Passing | None = None
        self._sums = [0] * self._size  # checksums of the last round, as this reader has got its bytes
        self._room, self._speed = _FIRST_ROUND, _FIRST_ROUND / _ROUND_TIME
        self.problem: Problem | None = None

    @property
    def done(self) -> bool:
        """Whether all have every byte, and checked it."""
        return self._shares.done and self.problem is None

    def run(self, reading: Reading | None, resent: Sequence[Range]) -> None:
        """Take rounds until all have every byte, or none can go on."""
        if reading is not None and resent:
            reading.has(resent)
        try:
            while self._take_round(reading):
                pass
        finally:
            if self._passing is not None:
                with suppress(RingcastError):
                    self._passing.request.wait()

    def _take_round(self, reading: Reading | None) -> bool:
        """Exchange reports while bytes are passed on; then begin to pass on those of the reports.

        Returns:
            Whether there is a next round.
        """
        share = max(1, self._room // max(1, self._shares.active))
        patience = 0.0 if self._passing is not None or self._shares.done else PATIENCE
        report = Report(gone=True) if reading is None else reading.report(share, patience)
        stops = self.problem is not None or (reading is not None and _is_changed(reading.problem))
        news = self._exchange(report, stops)
        turn = self._shares.turn([each.report for each in news])
        if reading is not None:
            reading.take(turn, self._me)
            reading.passed_on(report.ready)
        self._check(news)
        idle = self._passing is None and not any(turn.sent)
        self._finish()
        if any(each.stops for each in news) or (idle and self._over):
            return False
        self._begin(turn.sent)
        return True

    @property
    def _over(self) -> bool:
        """Whether there is nothing left to read, or no reader for it."""
        return self._shares.done or self._shares.refused or not self._shares.active

    def _exchange(self, report: Report, stops: bool) -> list[_News]:
        row = _row(report, stops, self._sums[self._me], int(self._speed * _ROUND_TIME))
        news = [_news(each) for each in np.asarray(self._readers.allgather(row)).tolist()]
        self._room = max(_SHORTEST_ROUND, min(ROUND, *(each.room for each in news)))
        return news

    def _check(self, news: Sequence[_News]) -> None:
        for each, mine in zip(news, self._sums, strict=True):
            if each.checksum != mine and self.problem is None:
                self.problem = Problem(_DAMAGED, None, True)

    def _begin(self, sent: Sequence[Sequence[Range]]) -> None:
        """Begin to bring the bytes of all readers into the memory of each."""
        counts = [sum(stop - start for start, stop in each) for each in sent]
        if self._size == 1:
            self._arrived(sent)
            return
        if not any(counts):
            return
        self._buffers.reverse()  # not the one that has just been emptied
        if len(self._buffers[0]) < sum(counts):
            self._buffers[0] = np.empty(sum(counts), np.uint8)
        whole = self._buffers[0][: sum(counts)]
        parts = np.split(whole, np.cumsum(counts)[:-1])
        _gather(self._data, sent[self._me], parts[self._me])
        request = self._readers.iallgatherv(parts[self._me], counts, out=whole)
        self._passing = _Passing(request, parts, sent, time.monotonic())

    def _finish(self) -> None:
        """Wait for the bytes that are under way, and put them into their places."""
        passing, self._passing, self._sums = self._passing, None, [0] * self._size
        if passing is None:
            return
        passing.request.wait()
        for number, (part, ranges) in enumerate(zip(passing.parts, passing.sent, strict=True)):
            self._sums[number] = crc32(part.data)
            if number != self._me:
                _scatter(part, ranges, self._data)
        self._arrived(passing.sent)
        nbytes, seconds = sum(map(len, passing.parts)), time.monotonic() - passing.began
        self._traffic.network.add(nbytes - len(passing.parts[self._me]), seconds)
        speed = nbytes / max(seconds, 1e-6)
        self._speed = max(speed, 0.9 * self._speed)

    def _arrived(self, sent: Sequence[Sequence[Range]]) -> None:
        for ranges in sent:
            for each in ranges:
                self._there.add(each)
        self._traffic.watch(self._there.total)


@dataclass(frozen=True, slots=True)
class _Passing:
    """Bytes that are under way to all readers: the parts of each, and the ranges that they are."""

    request: Request[Any]
    parts: list[Bytes]
    sent: Sequence[Sequence[Range]]
    began: float


@dataclass(frozen=True, slots=True)
class _News:
    """A report as it has come, whether the read stops, the checksum of the last bytes, and the length of rounds."""

    report: Report
    stops: bool
    checksum: int
    room: int


_FIELDS = 9


def _row(report: Report, stops: bool, checksum: int, room: int) -> NDArray[np.int64]:
    """Return a report as numbers, as many as in all others."""
    row = np.zeros(_FIELDS + 2 * MOST_RANGES, np.int64)
    facts = report.stalled, report.pause, report.epoch, report.gone, stops, checksum, room, len(report.ready)
    row[: len(facts)] = facts
    places = np.array(report.ready, np.int64).reshape(-1)
    row[_FIELDS : _FIELDS + len(places)] = places
    return row


def _news(row: Sequence[int]) -> _News:
    stalled, pause, epoch, gone, stops, checksum, room, count = row[: _FIELDS - 1]
    places = row[_FIELDS:][: 2 * max(0, min(count, MOST_RANGES))]
    ready = tuple(zip(places[::2], places[1::2], strict=True))
    return _News(Report(ready, stalled, pause, epoch, bool(gone)), bool(stops), checksum, room)


def _gather(data: Bytes, ranges: Sequence[Range], into: Bytes) -> None:
    at = 0
    for start, stop in ranges:
        into[at : at + stop - start] = data[start:stop]
        at += stop - start


def _scatter(part: Bytes, ranges: Sequence[Range], data: Bytes) -> None:
    at = 0
    for start, stop in ranges:
        data[start:stop] = part[at : at + stop - start]
        at += stop - start


def _is_changed(problem: Problem | None) -> bool:
    return problem is not None and problem.changed
