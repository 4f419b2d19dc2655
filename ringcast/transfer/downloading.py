"""Copy the files of a remote source to all ranks: each host reads a part of them, and writes all.

The first rank lists the files. Their contents follow each other in one stream, so that many small files take no longer
than a large one. The stream is read in windows (`read_once.py`); while one is read, another thread writes the one
before into part files (`destination.py`). A file that is there already, with the right size, is not read again. Parts
that an earlier copy has left are not read again either (`arrived.py`): hosts that lack them get them from a host that
has them, and so it is with whole files whose time of change is right.
"""

from __future__ import annotations

import os
import posixpath
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from hashlib import sha256
from typing import Any

import numpy as np

from ringcast._util.dataclass import dataclass
from ringcast.errors import PeerFailed, SourceChanged, SourceError, TransferError
from ringcast.ops import Array
from ringcast.transfer import digests, read_once
from ringcast.transfer.arrived import Arrived, forget
from ringcast.transfer.destination import Destination
from ringcast.transfer.layout import CHUNK, Layout, Piece
from ringcast.transfer.manifest import FILE, Manifest
from ringcast.transfer.options import NONE, Options
from ringcast.transfer.ranges import Range, Ranges
from ringcast.transfer.records import announced, brief, exchanged
from ringcast.transfer.remote_listing import Listed, folder_of, listed, place_of
from ringcast.transfer.report import Moved, Progress
from ringcast.transfer.rounds import Traffic
from ringcast.transfer.shares import Requests
from ringcast.transfer.sources.base import Changed, Source
from ringcast.transfer.sources.opening import name_for_people, needs_fsspec, open_source
from ringcast.transfer.sources.packed import Packed, Window
from ringcast.transfer.sources.remote import RemoteSource, url_to_fs
from ringcast.transfer.unchanged import Unchanged

WINDOW = 32  # chunks that are read together, at most; two such windows are the memory of a host
_SHORTEST, _FIRST = 4, 8  # chunks of other windows: what a copy that breaks off loses of a slow source
_QUICK = 1.0  # seconds for a window, below which the next one is longer


@dataclass(frozen=True, slots=True)
class _Place:
    """Whether a rank can write the files, and which chunks it lacks."""

    error: str
    lacks: bytes  # as of `_bits`


@dataclass(frozen=True, slots=True)
class _Kept:
    """The chunks that a rank has as they are in the source."""

    chunks: bytes  # as of `_bits`


@dataclass(slots=True)
class Downloaded:
    """The outcome on this rank: number of files and bytes, bytes that were written and moved, and the error, if any."""

    files: int = 0
    nbytes: int = 0
    written: int = 0
    seconds: float = 0.0
    error: str = ""
    source: Moved = Moved()
    network: Moved = Moved()


def download_files(
    comm: Any,
    source: str,
    target: str,
    options: Options,
    connections: int,
    watch: Callable[[Progress], object] | None = None,
) -> Downloaded:
    """Copy the files of a source to a directory of every rank; return the outcome on this one.

    Args:
        comm: one rank of each host.
        source: URL of a file; or, by fsspec, of a directory or a pattern.
        target: as of `copy_files`.
        options: `recursive`, `preserve`, `sparse`; `rate`: most bytes that all hosts read in a second; `verify`: with
            "none" files that are there are read again.
        connections: of each host.
        watch: called whenever bytes have come.

    Raises:
        TransferError: the source cannot be read.
    """
    began, outcome = time.monotonic(), Downloaded()
    found, comm = read_once.among(
        comm, lambda comm: announced(comm, 0, Listed, lambda: listed(source, options.recursive))
    )
    if found.error:
        raise SourceError(brief(name_for_people(source)), brief(found.error))
    manifest = Manifest.decode(found.manifest)
    outcome.files = sum(entry.kind == FILE for entry in manifest.entries)
    outcome.nbytes = manifest.nbytes
    mine = _Mine(manifest, target, options, place_of(source), found.identity)
    rate = None if options.rate is None else options.rate / len(comm.members)
    packed, requests = _packed(manifest, source, found.version, rate), Requests(connections)
    unchanged = Unchanged(source, options.recursive, found.identity, packed)
    with closing(packed), closing(mine):
        mine.prepare()
        missing, comm = read_once.among(comm, lambda comm: _lacking(comm, mine, keep_going=options.keep_going))
        kept, comm = read_once.among(comm, lambda comm: _kept(comm, mine))
        mine.expect(missing, kept, watch)
        if begun := packed.begun(mine.there(0)):
            comm = unchanged.confirm(comm, begun)
        for window in mine.windows():
            start, stop, before = time.monotonic(), (window.first + window.count) * CHUNK, comm
            comm = mine.take(comm, packed, window, source, requests)
            quick = time.monotonic() - start < _QUICK
            quick, all_left = _check(comm, packed, stop, source, quick)
            mine.resize(quick)
            if comm is not before or not all_left:  # the only one that knew the version may be lost
                comm = unchanged.confirm(comm, packed.begun(mine.there(stop)))
            mine.write(window)
        mine.finish()
    outcome.written, outcome.error = mine.written, brief(mine.error)
    outcome.source, outcome.network = mine.moved
    outcome.seconds = time.monotonic() - began
    return outcome


