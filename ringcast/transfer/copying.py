"""Copy files from one rank to all others: manifest, comparison, segments, end.

All ranks make the same calls. A rank that cannot write goes on taking part, because others get their bytes through it;
it reports its error at the end of the segment. A rank whose disk is slower than `Options.slow` allows does the same.
When a rank is lost, the surviving ranks shrink the communicator and begin again from the manifest with the chunks that
each of them has: only chunks of a segment that was not settled are sent twice.
"""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ringcast._util.optional import how_to_install
from ringcast.errors import PeerFailed, Revoked, RingcastError, TransferError
from ringcast.ops import BOR, Array
from ringcast.requests.request import Request
from ringcast.transfer.compression import Compressor, zstd
from ringcast.transfer.destination import Destination
from ringcast.transfer.framing import AHEAD, Lengths
from ringcast.transfer.layout import CHUNK, Piece, segments
from ringcast.transfer.listing import Listing as Listed
from ringcast.transfer.listing import scan
from ringcast.transfer.manifest import Manifest
from ringcast.transfer.options import FULL, NONE, SIZE, ZSTD, Options
from ringcast.transfer.pipeline import Buffers, Filled
from ringcast.transfer.reader import Reader
from ringcast.transfer.records import (
    Digests,
    Disk,
    Ended,
    FirstLengths,
    Framing,
    Listing,
    Ranks,
    Settled,
    Standing,
    announced,
    brief,
    exchanged,
)
from ringcast.transfer.report import CopyReport, Progress, RankReport, report_of, whole
from ringcast.transfer.route import route
from ringcast.transfer.source import Source
from ringcast.transfer.stalls import Stalls
from ringcast.transfer.survivors import survivors
from ringcast.transfer.writer import Writer

if TYPE_CHECKING:
    from ringcast.transfer.seal import Seal

UNDER_WAY = AHEAD  # broadcasts at the same time: the next one fills the rounds in which one begins and ends
TRIES = 3  # of chunks that arrive with a wrong digest
_NO_ZSTD = "{} cannot compress: it has neither Python 3.14 nor the package zstandard: {}"


Watch = Callable[[Progress], object]


def copy_files(
    comm: Ranks,
    sources: Sequence[str],
    target: str,
    root: int,
    options: Options,
    watch: Watch | None = None,
    seal: Seal | None = None,
    listing: Listed | None = None,
) -> CopyReport:
    """Copy files of the root to all other ranks; return the same report on all ranks.

    The root may pass the `listing` of the sources, if it has made it already.

    Raises:
        TransferError: the root cannot read its files, or was lost; or, without `keep_going`, a rank cannot take the
            files, and nothing was sent.
    """
    copy = _Copy(comm.members[root], sources, target, options, watch, seal, listing)
    try:
        while True:
            try:
                return copy.run(comm)
            except (PeerFailed, Revoked) as error:
                comm = copy.go_on(comm, error)
    finally:
        copy.close()


def copy_files_together(comm: Ranks, sources: Sequence[str], target: str, root: int, options: Options) -> CopyReport:
    """Copy as `copy_files` does, but the loss of a rank is an error on the surviving ranks, as in any other call."""
    copy = _Copy(comm.members[root], sources, target, options)
    try:
        return copy.run(comm)
    finally:
        copy.close()


