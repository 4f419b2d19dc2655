"""Copy the files of a remote source to all ranks: each host reads a part of them, and writes all.

The first rank lists the files. Their contents follow each other in one stream, so that many small files take no longer
than a large one. The stream is read in windows (`read_once.py`); while one is read, another thread writes the one
before into part files (`destination.py`). A file that is there already, of the right size, is not read again.
"""

from __future__ import annotations

import os
import posixpath
import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from datetime import datetime
from glob import has_magic
from hashlib import sha256
from typing import Any

import numpy as np

from ringcast._util.dataclass import dataclass
from ringcast.errors import PeerFailed, SourceChanged, SourceError, TransferError
from ringcast.ops import Array
from ringcast.transfer import read_once
from ringcast.transfer.destination import Destination
from ringcast.transfer.layout import CHUNK, Layout, Piece
from ringcast.transfer.manifest import DIRECTORY, FILE, Entry, Manifest
from ringcast.transfer.options import NONE, Options
from ringcast.transfer.origin import name_of
from ringcast.transfer.records import announced, brief, exchanged
from ringcast.transfer.report import Progress
from ringcast.transfer.shares import Requests
from ringcast.transfer.sources.base import Changed, Source, Trouble, in_a_line
from ringcast.transfer.sources.opening import name_for_people, needs_fsspec, open_source
from ringcast.transfer.sources.packed import Packed, Window
from ringcast.transfer.sources.remote import RemoteSource, url_to_fs

WINDOW = 32  # chunks that are read together; two such windows are the memory of a host
_MAGIC = re.compile(r"[*?[]")  # of a pattern
_CHANGES = ("mtime", "LastModified", "last_modified", "updated", "created")  # of fsspec's stores, for times of change
_FILE_MODE, _FOLDER_MODE = 0o644, 0o755  # a store has none


@dataclass(frozen=True, slots=True)
class Listed:
    """The files of a source: a manifest, the version of a single file, and the error, if there is one.

    It names no URL: each host opens the files below its own source, so that no other host chooses them.
    """

    manifest: bytes
    version: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class _Place:
    """Whether a rank can write the files, and which chunks it lacks."""

    error: str
    lacks: bytes  # a bit for each chunk


