"""Read a file for a job: each host reads a part of it, and every host gets the whole.

One rank of each host reads, the reader: by several connections, straight into the memory of the result (`rounds.py`).
All ranks agree on the source before, and on the outcome after. When a rank is lost, the others shrink the communicator,
exchange which bytes each host has, and go on.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from hashlib import sha256
from typing import Any, NoReturn, Protocol, Self, TypeVar

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
from ringcast.transfer.reading import Problem, Reading
from ringcast.transfer.records import announced, brief, exchanged
from ringcast.transfer.rounds import Readers, Rounds, Traffic
from ringcast.transfer.shares import Requests, Shares
from ringcast.transfer.sources import tries
from ringcast.transfer.sources.base import Changed, Missing, Source, Trouble
from ringcast.transfer.sources.opening import name_for_people, open_source
from ringcast.transfer.sources.tries import Limit, Wait, tried, watched
from ringcast.wire.codec import Count, Rank

_ALIKE = TransferError, ArgumentError, SharedMemoryError  # errors that all ranks raise at the same place
_REFUSED = "the server refuses all requests, again and again"

Bytes = NDArray[np.uint8]
Result = TypeVar("Result")
Room = Callable[[Any, int], tuple[Array, memoryview, bool]]  # of a communicator, for so many bytes


class Ranks(Readers, tries.Ranks, AbstractContextManager[Any], Protocol):
    """The part of a communicator that a read uses."""

    def create(self, ranks: Sequence[int]) -> Self | None: ...
    def split(self, color: int) -> Self: ...
    def barrier(self) -> None: ...
    def agree(self, flag: int) -> int: ...
    def revoke(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Place:
    """The host of a rank, as `colocation.host` names it, and a digest of its source's name; b"" if it has none."""

    host: str
    source: bytes


@dataclass(frozen=True, slots=True)
class Given:
    """The source that a rank gives, and its host, both as people name them."""

    source: str
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
    requests: Count = 0  # of all hosts that the server allows, as this one has learnt; 0: any number


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


def read_file(comm: Ranks, source: str, connections: int, room: Room, opened: Source | None = None) -> Array:
    """Return an array with the bytes of a source, on every rank.

    Args:
        comm: all ranks, each with a source of its own that means the same file.
        source: path or URL.
        connections: that each host makes.
        room: makes the array for so many bytes, on all ranks of a communicator together; returns it, its bytes, and
            whether the ranks of a host share it.
        opened: the source, if it is open already; it is closed at the end.

    Raises:
        SourceError: no host can read the source, or it changed; all ranks raise it.
    """
    return read_among(comm, source, Requests(connections), room, opened)[0]


def read_among(
    comm: Ranks,
    source: str,
    requests: Requests,
    room: Room,
    opened: Source | None = None,
    there: Iterable[Range] = (),
    traffic: Traffic | None = None,
) -> tuple[Array, Ranks]:
    """Read as `read_file` does; return the array, and the communicator of the ranks that are left.

    `there` are the bytes that this rank's room has from the start: they are passed on to the ranks that lack them.
    """
    read = _Read(source, requests, room, opened, there, traffic)
    try:
        return among(comm, read.run)
    finally:
        read.close()


def among(comm: Ranks, step: Callable[[Ranks], Result]) -> tuple[Result, Ranks]:
    """Take a step of all ranks; if ranks are lost, the others begin it again.

    Returns:
        The result, which is never None, and the communicator of the ranks that are left.

    Raises:
        TransferError, ArgumentError, SharedMemoryError: the step raises it on all ranks alike.
    """
    while True:
        result: Result | None = None
        error: RingcastError | None = None
        try:
            result = step(comm)
        except _ALIKE as problem:
            error = problem
        except (PeerFailed, Revoked):
            with suppress(RingcastError):
                comm.revoke()
        if _agreed(comm, result is not None or error is not None):
            if error is not None:
                raise error
            assert result is not None
            return result, comm
        comm = comm.shrink()


def _agreed(comm: Ranks, over: bool) -> bool:
    """Return whether a step is over on all ranks; if not, all ranks that are left begin it again."""
    try:
        return comm.agree(int(over)) == 1
    except PeerFailed:  # on all ranks alike
        return False


class _Teams:
    """The communicators of a read: the readers, one of each host, and the ranks of this host."""

    def __init__(self, comm: Ranks, source: str) -> None:
        """Make them.

        Raises:
            SourceError: ranks of a host give different sources.
        """
        self._comm = comm
        told = exchanged(comm, Place(host(), _digest(source)))
        places = [each.host for each in told]
        first = {place: places.index(place) for place in places}
        for rank, each in enumerate(told):
            if each.source and told[first[each.host]].source not in (b"", each.source):
                _refuse(comm, source, first[each.host], rank)
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


def _digest(source: str) -> bytes:
    """Return a digest by which ranks of a host compare their sources: of a path, wherever links lead."""
    with suppress(OSError, ValueError):
        source = source if "://" in source or not source else os.path.realpath(source)
    return sha256(os.fsencode(source)).digest() if source else b""


