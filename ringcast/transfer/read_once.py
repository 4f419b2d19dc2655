"""Read a file for a job: each host reads a part of it, and every host gets the whole.

One rank of each host reads, the reader: by several connections, straight into the memory of the result. The readers
meet in rounds. In each they exchange their reports (`shares.py`), and then, by one allgatherv, the bytes that have come
since the last round, while the connections go on reading. A round takes as long as it takes to pass these bytes on, so
that rounds are short while the source is slow, and long, up to a quarter of a second, while the network is.

A checksum of what each reader has passed on follows in its next report. When a rank is lost, the others shrink the
communicator, exchange which bytes each host has, and go on.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from typing import Any, Protocol, Self
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from ringcast._util.dataclass import dataclass
from ringcast.errors import (
    ArgumentError,
    PeerFailed,
    Revoked,
    RingcastError,
    SharedMemoryError,
    SourceChanged,
    SourceError,
    TransferError,
)
from ringcast.ops import Array
from ringcast.procs.colocation import host
from ringcast.transfer import records
from ringcast.transfer.ranges import Range, Ranges
from ringcast.transfer.reading import MOST_RANGES, Problem, Reading
from ringcast.transfer.records import announced, brief, exchanged
from ringcast.transfer.shares import Report, Shares
from ringcast.transfer.sources.base import Busy, Interrupted, Missing, Source, Trouble
from ringcast.transfer.sources.opening import name_for_people, open_source
from ringcast.wire.codec import Count, Rank

PATIENCE = 0.01  # seconds for which a reader without news lets the others wait
ROUND = 24 << 20  # bytes of a round at most: the memory beside the result
_SHORTEST_ROUND, _FIRST_ROUND = 1 << 20, 4 << 20
_ROUND_TIME = 0.25  # seconds, in which a pause or a lost reader is noticed
_OPENING = 5  # tries to open the source
_ALIKE = TransferError, ArgumentError, SharedMemoryError  # errors that all ranks raise at the same place
_REFUSED = "the server refuses all requests, again and again"
_DAMAGED = "its bytes have changed on the way between two hosts"

Bytes = NDArray[np.uint8]


class Ranks(records.Ranks, AbstractContextManager[Any], Protocol):
    """The part of a communicator that a read uses."""

    def create(self, ranks: Sequence[int]) -> Self | None: ...
    def split(self, color: int) -> Self: ...
    def allgatherv(self, value: Any, counts: Any = None, *, out: Any = None) -> Any: ...
    def barrier(self) -> None: ...
    def revoke(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Place:
    """The host of a rank, as `colocation.host` names it."""

    host: str


@dataclass(frozen=True, slots=True)
class Standing:
    """The source as a reader sees it, and the bytes that its host has already."""

    size: Count
    version: bytes
    missing: bool
    error: str
    there: tuple[Count, ...]  # start, stop, start, stop, …
    name: str  # of the host
    source: str  # its name there


@dataclass(frozen=True, slots=True)
class Outcome:
    """The size of the source, or the error that all ranks raise, with the name that the source has where it was met."""

    size: Count
    source: str
    error: str = ""
    changed: bool = False
    host: str = ""
    rank: Rank | None = None
    segment: tuple[Count, ...] = ()


def read_file(
    comm: Ranks, source: str, connections: int, room: Callable[[int], tuple[Array, memoryview, bool]]
) -> Array:
    """Return an array with the bytes of a source, on every rank.

    Args:
        comm: all ranks, each with a source of its own that means the same file.
        source: path or URL.
        connections: that each host makes.
        room: makes the array for so many bytes, on all ranks together; returns it, its bytes, and whether the ranks of
            a host share it.

    Raises:
        SourceError: no host can read the source, or it changed; all ranks raise it.
    """
    read = _Read(source, connections, room)
    try:
        while True:
            try:
                return read.run(comm)
            except (PeerFailed, Revoked):
                comm = comm.shrink()
    finally:
        read.close()


class _Teams:
    """The communicators of a read: the readers, one of each host, and the ranks of this host."""

    def __init__(self, comm: Ranks) -> None:
        self._comm = comm
        places = [each.host for each in exchanged(comm, Place(host()))]
        first = {place: places.index(place) for place in places}
        self.readers = comm.create(sorted(first.values()))
        self.near = comm.split(first[places[comm.rank]])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        for part in self.near, self.readers:
            if part is not None:
                if error is not None and not isinstance(error, _ALIKE):
                    with suppress(RingcastError):
                        part.revoke()
                part.__exit__(None, None, None)
        if error is not None and not isinstance(error, _ALIKE):
            self._comm.revoke()


class _Read:
    """State of a read on this rank, which outlives the loss of other ranks."""

    def __init__(self, source: str, connections: int, room: Callable[[int], tuple[Array, memoryview, bool]]) -> None:
        self._name, self._connections, self._room = source, connections, room
        self._shown = brief(name_for_people(source))
        self._source: Source | None = None
        self._result: tuple[Array, memoryview, bool] | None = None
        self._there = Ranges()  # bytes of the result that are there

    def close(self) -> None:
        if self._source is not None:
            self._source.close()

    def run(self, comm: Ranks) -> Array:
        """Take all steps; after the loss of a rank each does the rest of its work."""
        with _Teams(comm) as teams:
            standings: list[Standing] = []
            if teams.readers is not None:
                standings = exchanged(teams.readers, self._standing())
            opened = announced(comm, 0, Outcome, lambda: self._opened(teams.readers, standings))
            self._raise(opened)
            self._make_room(comm, opened.size)
            assert self._result is not None
            array, memory, shared = self._result
            outcome = None
            if teams.readers is not None:
                outcome = self._read(teams.readers, standings, memory)
            found = announced(teams.near, 0, Outcome, lambda: outcome or Outcome(0, ""))
            self._raise(found)
            if not shared:
                teams.near.bcast_into(memory, 0)
            self._there.add((0, len(memory)))
            comm.barrier()
        return array

    def _make_room(self, comm: Ranks, size: int) -> None:
        """Make the result.

        Raises:
            ArgumentError: this rank's `out` does not fit.
            TransferError: another rank's does not.
        """
        wrong: ArgumentError | None = None
        if self._result is None:
            try:
                self._result = self._room(size)
            except ArgumentError as error:
                wrong = error  # a SharedMemoryError all ranks have
        fits = np.asarray(comm.allgather(np.int64(wrong is None)))
        if wrong is not None:
            raise wrong
        if not fits.all():
            raise TransferError(f"rank {comm.members[int(fits.argmin())]} has no room for the {size:,} bytes")

    # The source.

    def _standing(self) -> Standing:
        """Open the source, and return how this host sees it."""
        there = tuple(place for each in self._there for place in each)
        size, version, error, missing = 0, b"", "", False
        try:
            if self._source is None:
                self._source = _opened(self._name)
            size, version = self._source.size, self._source.version.encode()[: records.LONGEST]
        except Trouble as trouble:
            error, missing = brief(trouble.reason), isinstance(trouble, Missing)
        return Standing(size, version, missing, error, there, _hostname(), self._shown)

    def _opened(self, readers: Ranks | None, standings: Sequence[Standing]) -> Outcome:
        """Return the size of the file, if any host can read it and all see the same one."""
        assert readers is not None
        usable = [(number, each) for number, each in enumerate(standings) if not each.error]
        if not usable:
            number, wrong = next(((n, s) for n, s in enumerate(standings) if not s.missing), (0, standings[0]))
            return Outcome(0, wrong.source, wrong.error, False, wrong.name, readers.members[number])
        first = usable[0][1]
        for number, each in usable:
            if (each.size, each.version) != (first.size, first.version):
                facts = f"{first.name} sees {first.size:,} bytes, and this host {each.size:,}"
                reason = f"{facts}, of another version (time of change, content or ETag)"
                return Outcome(0, each.source, brief(reason), True, each.name, readers.members[number])
        return Outcome(first.size, first.source)

    def _raise(self, outcome: Outcome) -> None:
        if outcome.error:
            kind = SourceChanged if outcome.changed else SourceError
            segment = (outcome.segment[0], outcome.segment[1]) if len(outcome.segment) == 2 else None
            raise kind(brief(outcome.source), brief(outcome.error), brief(outcome.host), outcome.rank, segment)

    # The rounds, which all readers take together.

    def _read(self, readers: Ranks, standings: Sequence[Standing], memory: memoryview) -> Outcome:
        """Read and pass on until all hosts have every byte; return the outcome, alike at all readers."""
        rounds = _Rounds(readers, memory, self._there, self._shares(standings, len(memory)))
        source = None if standings[readers.rank].error else self._source
        reading = None if source is None else Reading(source, memory, self._connections)
        try:
            rounds.run(reading, self._resent(standings, readers.rank, len(memory)))
            problem = rounds.problem or (reading.problem if reading is not None else None)
            if source is not None and rounds.done and problem is None:
                problem = _changed(source)
        finally:
            if reading is not None:
                reading.close()
        return _verdict(readers, problem, rounds.done, Outcome(len(memory), self._shown))

    def _shares(self, standings: Sequence[Standing], size: int) -> Shares:
        everywhere = Ranges([(0, size)])
        for each in standings:
            for gap in _complement(_pairs(each.there), size):
                everywhere.remove(gap)
        there = [self._resent(standings, number, size) for number in range(len(standings))]
        return Shares(size, len(standings), self._connections, there, everywhere)

    @staticmethod
    def _resent(standings: Sequence[Standing], number: int, size: int) -> list[Range]:
        """Return the bytes that a reader has, that others lack, and that no reader before it has."""
        mine = Ranges(_pairs(standings[number].there))
        for before in standings[:number]:
            for each in _pairs(before.there):
                mine.remove(each)
        lacking = Ranges(gap for each in standings for gap in _complement(_pairs(each.there), size))
        return [part for each in mine for part in lacking.common(each)]


class _Rounds:
    """The rounds of the readers, seen from one of them."""

    def __init__(self, readers: Ranks, memory: memoryview, there: Ranges, shares: Shares) -> None:
        self._readers, self._memory, self._there, self._shares = readers, memory, there, shares
        self._me, self._size = readers.rank, len(readers.members)
        self._data = np.frombuffer(memory, np.uint8) if len(memory) else np.empty(0, np.uint8)
        self._buffer = np.empty(0, np.uint8)
        self._sums = [0] * self._size  # checksums of the last round, as this reader has got its bytes
        self._room = self._proposal = _FIRST_ROUND
        self.problem: Problem | None = None

    @property
    def done(self) -> bool:
        """Whether all have every byte, and checked it."""
        return self._shares.done and self.problem is None

    def run(self, reading: Reading | None, resent: Sequence[Range]) -> None:
        """Take rounds until all have every byte, or none can go on."""
        if reading is not None and resent:
            reading.has(resent)
        ends = False
        while not ends:
            share = max(1, self._room // max(1, self._shares.active))
            report = Report(gone=True) if reading is None else reading.report(share, self._patience)
            stops = self.problem is not None or (reading is not None and _is_changed(reading.problem))
            news = self._exchange(report, stops)
            turn = self._shares.turn([each.report for each in news])
            if reading is not None:
                reading.take(turn, self._me)
                reading.passed_on(report.ready)
            self._check(news)
            self._pass_on(turn.sent)
            ends = any(each.stops for each in news) or self._ends(turn.sent)

    @property
    def _patience(self) -> float:
        return 0.0 if self._shares.done else PATIENCE

    def _ends(self, sent: Sequence[Sequence[Range]]) -> bool:
        """Return whether nothing is left to do: a round that passed on bytes is followed by one with checksums."""
        shares = self._shares
        return not any(sent) and (shares.done or shares.refused or not shares.active)

    def _exchange(self, report: Report, stops: bool) -> list[_News]:
        row = _row(report, stops, self._sums[self._me], self._proposal)
        news = [_news(each) for each in np.asarray(self._readers.allgather(row)).tolist()]
        self._room = max(_SHORTEST_ROUND, min(ROUND, *(each.room for each in news), ROUND))
        return news

    def _check(self, news: Sequence[_News]) -> None:
        for each, mine in zip(news, self._sums, strict=True):
            if each.checksum != mine and self.problem is None:
                self.problem = Problem(_DAMAGED, None, True)

    def _pass_on(self, sent: Sequence[Sequence[Range]]) -> None:
        """Bring the bytes of all readers into the memory of each."""
        counts = [sum(stop - start for start, stop in each) for each in sent]
        total, self._sums = sum(counts), [0] * self._size
        if self._size > 1 and total:
            began = time.monotonic()
            if len(self._buffer) < total:
                self._buffer = np.empty(total, np.uint8)
            whole = self._buffer[:total]
            parts = np.split(whole, np.cumsum(counts)[:-1])
            _gather(self._data, sent[self._me], parts[self._me])
            self._readers.allgatherv(parts[self._me], counts, out=whole)
            for number, (part, ranges) in enumerate(zip(parts, sent, strict=True)):
                self._sums[number] = crc32(part.data)
                if number != self._me:
                    _scatter(part, ranges, self._data)
            speed = total / max(time.monotonic() - began, 1e-6)
            self._proposal = int(min(ROUND, max(_SHORTEST_ROUND, speed * _ROUND_TIME)))
        for ranges in sent:
            for each in ranges:
                self._there.add(each)


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


def _verdict(readers: Ranks, problem: Problem | None, done: bool, mine: Outcome) -> Outcome:
    """Return the outcome of the rounds: if not all is there, or it has changed, the first error that says why."""
    if problem is not None:
        mine = Outcome(
            mine.size,
            mine.source,
            brief(problem.reason),
            problem.changed,
            _hostname(),
            readers.members[readers.rank],
            problem.segment or (),
        )
    found = exchanged(readers, mine)
    wrong = [each for each in found if each.error]
    changed = [each for each in wrong if each.changed]
    if changed or (wrong and not done):
        return (changed or wrong)[0]
    return replace(found[0], error="") if done else replace(found[0], error=_REFUSED)


def _opened(name: str) -> Source:
    """Open the source, by several tries.

    Raises:
        Trouble: it cannot be opened here.
    """
    for left in reversed(range(_OPENING)):
        try:
            return open_source(name)
        except (Interrupted, Busy) as error:
            if not left:
                raise
            after = error.after if isinstance(error, Busy) and error.after is not None else 0.0
            time.sleep(max(after, 0.1 * 2 ** (_OPENING - 1 - left)))
    raise AssertionError("the last try raises")


def _changed(source: Source) -> Problem | None:
    try:
        source.check()
    except Trouble as error:
        return Problem(error.reason, None, True)
    return None


def _is_changed(problem: Problem | None) -> bool:
    return problem is not None and problem.changed


def _pairs(places: Sequence[int]) -> list[Range]:
    return list(zip(places[::2], places[1::2], strict=False))


def _complement(ranges: Sequence[Range], size: int) -> list[Range]:
    rest = Ranges([(0, size)])
    for each in ranges:
        rest.remove(each)
    return list(rest)


def _hostname() -> str:
    return socket.gethostname()