def _check(comm: Any, packed: Packed, stop: int, source: str, quick: bool) -> tuple[bool, bool]:
    """Check the files that are over at this byte of the stream.

    Returns:
        Whether the window was quick on all ranks, and whether all are left.

    Raises:
        SourceChanged: one of them has changed, as any rank sees it; all ranks raise it.
    """
    why = "it has changed meanwhile, as another host sees it"
    try:
        packed.done(stop)
        same = 1
    except Changed as trouble:
        same, why = 0, trouble.reason
    all_left = True
    try:
        flags = comm.agree(same | quick << 1)
    except PeerFailed as error:  # what follows goes on without that rank
        flags, all_left = error.flag or 0, False
    if not flags & 1:
        raise SourceChanged(brief(name_for_people(source)), brief(why))
    return bool(flags & 2), all_left


def _lacking(comm: Any, mine: _Mine, *, keep_going: bool) -> list[int]:
    """Return the chunks that any rank lacks; ranks that cannot write lack none.

    Raises:
        TransferError: a rank cannot write; with `keep_going`, no rank can.
    """
    records = exchanged(comm, mine.place())
    wrong = [(member, each.error) for member, each in zip(comm.members, records, strict=True) if each.error]
    if wrong and (not keep_going or len(wrong) == len(records)):
        raise TransferError("\n".join(f"rank {member}: {brief(error)}" for member, error in wrong))
    return _of_any((each.lacks for each in records), mine.layout.chunks)


def _kept(comm: Any, mine: _Mine) -> list[int]:
    """Return the chunks that any rank has as they are in the source."""
    return _of_any((each.chunks for each in exchanged(comm, mine.kept())), mine.layout.chunks)


def _bits(chunks: Iterable[int], count: int) -> bytes:
    """Return a bit for each of so many chunks: 1 for these."""
    bits = np.zeros(count, np.uint8)
    bits[list(chunks)] = 1
    return np.packbits(bits).tobytes()


