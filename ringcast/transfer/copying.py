"""Copy files from one rank to all others: manifest, comparison, segments, end.

All ranks make the same calls. A rank that cannot write goes on taking part, as others get their bytes through it, and
says so at the end of the segment. When a rank is lost, those that live shrink the communicator and begin again from the
manifest with what each of them has: only what a segment had not settled is sent twice.
"""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, suppress
from typing import Any, Protocol, Self

import numpy as np

from ringcast._util.dataclass import dataclass
from ringcast.errors import PeerFailed, Revoked, RingcastError, TransferError
from ringcast.ops import BOR, Array
from ringcast.requests.request import Request
from ringcast.transfer import records
from ringcast.transfer.destination import Destination
from ringcast.transfer.layout import CHUNK, Piece, segments
from ringcast.transfer.manifest import Manifest, scan
from ringcast.transfer.pipeline import Buffers, Filled, Reader, Writer, piece_of
from ringcast.transfer.records import announced, exchanged
from ringcast.transfer.report import CopyReport, Progress, RankReport, whole
from ringcast.transfer.route import route
from ringcast.transfer.source import Source

UNDER_WAY = 3  # broadcasts at the same time: the next one fills the rounds in which one begins and ends
TRIES = 3  # of chunks that arrive with a wrong digest

FULL, SIZE, NONE = "full", "size", "none"
VERIFICATIONS = (FULL, SIZE, NONE)


@dataclass(frozen=True, slots=True)
class Options:
    """How to copy.

    Attributes:
        recursive: directories are copied with all that is in them.
        preserve: times of changes and all permission bits are kept.
        verify: how what is there already is judged: FULL by its SHA-256, SIZE by size (and time of change, with
            `preserve`), NONE not at all: everything is sent. What travels is always hashed at both ends.
        keep_going: ranks that cannot take the files are left out; otherwise nothing is sent then.
        rate: most bytes that the root sends in a second; None: no limit.
    """

    recursive: bool = False
    preserve: bool = False
    verify: str = FULL
    keep_going: bool = False
    rate: float | None = None


class Ranks(records.Ranks, Protocol):
    """What a copy needs of a communicator."""

    @property
    def members(self) -> tuple[int, ...]: ...
    def ibcast(
        self, value: Any = None, root: int = 0, *, algorithm: str | None = None, nblocks: int | None = None
    ) -> Request[Any]: ...
    def allreduce(self, value: Any, op: Any) -> Any: ...
    def shrink(self) -> Self: ...


Watch = Callable[[Progress], object]


def copy_files(
    comm: Ranks, sources: Sequence[str], target: str, root: int, options: Options, watch: Watch | None = None
) -> CopyReport:
    """Copy files of the root to all other ranks; return what became of them, alike on all ranks.

    Raises:
        TransferError: the root cannot read its files, or was lost; or, without `keep_going`, a rank cannot take them,
            and nothing was sent.
    """
    copy = _Copy(comm.members[root], sources, target, options, watch or (lambda _: None))
    try:
        while True:
            try:
                return copy.run(comm)
            except (PeerFailed, Revoked) as error:
                comm = copy.go_on(comm, error)
    finally:
        copy.close()


def copy_files_together(comm: Ranks, sources: Sequence[str], target: str, root: int, options: Options) -> CopyReport:
    """Copy as `copy_files` does, but the loss of a rank is an error on those that live, as in any other call."""
    copy = _Copy(comm.members[root], sources, target, options, lambda _: None)
    try:
        return copy.run(comm)
    finally:
        copy.close()