@dataclass(slots=True)
class Downloaded:
    """The outcome on this rank: number of files and bytes, bytes that were written, and the error, if any."""

    files: int = 0
    nbytes: int = 0
    written: int = 0
    seconds: float = 0.0
    error: str = ""


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
        watch: called after each window.

    Raises:
        TransferError: the source cannot be read.
    """
    began, outcome = time.monotonic(), Downloaded()
    listed, comm = read_once.among(
        comm, lambda comm: announced(comm, 0, Listed, lambda: _listed(source, options.recursive))
    )
    if listed.error:
        raise SourceError(brief(name_for_people(source)), brief(listed.error))
    manifest = Manifest.decode(listed.manifest)
    outcome.files = sum(entry.kind == FILE for entry in manifest.entries)
    outcome.nbytes = manifest.nbytes
    mine = _Mine(manifest, target, options)
    rate = None if options.rate is None else options.rate / len(comm.members)
    packed, requests = _packed(manifest, source, listed.version, rate), Requests(connections)
    with closing(packed), closing(mine):
        mine.prepare()
        missing, comm = read_once.among(comm, lambda comm: _lacking(comm, mine, keep_going=options.keep_going))
        for window in mine.windows(missing):
            comm = mine.take(comm, packed, window, source, requests)
            _check(comm, packed, (window.first + window.count) * CHUNK, source)
            mine.write(window)
            if watch is not None:
                watch(Progress(min((window.first + window.count) * CHUNK, manifest.nbytes), manifest.nbytes))
        mine.finish()
    outcome.written, outcome.error = mine.written, brief(mine.error)
    outcome.seconds = time.monotonic() - began
    return outcome


def _check(comm: Any, packed: Packed, stop: int, source: str) -> None:
    """Check the files that are over at this byte of the stream.

    Raises:
        SourceChanged: one of them has changed, as any rank sees it; all ranks raise it.
    """
    why = "it has changed meanwhile, as another host sees it"
    try:
        packed.done(stop)
        same = 1
    except Changed as trouble:
        same, why = 0, trouble.reason
    try:
        same = comm.agree(same)
    except PeerFailed as error:  # the next read goes on without that rank
        same = error.flag or 0
    if not same:
        raise SourceChanged(brief(name_for_people(source)), brief(why))


def _lacking(comm: Any, mine: _Mine, *, keep_going: bool) -> list[int]:
    """Return the chunks that any rank lacks; ranks that cannot write lack none.

    Raises:
        TransferError: a rank cannot write; with `keep_going`, no rank can.
    """
    records = exchanged(comm, mine.place())
    wrong = [(member, each.error) for member, each in zip(comm.members, records, strict=True) if each.error]
    if wrong and (not keep_going or len(wrong) == len(records)):
        raise TransferError("\n".join(f"rank {member}: {brief(error)}" for member, error in wrong))
    everywhere = np.zeros(-(-mine.layout.chunks // 8), np.uint8)
    for each in records:
        if len(each.lacks) == len(everywhere):
            everywhere |= np.frombuffer(each.lacks, np.uint8)
    return [int(chunk) for chunk in np.flatnonzero(np.unpackbits(everywhere)[: mine.layout.chunks])]


class _Mine:
    """The files on this host, and the thread that writes them."""

    def __init__(self, manifest: Manifest, target: str, options: Options) -> None:
        self.layout, self.error, self.written = Layout(manifest), "", 0
        self._version = sha256(manifest.encode()).hexdigest()
        self._destination = Destination(manifest, target, options.preserve, options.sparse)
        self._verify = options.verify
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
        lacks = np.zeros(self.layout.chunks, np.uint8)
        if not self.error:
            lacks[:] = 1
            lacks[list(self._destination.have)] = 0
        return _Place(brief(self.error), np.packbits(lacks).tobytes())

    def _prepare(self) -> None:
        if self._destination.prepare() and self._verify != NONE:
            self._destination.trust()
        self._destination.reserve()

    def windows(self, missing: Sequence[int]) -> Iterator[Piece]:
        """Yield runs of chunks that are read together."""
        at = 0
        while at < len(missing):
            first = missing[at]
            while at < len(missing) and missing[at] < first + WINDOW:
                last, at = missing[at], at + 1
            yield Piece(first, last + 1 - first)

    def take(self, comm: Any, packed: Packed, window: Piece, source: str, requests: Requests) -> Any:
        """Read a window together with all ranks, while the one before is written; return the ranks that are left."""
        if len(self._under_way) == 2:
            self._under_way.pop(0).result()
        self._room, self._turn = self._buffers[self._turn][: self.layout.length(window)], 1 - self._turn
        room, start = self._room, window.first * CHUNK
        view = Window(packed, start, start + len(room), f"{self._version} {window.first}")
        name = name_for_people(source)
        return read_once.read_among(comm, name, requests, lambda *_: (room, room.data, False), view)[1]

    def write(self, window: Piece) -> None:
        """Have the window that was taken last written, unless there was an error."""
        self._under_way.append(self._thread.submit(self._write, window, self._room))

    def _write(self, window: Piece, data: Array) -> None:
        def write() -> None:
            new = [chunk for chunk in window.chunks if chunk not in self._destination.have]
            self._destination.write(window, data.data)
            self._destination.settle(new)
            self.written += sum(self.layout.length(Piece(chunk, 1)) for chunk in new)

        if not self.error:
            self._attempt(write)

    def finish(self) -> None:
        """Wait for the writer, and give the files their names and attributes."""
        for each in self._under_way:
            each.result()
        if not self.error:
            self._attempt(self._destination.finish)

    def _attempt(self, step: Callable[[], object]) -> None:
        try:
            step()
        except TransferError as error:
            self.error = str(error)

    def close(self) -> None:
        self._thread.shutdown()
        self._destination.close()


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
            held.append((files, _base(files, path, source)))
        return RemoteSource(held[0][0], posixpath.join(held[0][1], names[number]))

    return Packed([entry.size for entry in files], names, opened, rate)


def _of_version(source: Source, version: str) -> Source:
    if source.version != version:
        source.close()
        raise Changed("its ETag or time of change is another one than in the list")
    return source


# The list of files.


def _listed(source: str, recursive: bool) -> Listed:
    """Return the files of a source."""
    try:
        if not needs_fsspec(source):
            found, version = _single(source)
        else:
            found, version = [*_of_store(source, recursive)], ""
        entries = sorted([*_folders(entry.path for entry in found), *found], key=lambda entry: entry.path)
        manifest = Manifest(entries, (os.geteuid(), os.getegid()))
        manifest.check()
    except Trouble as trouble:
        return Listed(b"", error=brief(trouble.reason))
    except TransferError as error:
        return Listed(b"", error=brief(str(error)))
    except Exception as error:  # packages for stores have errors of their own
        return Listed(b"", error=in_a_line(error))
    return Listed(manifest.encode(), version)


def _single(url: str) -> tuple[list[Entry], str]:
    with closing(open_source(url)) as opened:
        return [Entry(os.fsencode(name_of(url)), FILE, _FILE_MODE, time.time_ns(), opened.size)], opened.version


def _of_store(url: str, recursive: bool) -> Iterator[Entry]:
    """Yield the files of a store: a file, all files in a directory, or all files that match a pattern."""
    files, path = url_to_fs(url)
    if has_magic(path):
        found = files.glob(path, detail=True)
    elif files.isdir(path):
        if not recursive:
            raise TransferError("a directory; -r copies it with all that is in it")
        found = files.find(path, detail=True)
    else:
        found = {path: files.info(path)}
    base = _base(files, path, url)
    for name, info in found.items():
        if info.get("type") != "directory":
            inside = name[len(base) :].lstrip("/")
            yield Entry(os.fsencode(inside), FILE, _FILE_MODE, _changed(info), int(info["size"]))
    if not found:
        raise TransferError("there is no such file")


def _base(files: Any, path: str, url: str) -> str:
    """Return the directory of a store below which files keep their names."""
    magic = _MAGIC.search(path)
    if magic is not None:
        return posixpath.dirname(path[: magic.start()])
    return path.rstrip("/") if url.endswith("/") and files.isdir(path) else posixpath.dirname(path.rstrip("/"))


def _changed(info: dict[str, Any]) -> int:
    """Return the time of change of a file of a store, in ns; now, where the store does not say."""
    for name in _CHANGES:
        value = info.get(name)
        if isinstance(value, datetime):
            return int(value.timestamp() * 10**9)
        if isinstance(value, int | float):
            return int(value * 10**9)
    return time.time_ns()


def _folders(paths: Iterator[bytes]) -> Iterator[Entry]:
    """Yield the directories in which files are."""
    seen: set[bytes] = set()
    for path in paths:
        parts = path.split(b"/")[:-1]
        for depth in range(1, len(parts) + 1):
            if (folder := b"/".join(parts[:depth])) not in seen:
                seen.add(folder)
                yield Entry(folder, DIRECTORY, _FOLDER_MODE, time.time_ns())