def _refuse(comm: Ranks, source: str, first: int, other: int) -> NoReturn:
    """Raise the error of two ranks of a host with different sources, on all ranks alike."""
    told = exchanged(comm, Given(brief(name_for_people(source)), _hostname()))
    one, another = (brief(each.source) for each in (told[first], told[other]))
    place = brief(told[other].host)
    ranks = f"rank {comm.members[first]} gives {one}, rank {comm.members[other]} gives {another}"
    raise SourceError(another, f"the ranks of one host must give the same path or URL: on {place} {ranks}", place)


class _Read:
    """State of a read on this rank, which outlives the loss of other ranks."""

    def __init__(
        self,
        source: str,
        requests: Requests,
        room: Room,
        opened: Source | None = None,
        there: Iterable[Range] = (),
        traffic: Traffic | None = None,
    ) -> None:
        self._name = source if opened is None else ""
        self._requests, self._room = requests, room
        self._shown = brief(name_for_people(source))
        self._source = opened
        self._result: tuple[Array, memoryview, bool] | None = None
        self._begun = tuple(there)
        self._there = Ranges(self._begun)  # bytes of the result that are there
        self._traffic = traffic or Traffic()

    def close(self) -> None:
        if self._source is not None:
            self._source.close()

    def run(self, comm: Ranks) -> Array:
        """Take all steps; after the loss of a rank each does the rest of its work."""
        with _Teams(comm, self._name) as teams:
            standings: list[Standing] = []
            if teams.readers is not None:
                standings = exchanged(teams.readers, self._standing(comm))
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
        made = self._result is not None and len(self._result[1]) == size
        if not np.asarray(comm.allgather(np.int64(made))).all():  # a rank may have been lost while it was made
            self._there = Ranges(self._begun)
            try:
                self._result = self._room(comm, size)
            except ArgumentError as error:
                wrong = error  # a SharedMemoryError all ranks have
        fits = np.asarray(comm.allgather(np.int64(wrong is None)))
        if wrong is not None:
            raise wrong
        if not fits.all():
            raise TransferError(f"rank {comm.members[int(fits.argmin())]} has no room for the {size:,} bytes")

    # The source.

    def _standing(self, comm: Ranks) -> Standing:
        """Open the source, and return how this host sees it."""
        there = tuple(place for each in self._there for place in each)
        size, version, error, missing = 0, b"", "", False
        try:
            if self._source is None:
                self._source = _open(comm, self._name)
            size, version = self._source.size, self._source.version.encode()[: records.LONGEST]
        except Trouble as trouble:
            error, missing = brief(trouble.reason), isinstance(trouble, Missing)
        return Standing(size, version, missing, error, there, _hostname(), self._shown, self._requests.all)

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
        shares = self._shares(standings, len(memory))
        rounds = Rounds(readers, memory, self._there, shares, self._traffic)
        source = None if standings[readers.rank].error else self._source
        reading = None if source is None else Reading(source, memory, self._requests.each, Limit(readers.timeout))
        try:
            rounds.run(reading, self._resent(standings, readers.rank, len(memory)))
            problem = rounds.problem or (reading.problem if reading is not None else None)
            if source is not None and rounds.done and problem is None:
                problem = _changed(source)
        finally:
            if shares.epoch:
                self._requests.all = shares.requests
            if reading is not None:
                reading.close()
                self._traffic.source.add(*reading.work)
        return _verdict(readers, problem, rounds.done, Outcome(len(memory), self._shown))

    def _shares(self, standings: Sequence[Standing], size: int) -> Shares:
        everywhere = Ranges([(0, size)])
        for each in standings:
            for gap in _complement(_pairs(each.there), size):
                everywhere.remove(gap)
        there = [self._resent(standings, number, size) for number in range(len(standings))]
        most = min((each.requests for each in standings if each.requests), default=0)
        return Shares(size, len(standings), self._requests.each, there, everywhere, most)

    @staticmethod
    def _resent(standings: Sequence[Standing], number: int, size: int) -> list[Range]:
        """Return the bytes that a reader has, that others lack, and that no reader before it has."""
        mine = Ranges(_pairs(standings[number].there))
        for before in standings[:number]:
            for each in _pairs(before.there):
                mine.remove(each)
        lacking = Ranges(gap for each in standings for gap in _complement(_pairs(each.there), size))
        return [part for each in mine for part in lacking.common(each)]


def _open(comm: Ranks, name: str) -> Source:
    """Open a source.

    Raises:
        Trouble: it cannot be opened.
    """
    wait = Wait()

    def work() -> Source:
        source = tried(wait, lambda: open_source(name, wait.uses))
        if wait.over.is_set():
            source.close()
        return source

    return watched(comm, wait, work)


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


def _changed(source: Source) -> Problem | None:
    try:
        source.check()
    except Changed as error:
        return Problem(error.reason, None, True)
    except Trouble:  # all is there, and every part has been checked
        pass
    return None


def _pairs(places: Sequence[int]) -> list[Range]:
    return list(zip(places[::2], places[1::2], strict=False))


def _complement(ranges: Sequence[Range], size: int) -> list[Range]:
    rest = Ranges([(0, size)])
    for each in ranges:
        rest.remove(each)
    return list(rest)


def _hostname() -> str:
    return socket.gethostname()