class _Copy:
    """State of a copy on this rank, which outlives the loss of other ranks."""

    def __init__(self, root: int, sources: Sequence[str], target: str, options: Options, watch: Watch) -> None:
        self._root, self._sources, self._target, self._options = root, sources, target, options
        self._watch = watch
        self._began = time.monotonic()
        self._buffers = Buffers()
        self._source: Source | None = None
        self._destination: Destination | None = None
        self._compared = False  # whether what was there has been looked at
        self._found = self._sent = self._written = 0
        self._seconds = 0.0
        self._error = ""
        self._digests: dict[int, bytes] = {}  # of what was sent or received in the last segment
        self._unsettled = False  # whether the loss of a rank broke a segment off
        self._lost: dict[int, str] = {}

    # The steps, which all ranks take together.

    def run(self, comm: Ranks) -> CopyReport:
        """Take all steps; after the loss of a rank they are taken again, and each does what is left."""
        root = comm.members.index(self._root)
        manifest = self._agree_on_manifest(comm, root)
        if self._unsettled:
            self._settle(comm, root)
        there = self._prepare(comm)
        self._compare(comm, root, there)
        self._reserve(comm)
        for _ in range(TRIES):
            missing = self._missing(comm, manifest)
            if not missing:
                break
            self._send_all(comm, root, missing)
        return self._finish(comm, manifest)

    def go_on(self, comm: Ranks, error: RingcastError) -> Ranks:
        """Return the communicator of those that live, of which the root must be one."""
        rest = comm.shrink()
        self._unsettled = True
        for member in sorted(set(comm.members) - set(rest.members)):
            cause = error.cause if isinstance(error, PeerFailed) and member in error.ranks else str(error)
            self._lost[member] = f"lost: {cause}"
        if self._root not in rest.members:
            raise TransferError(
                f"the rank that has the files was {self._lost.get(self._root, error)}; what has arrived is kept, "
                "and the same copy sends only what is missing"
            )
        return rest

    def close(self) -> None:
        """Close the files that are open."""
        for side in self._source, self._destination:
            if side is not None:
                side.close()

    def _agree_on_manifest(self, comm: Ranks, root: int) -> Manifest:
        record: dict[str, Any] = {}
        if comm.rank == root:
            try:
                if self._source is None:
                    self._source = Source(*scan(self._sources, self._options.recursive))
                record = {"manifest": self._source.manifest.encode()}
            except TransferError as error:
                record = {"error": str(error)}
        record = announced(comm, root, record)
        if "error" in record:
            raise TransferError(record["error"])
        if self._source is not None:
            return self._source.manifest
        manifest = Manifest.decode(record["manifest"])
        if self._destination is None:
            self._destination = Destination(manifest, self._target, self._options.preserve)
        return manifest

    def _prepare(self, comm: Ranks) -> bool:
        """Make directories; return whether any rank may have some of the content."""
        existing = 0
        if self._usable is not None and not self._compared:
            existing = self._attempt(self._usable.prepare) or 0
        return any(record["existing"] for record in self._told(comm, {"existing": existing}))

    def _compare(self, comm: Ranks, root: int, there: bool) -> None:
        """Find out what ranks have already."""
        if there and self._options.verify == FULL:
            expected = self._agree_on_digests(comm, root)
            if self._usable is not None and not self._compared:
                self._usable.verify(expected)
        elif there and self._options.verify == SIZE and self._usable is not None and not self._compared:
            self._usable.trust()
        if self._destination is not None and not self._compared:
            self._found = sum(self._destination.layout.length(Piece(c, 1)) for c in self._destination.have)
        self._compared = True

    def _agree_on_digests(self, comm: Ranks, root: int) -> dict[int, bytes]:
        """Return the digests of all that the root has, on all ranks."""
        record: dict[str, Any] = {}
        if comm.rank == root:
            try:
                record = {"digests": list(self._digests_of_all().items())}
            except TransferError as error:
                record = {"error": str(error)}
        record = announced(comm, root, record)
        if "error" in record:
            raise TransferError(record["error"])
        return dict(record["digests"])

    def _reserve(self, comm: Ranks) -> None:
        if self._usable is not None:
            self._attempt(self._usable.reserve)
        self._told(comm, {})

    def _missing(self, comm: Ranks, manifest: Manifest) -> list[int]:
        """Return the chunks that any rank lacks, in order."""
        chunks = -(-manifest.nbytes // CHUNK)
        lacks = np.zeros(chunks, np.uint8)
        if self._usable is not None:
            lacks[:] = 1
            lacks[list(self._usable.have)] = 0
        everywhere: Array = comm.allreduce(lacks, BOR)
        return [int(chunk) for chunk in np.flatnonzero(everywhere)]

    def _send_all(self, comm: Ranks, root: int, missing: Sequence[int]) -> None:
        layout = self._layout
        total = self._sent + sum(layout.length(Piece(chunk, 1)) for chunk in missing)
        slowest: int | None = None
        for pieces in segments(missing):
            if comm.rank == root:
                self._send(comm, root, pieces, total, slowest)
            else:
                self._receive(comm, root, pieces)
            slowest = self._settle(comm, root)
        self._watch(Progress(self._sent, total, slowest))

    def _send(self, comm: Ranks, root: int, pieces: Sequence[Piece], total: int, slowest: int | None) -> None:
        assert self._source is not None
        reader = Reader(self._source, pieces, self._buffers, self._options.rate)
        try:
            with reader, closing(self._broadcast(comm, root, pieces, reader.take)) as sent:
                for filled in sent:
                    self._sent += len(filled.data)
                    self._buffers.give_back(filled.buffer)
                    self._watch(Progress(self._sent, total, slowest))
        finally:
            self._error, self._digests = reader.error, reader.digests

    def _receive(self, comm: Ranks, root: int, pieces: Sequence[Piece]) -> None:
        following = iter(pieces)

        def room(wait: bool) -> Filled | None:
            buffer = self._buffers.take(wait)
            return None if buffer is None else piece_of(self._layout, next(following), buffer)

        writer = Writer(self._usable, self._buffers)
        try:
            with writer:
                with closing(self._broadcast(comm, root, pieces, room)) as arrived:
                    for filled in arrived:
                        writer.put(filled)
                writer.drain()
        finally:
            self._digests, self._seconds = writer.digests, self._seconds + writer.seconds
            self._error = self._error or writer.error

    def _settle(self, comm: Ranks, root: int) -> int | None:
        """Compare digests at the end of a segment; return the member whose disk has taken longest."""
        sent: dict[int, bytes] = self._digests if comm.rank == root else {}
        record = announced(comm, root, {"digests": list(sent.items()), "error": self._error})
        if record["error"]:
            raise TransferError(record["error"])
        if self._usable is not None:
            usable, right = self._usable, [chunk for chunk, d in record["digests"] if self._digests.get(chunk) == d]
            new = [chunk for chunk in right if chunk not in usable.have]
            self._attempt(lambda: usable.settle(new))
            self._written += sum(self._layout.length(Piece(chunk, 1)) for chunk in new)
        times = exchanged(comm, {"seconds": self._seconds})
        return max(comm.members, key=lambda member: times[comm.members.index(member)]["seconds"])

    def _finish(self, comm: Ranks, manifest: Manifest) -> CopyReport:
        if self._usable is not None:
            lacking = self._layout.chunks - len(self._usable.have)
            if lacking:
                self._error = f"{lacking} chunks arrived with wrong digests, {TRIES} times"
            else:
                self._attempt(self._usable.finish)
        member = comm.members[comm.rank]
        mine = RankReport(member, socket.gethostname(), self._written, self._found, self._seconds, self._error)
        reports = [RankReport(*record["report"]) for record in exchanged(comm, {"report": mine.plain()})]
        lost = [RankReport(each, "", error=why) for each, why in self._lost.items()]
        others = [report for report in (*reports, *lost) if report.rank != self._root]
        return whole(manifest, self._sent, time.monotonic() - self._began, others)

    def _broadcast(
        self, comm: Ranks, root: int, pieces: Sequence[Piece], take: Callable[[bool], Filled | None]
    ) -> Generator[Filled, None, None]:
        """Broadcast pieces, some at the same time; yield each when this rank is done with it.

        `take` returns the next piece, full on the root and empty elsewhere. It may wait only while nothing is under
        way: other ranks get what is under way through this one.
        """
        under_way: deque[tuple[Filled, Request[Any]]] = deque()
        chosen = route(len(comm.members), sum(map(self._layout.length, pieces)))
        count = len(pieces)
        try:
            while count or under_way:
                while count and len(under_way) < UNDER_WAY and (filled := take(not under_way)) is not None:
                    try:
                        blocks = chosen.nblocks(len(filled.data))
                        request = comm.ibcast(filled.data, root, algorithm=chosen.algorithm, nblocks=blocks)
                    except RingcastError:
                        self._buffers.give_back(filled.buffer)
                        raise
                    under_way.append((filled, request))
                    count -= 1
                under_way[0][1].wait()
                yield under_way.popleft()[0]
        finally:
            for filled, request in under_way:
                with suppress(RingcastError):
                    request.wait()
                self._buffers.give_back(filled.buffer)

    # What this rank does by itself.

    @property
    def _usable(self) -> Destination | None:
        """Where files are written: nowhere on the root, and nowhere any more after an error."""
        return None if self._error else self._destination

    @property
    def _layout(self) -> Any:
        side = self._source or self._destination
        assert side is not None
        return side.layout

    def _attempt(self, step: Callable[[], Any]) -> Any:
        """Take a step on the files of this rank; an error is kept, and told to the others in time."""
        try:
            return step()
        except TransferError as error:
            self._error = str(error)
            return None

    def _told(self, comm: Ranks, record: dict[str, Any]) -> list[dict[str, Any]]:
        """Exchange records with all ranks, with this rank's error in it; raise where one has one and all shall work."""
        records = exchanged(comm, {**record, "error": self._error})
        wrong = [(comm.members[i], each["error"]) for i, each in enumerate(records) if each["error"]]
        if wrong and (not self._options.keep_going or len(wrong) == len(records) - 1):
            raise TransferError("\n".join(f"rank {member}: {error}" for member, error in wrong))
        return records

    def _digests_of_all(self) -> dict[int, bytes]:
        """Hash all that the root has, a segment at a time."""
        assert self._source is not None
        found: dict[int, bytes] = {}
        everything = segments(range(self._source.layout.chunks))
        for pieces in everything:
            with Reader(self._source, pieces, self._buffers, None) as reader:
                for _ in pieces:
                    filled = reader.take(wait=True)
                    assert filled is not None
                    self._buffers.give_back(filled.buffer)
            if reader.error:
                raise TransferError(reader.error)
            found.update(reader.digests)
        return found