def _of_any(records: Iterable[bytes], count: int) -> list[int]:
    """Return the chunks that are in any of the records, as of `_bits`."""
    found = np.zeros(-(-count // 8), np.uint8)
    for each in records:
        if len(each) == len(found):
            found |= np.frombuffer(each, np.uint8)
    return [int(chunk) for chunk in np.flatnonzero(np.unpackbits(found)[:count])]


class _Mine:
    """The files on this host, and the thread that writes them."""

    def __init__(self, manifest: Manifest, target: str, options: Options, source: str, identity: bytes) -> None:
        self.layout, self.error, self.written = Layout(manifest), "", 0
        self._source, self._identity = source, identity
        self._arrived: Arrived | None = None
        self._sure: set[int] = set()  # chunks that are here and as in the source: other hosts may get them from here
        self._missing: Sequence[int] = ()  # on any rank
        self._lacking: set[int] = set()  # the same ones
        self._kept = Ranges()  # bytes that any rank has as they are in the source
        self._done = self._total = 0  # bytes of them: of the windows that are over, and of all
        self._watch: Callable[[Progress], object] | None = None
        self._length = min(_FIRST, WINDOW)  # of the next window
        self._traffic = Traffic()
        self._version = sha256(manifest.encode()).hexdigest()
        self._destination = Destination(manifest, target, options.preserve, options.sparse)
        self._verify, self._preserve = options.verify, options.preserve
        self._buffers = [np.empty(min(WINDOW * CHUNK, self.layout.nbytes), np.uint8) for _ in range(2)]
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ringcast-writer")
        self._under_way: list[Future[None]] = []
        self._turn = 0  # number of the next buffer
        self._room = self._buffers[0]  # with the last window

    def prepare(self) -> None:
        """Make the directories, look for files that are there, and reserve room for the others."""
        self._attempt(self._prepare)

    def place(self) -> _Place:
        """Return the chunks that this rank lacks."""
        lacks = () if self.error else {*range(self.layout.chunks)} - self._destination.have
        return _Place(brief(self.error), _bits(lacks, self.layout.chunks))

    def kept(self) -> _Kept:
        """Return the chunks that others may get from here."""
        return _Kept(_bits(self._sure, self.layout.chunks))

    def _prepare(self) -> None:
        if self._destination.prepare() and self._verify != NONE:
            self._destination.trust()
            if self._preserve:  # by the size alone it may be another version
                self._sure |= self._destination.have
        self._go_on()
        self._destination.reserve()

    def _go_on(self) -> None:
        """Find the chunks that an earlier copy of the same source has left."""
        have = self._destination.have
        if not self._identity or len(have) == self.layout.chunks:
            return
        try:
            self._arrived = Arrived(self._destination.root(), self._source, self._identity)
        except OSError:  # without it everything is read again
            return
        if self._verify != NONE:
            before = {*have}
            known = self._arrived.known.items()
            self._destination.verify({n: each for n, each in known if n < self.layout.chunks and n not in before})
            self._sure |= have - before

    def expect(self, missing: Sequence[int], kept: Sequence[int], watch: Callable[[Progress], object] | None) -> None:
        """Take the chunks that are to be read, those that any rank has kept, and a function that gets the progress."""
        self._missing, self._lacking, self._watch = missing, {*missing}, watch
        self._kept = Ranges((chunk * CHUNK, (chunk + 1) * CHUNK) for chunk in kept)
        self._total = sum(self.layout.length(Piece(chunk, 1)) for chunk in missing)

    def there(self, stop: int) -> Ranges:
        """Return the bytes of the stream that were read before, after the windows that end at this byte."""
        there = Ranges(self._kept)
        there.add((0, stop))
        return there

    def windows(self) -> Iterator[Piece]:
        """Yield runs of chunks that are read together."""
        at, missing = 0, self._missing
        while at < len(missing):
            first, length = missing[at], self._length
            while at < len(missing) and missing[at] < first + length:
                last, at = missing[at], at + 1
            yield Piece(first, last + 1 - first)

    def resize(self, quick: bool) -> None:
        """Make the next window longer after a quick one, else shorter."""
        self._length = min(WINDOW, 2 * self._length) if quick else min(WINDOW, max(_SHORTEST, self._length // 2))

    @property
    def moved(self) -> tuple[Moved, Moved]:
        """The bytes that came here from the source, and from other hosts."""
        source, network = self._traffic.source, self._traffic.network
        return Moved(source.nbytes, source.seconds), Moved(network.nbytes, network.seconds)

    def take(self, comm: Any, packed: Packed, window: Piece, source: str, requests: Requests) -> Any:
        """Read a window together with all ranks, while the one before is written; return the ranks that are left."""
        if len(self._under_way) == 2:
            self._under_way.pop(0).result()
        self._room, self._turn = self._buffers[self._turn][: self.layout.length(window)], 1 - self._turn
        room, start = self._room, window.first * CHUNK
        view = Window(packed, start, start + len(room), f"{self._version} {window.first}")
        there = self._there(window, room)
        self._traffic.watch = self._watcher(window)
        name = name_for_people(source)
        made = room, room.data, False
        return read_once.read_among(comm, name, requests, lambda *_: made, view, there, self._traffic)[1]

    def _there(self, window: Piece, room: Array) -> list[Range]:
        """Return the bytes of a window that are no more to be read: those that no rank lacks, and those that are sure.

        The latter are put into the room, as others may lack them.
        """
        found = [chunk for chunk in window.chunks if chunk not in self._lacking]
        if sure := [chunk for chunk in window.chunks if chunk in self._sure and chunk in self._lacking]:
            found += self._thread.submit(self._load, window, sure, room).result()  # it has the files
        places = [((chunk - window.first) * CHUNK, self.layout.length(Piece(chunk, 1))) for chunk in found]
        return [(start, start + length) for start, length in places]

    def _load(self, window: Piece, chunks: Sequence[int], room: Array) -> list[int]:
        """Read chunks from the files that are here; return the chunks that were read."""
        found: list[int] = []
        for chunk in chunks:
            piece, at = Piece(chunk, 1), (chunk - window.first) * CHUNK
            if self._destination.read(piece, room[at : at + self.layout.length(piece)].data):
                found.append(chunk)
        self._destination.leave()
        return found

    def _watcher(self, window: Piece) -> Callable[[int], object]:
        """Return the function that is called with the bytes of a window that are here."""
        lacking = sum(self.layout.length(Piece(chunk, 1)) for chunk in window.chunks if chunk in self._lacking)
        before = self._done + lacking - self.layout.length(window)
        self._done += lacking

        def watch(arrived: int) -> None:
            if self._watch is not None:
                network = self._traffic.network
                rate = int(network.nbytes / network.seconds) if network.nbytes and network.seconds else 0
                self._watch(Progress(before + arrived, self._total, network=rate))

        return watch

    def write(self, window: Piece) -> None:
        """Have the window that was taken last written, unless there was an error."""
        self._under_way.append(self._thread.submit(self._write, window, self._room))

    def _write(self, window: Piece, data: Array) -> None:
        def write() -> None:
            new = [chunk for chunk in window.chunks if chunk not in self._destination.have]
            self._destination.write(window, data.data)
            self._remember(window, new, data)
            self._destination.settle(new)
            self.written += sum(self.layout.length(Piece(chunk, 1)) for chunk in new)

        if not self.error:
            self._attempt(write)

    def _remember(self, window: Piece, chunks: Sequence[int], data: Array) -> None:
        if self._arrived is None:
            return
        parts = {chunk: data[(chunk - window.first) * CHUNK :][:CHUNK].data for chunk in chunks}
        self._arrived.add({chunk: digests.of_chunks(part)[0] for chunk, part in parts.items()})

    def finish(self) -> None:
        """Wait for the writer, and give the files their names and attributes."""
        for each in self._under_way:
            each.result()
        if not self.error:
            self._attempt(self._finish)

    def _finish(self) -> None:
        self._destination.finish()
        with suppress(OSError):
            forget(self._destination.root(), self._source)

    def _attempt(self, step: Callable[[], object]) -> None:
        try:
            step()
        except TransferError as error:
            self.error = str(error)

    def close(self) -> None:
        self._thread.shutdown()
        self._destination.close()
        if self._arrived is not None:
            self._arrived.close()


def _packed(manifest: Manifest, source: str, version: str, rate: float | None) -> Packed:
    """Return the files of a manifest below this host's own source."""
    files = [entry for entry in manifest.entries if entry.size]
    names = [os.fsdecode(entry.path) for entry in files]
    if not needs_fsspec(source):
        return Packed([entry.size for entry in files], names, lambda _: _of_version(open_source(source), version), rate)
    held: list[tuple[Any, str]] = []  # the file system and the directory in it, once they are known

    def opened(number: int) -> Source:
        if not held:
            files, path = url_to_fs(source)
            held.append((files, folder_of(files, path, source)))
        return RemoteSource(held[0][0], posixpath.join(held[0][1], names[number]))

    return Packed([entry.size for entry in files], names, opened, rate)


def _of_version(source: Source, version: str) -> Source:
    if source.version != version:
        source.close()
        raise Changed("its ETag or time of change is another one than in the list")
    return source