class _Copy:
    """State of a copy on this rank, which outlives the loss of other ranks."""

    def __init__(
        self,
        root: int,
        sources: Sequence[str],
        target: str,
        options: Options,
        watch: Watch | None = None,
        seal: Seal | None = None,
        listing: Listed | None = None,
    ) -> None:
        self._listing = listing
        self._root, self._sources, self._target, self._options = root, sources, target, options
        self._watch: Watch = watch or (lambda _: None)
        self._announced = partial(announced, seal=seal)
        self._began = time.monotonic()
        self._buffers = Buffers()
        self._source: Source | None = None
        self._destination: Destination | None = None
        self._writer: Writer | None = None
        self._stalls = Stalls(options.slow)
        self._compressor: Compressor | None = None
        self._framed = False  # whether pieces of the next segment may be compressed
        self._begun = False  # whether anything has been sent
        self._compared = False  # whether files that were there before have been compared
        self._found = self._sent = self._travelled = self._written = 0
        self._error = ""
        self._digests: dict[int, bytes] = {}  # of the chunks that were sent or received in the last segment
        self._unsettled = False  # whether the loss of a rank interrupted a segment
        self._lost: dict[int, str] = {}

    # The steps, which all ranks take together.

    def run(self, comm: Ranks) -> CopyReport:
        """Take all steps; after the loss of a rank `run` is called again, and each step does the rest of its work."""
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

    def go_on(self, comm: Ranks, error: PeerFailed | Revoked) -> Ranks:
        """Return the communicator of the surviving ranks.

        Raises:
            TransferError: the root has not survived.
        """
        rest, lost = survivors(comm, error)
        self._unsettled = True
        self._lost |= lost
        if self._root not in rest.members:
            raise TransferError(
                f"the rank that has the files was {self._lost.get(self._root, error)}; data that has arrived is kept, "
                "and the same copy sends only the rest"
            )
        return rest

    def close(self) -> None:
        """Close the files that are open."""
        for side in self._source, self._writer:
            if side is not None:
                side.close()

    def _agree_on_manifest(self, comm: Ranks, root: int) -> Manifest:
        listing = self._announced(comm, root, Listing, self._list)
        if self._source is not None:
            return self._source.manifest
        manifest = Manifest.decode(listing.manifest)
        if self._destination is None:
            self._destination = Destination(manifest, self._target, self._options.preserve, self._options.sparse)
            self._writer = Writer(self._destination, self._buffers, self._stalls)
        return manifest

    def _list(self) -> Listing:
        if self._source is None:
            self._source = Source(self._listing or scan(self._sources, self._options.recursive))
            self._check_zstd()
        return Listing(self._source.manifest.encode())

    def _prepare(self, comm: Ranks) -> bool:
        """Make directories, agree on compression; return whether any rank may have some of the content."""
        existing, destination = 0, self._usable
        if destination is not None and not self._compared:
            self._attempt(self._check_zstd)
            existing = self._attempt(destination.prepare) or 0
        records = self._told(comm, existing=existing > 0)
        if self._options.compress != NONE and all(record.zstd for record in records if not record.error):
            self._compressor = self._compressor or Compressor(self._options.compress, self._options.rate)
        return any(record.existing for record in records)

    def _compare(self, comm: Ranks, root: int, there: bool) -> None:
        """Find the chunks that this rank has already; with FULL all ranks agree on the digests first."""
        if there and self._options.verify == FULL:
            expected = self._agree_on_digests(comm, root)
            if self._usable is not None and not self._compared:
                usable = self._usable
                self._attempt(lambda: usable.verify(expected))
        elif there and self._options.verify == SIZE and self._usable is not None and not self._compared:
            self._attempt(self._usable.trust)
        if self._destination is not None and not self._compared:
            self._found = sum(self._destination.layout.length(Piece(c, 1)) for c in self._destination.have)
        self._compared = True

    def _agree_on_digests(self, comm: Ranks, root: int) -> dict[int, bytes]:
        """Return the digests of all chunks of the root, on all ranks."""
        record = self._announced(comm, root, Digests, self._digests_of_all)
        return record.of(range(self._layout.chunks))

    def _reserve(self, comm: Ranks) -> None:
        if self._usable is not None:
            self._attempt(self._usable.reserve)
        self._told(comm)

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
        self._begun = True
        if self._compressor is not None:
            self._framed = self._announced(comm, root, Framing, lambda: Framing(self._try_compression(missing))).framed
        for pieces in segments(missing):
            if comm.rank == root:
                self._send(comm, root, pieces, total, slowest)
            else:
                self._receive(comm, root, pieces, total)
            records = self._settle(comm, root)
            slowest = max(comm.members, key=lambda member: records[comm.members.index(member)].seconds)
            if not any(record.writes for record in records):
                break
        self._watch(Progress(self._sent, total, slowest))

    def _try_compression(self, missing: Sequence[int]) -> bool:
        """Return whether to compress the first segment, by a chunk from the middle; ranks but the root return False."""
        if self._source is None or self._compressor is None:
            return False
        piece = Piece(missing[len(missing) // 2], 1)
        data = memoryview(bytearray(self._layout.length(piece)))
        with suppress(TransferError):  # the reader meets the same error, and reports it
            self._source.read(piece, data)
        return self._compressor.consider(data)

    def _send(self, comm: Ranks, root: int, pieces: Sequence[Piece], total: int, slowest: int | None) -> None:
        assert self._source is not None
        reader = Reader(self._source, pieces, self._buffers, self._options.rate, self._compressor, self._framed)
        try:
            with reader:
                self._send_pieces(comm, root, pieces, reader, total, slowest)
        finally:
            self._error, self._digests = reader.error, reader.digests

    def _send_pieces(
        self, comm: Ranks, root: int, pieces: Sequence[Piece], reader: Reader, total: int, slowest: int | None
    ) -> None:
        if self._framed:
            self._announced(comm, root, FirstLengths, lambda: FirstLengths(tuple(reader.first_lengths())))
        before = time.monotonic()
        with closing(self._broadcast(comm, root, pieces, reader.take)) as sent:
            for filled in sent:
                self._sent += self._layout.length(filled.piece)
                self._travelled += len(filled.data)
                self._buffers.give_back(filled.buffer)
                before, began = time.monotonic(), before
                if self._compressor is not None:
                    self._compressor.sent(len(filled.data), before - began - reader.waited)
                reader.waited = 0.0
                self._watch(Progress(self._sent, total, slowest))

    def _receive(self, comm: Ranks, root: int, pieces: Sequence[Piece], total: int) -> None:
        writer, writes, following = self._writer, self._usable is not None, iter(pieces)
        assert writer is not None
        lengths = self._first_lengths(comm, root, pieces) if self._framed else None

        def room(wait: bool) -> Filled | None:
            if (buffer := writer.buffer(wait)) is None:
                return None
            piece = next(following)
            length = self._layout.length(piece) if lengths is None else lengths.next_message()
            return Filled(piece, buffer[:length], buffer)

        writer.digests = {}
        try:
            with closing(self._broadcast(comm, root, pieces, room)) as arrived:
                for filled in arrived:
                    self._sent += self._layout.length(filled.piece)
                    self._travelled += len(filled.data)
                    self._watch(Progress(self._sent, total))
                    payload = filled.data if lengths is None else lengths.payload(filled.data)
                    if writes:
                        writer.put(Filled(filled.piece, payload, filled.buffer))
                    else:
                        self._buffers.give_back(filled.buffer)
        finally:
            writer.drain()
            self._digests, self._error = writer.digests, self._error or writer.error

    def _first_lengths(self, comm: Ranks, root: int, pieces: Sequence[Piece]) -> Lengths:
        first = self._announced(comm, root, FirstLengths)
        return Lengths(first.lengths, [self._layout.length(piece) for piece in pieces])

    def _settle(self, comm: Ranks, root: int) -> list[Disk]:
        """End a segment: keep chunks whose digest is the root's, and exchange the times of the disks."""
        record = self._announced(comm, root, Settled, self._settled)
        self._framed = record.framed
        if self._usable is not None:
            digests = record.digests.of(record.chunks)
            right = [chunk for chunk, digest in digests.items() if self._digests.get(chunk) == digest]
            self._keep([chunk for chunk in right if chunk not in self._usable.have])
        return self._compare_disks(comm)

    def _settled(self) -> Settled:
        if self._error:
            raise TransferError(self._error)
        framed = self._compressor is not None and self._compressor.wins
        return Settled(tuple(self._digests), Digests(b"".join(self._digests.values())), framed)

    def _keep(self, chunks: Sequence[int]) -> None:
        """Settle chunks that have arrived with the right digests."""
        assert self._writer is not None
        assert self._destination is not None
        destination = self._destination
        self._writer.call(lambda: destination.settle(chunks))
        self._error = self._writer.error
        self._written += sum(self._layout.length(Piece(chunk, 1)) for chunk in chunks)

    def _compare_disks(self, comm: Ranks) -> list[Disk]:
        """Exchange the disks' times of a segment; a disk that made others wait too long is not used any more."""
        records = exchanged(comm, Disk(self._disk_seconds, self._stalls.segment, self._usable is not None))
        others = (each.stalled for i, each in enumerate(records) if each.writes and i != comm.rank)
        self._stalls.next_segment(min(others, default=self._stalls.segment))
        if self._usable is not None and self._stalls.exceeded:
            self._error = self._stalls.told()
        return records

    def _finish(self, comm: Ranks, manifest: Manifest) -> CopyReport:
        if self._usable is not None:
            lacking = self._layout.chunks - len(self._usable.have)
            if lacking:
                self._error = f"{lacking} chunks arrived with wrong digests, {TRIES} times"
            elif self._writer is not None:
                self._writer.call(self._usable.finish)
                self._error = self._writer.error
        mine = Ended(
            socket.gethostname(),
            self._written,
            self._found,
            self._disk_seconds,
            self._stalls.total,
            brief(self._error),
        )
        reports = [report_of(member, each) for member, each in zip(comm.members, exchanged(comm, mine), strict=True)]
        lost = [RankReport(each, "", error=why) for each, why in self._lost.items()]
        others = [report for report in (*reports, *lost) if report.rank != self._root]
        return whole(manifest, self._sent, self._travelled, time.monotonic() - self._began, others)

    def _broadcast(
        self, comm: Ranks, root: int, pieces: Sequence[Piece], take: Callable[[bool], Filled | None]
    ) -> Generator[Filled, None, None]:
        """Broadcast pieces, some at the same time; yield each when this rank is done with it.

        `take` returns the next piece, full on the root and empty elsewhere. It may wait only while nothing is under
        way: other ranks get these pieces through this one.
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

    # Steps of this rank alone.

    @property
    def _usable(self) -> Destination | None:
        """The destination if files are written there: None on the root, and after an error."""
        return None if self._error else self._destination

    @property
    def _layout(self) -> Any:
        side = self._source or self._destination
        assert side is not None
        return side.layout

    @property
    def _disk_seconds(self) -> float:
        return 0.0 if self._writer is None else self._writer.seconds

    def _check_zstd(self) -> None:
        """Raise TransferError where compression is asked for, and this rank cannot do it."""
        if self._options.compress == ZSTD and zstd() is None:
            raise TransferError(_NO_ZSTD.format(socket.gethostname(), how_to_install("zstandard")))

    def _attempt(self, step: Callable[[], Any]) -> Any:
        """Take a step on the files of this rank; an error is kept, and sent to the others with the next record."""
        try:
            return step()
        except TransferError as error:
            self._error = str(error)
            return None

    def _told(self, comm: Ranks, *, existing: bool = False) -> list[Standing]:
        """Exchange `Standing` records with all ranks, and return them.

        Raises:
            TransferError: nothing was sent yet, and a rank has an error (with `keep_going`: all ranks but the root).
        """
        records = exchanged(comm, Standing(existing, zstd() is not None, brief(self._error), self._begun))
        wrong = [(comm.members[i], brief(each.error)) for i, each in enumerate(records) if each.error]
        if any(each.begun for each in records):  # a rank was lost; ranks that had errors before are left out
            return records
        if wrong and (not self._options.keep_going or len(wrong) == len(records) - 1):
            raise TransferError("\n".join(f"rank {member}: {error}" for member, error in wrong))
        return records

    def _digests_of_all(self) -> Digests:
        """Hash all chunks of the root, a segment at a time."""
        assert self._source is not None
        found: list[bytes] = []
        everything = segments(range(self._source.layout.chunks))
        for pieces in everything:
            with Reader(self._source, pieces, self._buffers) as reader:
                for _ in pieces:
                    filled = reader.take(wait=True)
                    assert filled is not None
                    self._buffers.give_back(filled.buffer)
            if reader.error:
                raise TransferError(reader.error)
            found += reader.digests.values()
        return Digests(b"".join(found))
