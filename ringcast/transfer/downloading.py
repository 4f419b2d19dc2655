"""Copy the files of a remote source to all ranks: each host reads a part of them, and writes all.

The first rank lists the files. Their contents follow each other in one stream, so that many small files take no longer
than a large one. The stream is read in windows (`read_once.py`); while one is read, another thread writes the one
before into part files (`destination.py`). A file that is there already, of the right size, is not read again.
"""

from __future__ import annotations

import os
import posixpath
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from datetime import datetime
from glob import has_magic
from hashlib import sha256
from importlib import import_module
from typing import Any

import numpy as np

from ringcast._util.dataclass import dataclass
from ringcast.errors import PeerFailed, Revoked, SourceError, TransferError
from ringcast.ops import Array
from ringcast.transfer import read_once
from ringcast.transfer.destination import Destination
from ringcast.transfer.layout import CHUNK, Layout, Piece
from ringcast.transfer.manifest import DIRECTORY, FILE, Entry, Manifest
from ringcast.transfer.options import NONE, Options
from ringcast.transfer.origin import name_of
from ringcast.transfer.records import announced, brief, exchanged
from ringcast.transfer.report import Progress
from ringcast.transfer.sources.base import Trouble, in_a_line
from ringcast.transfer.sources.opening import name_for_people, open_source
from ringcast.transfer.sources.packed import Packed, Window

WINDOW = 32  # chunks that are read together; two such windows are the memory of a host
_OWN = ("http", "https", "file")
_CHANGES = ("mtime", "LastModified", "last_modified", "updated", "created")  # of fsspec's stores, for times of change
_MODE = 0o666


@dataclass(frozen=True, slots=True)
class Listed:
    """The files of a source: a manifest, and the URL of each entry, one in a line; or the error."""

    manifest: bytes
    urls: str
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
) -> tuple[Downloaded, Any]:
    """Copy the files of a source to a directory of every rank; return the outcome, and the ranks that are left.

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
    listed = announced(comm, 0, Listed, lambda: _listed(source, options.recursive))
    if listed.error:
        raise SourceError(brief(name_for_people(source)), brief(listed.error))
    manifest = Manifest.decode(listed.manifest)
    outcome.files = sum(entry.kind == FILE for entry in manifest.entries)
    outcome.nbytes = manifest.nbytes
    mine = _Mine(manifest, target, options)
    rate = None if options.rate is None else options.rate / len(comm.members)
    packed = _packed(manifest, listed.urls.split("\n"), rate)
    with closing(packed), closing(mine):
        for window in mine.windows(_lacking(comm, mine)):
            mine.take(comm, packed, window, source, connections)
            comm = _left(comm)
            packed.done((window.first + window.count) * CHUNK)
            if watch is not None:
                watch(Progress(min((window.first + window.count) * CHUNK, manifest.nbytes), manifest.nbytes))
        mine.finish()
    outcome.written, outcome.error = mine.written, brief(mine.error)
    outcome.seconds = time.monotonic() - began
    return outcome, comm


def _left(comm: Any) -> Any:
    """Return the ranks that are left: a read goes on without a lost one, and gives the communicator up."""
    try:
        comm.barrier()
    except (PeerFailed, Revoked):
        return comm.shrink()
    return comm


def _lacking(comm: Any, mine: _Mine) -> list[int]:
    """Return the chunks that any rank lacks; ranks that cannot write lack none.

    Raises:
        TransferError: no rank can write.
    """
    records = exchanged(comm, mine.place())
    wrong = [(member, each.error) for member, each in zip(comm.members, records, strict=True) if each.error]
    if len(wrong) == len(records):
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

    def place(self) -> _Place:
        """Make the directories, look for files that are there, and reserve room for the others."""
        self._attempt(self._prepare)
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

    def take(self, comm: Any, packed: Packed, window: Piece, source: str, connections: int) -> None:
        """Read a window together with all ranks, while the one before is written."""
        if len(self._under_way) == 2:
            self._under_way.pop(0).result()
        room, self._turn = self._buffers[self._turn][: self.layout.length(window)], 1 - self._turn
        start = window.first * CHUNK
        view = Window(packed, start, start + len(room), f"{self._version} {window.first}")
        name = name_for_people(source)
        read_once.read_file(comm, name, connections, lambda *_: (room, room.data, False), view)
        self._under_way.append(self._thread.submit(self._write, window, room))

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


def _packed(manifest: Manifest, urls: Sequence[str], rate: float | None) -> Packed:
    files = [(entry, url) for entry, url in zip(manifest.entries, urls, strict=True) if entry.size]
    names = [entry.path.decode(errors="replace") for entry, _ in files]
    return Packed([entry.size for entry, _ in files], names, lambda number: open_source(files[number][1]), rate)


# The list of files.


def _listed(source: str, recursive: bool) -> Listed:
    """Return the files of a source."""
    try:
        scheme = source.partition("://")[0].lower()
        found = [_single(source)] if scheme in _OWN else [*_of_store(source, recursive)]
        entries = sorted([*_folders(entry.path for entry, _ in found), *found], key=lambda each: each[0].path)
        manifest = Manifest([entry for entry, _ in entries], (os.geteuid(), os.getegid()))
        manifest.check()
    except Trouble as trouble:
        return Listed(b"", "", brief(trouble.reason))
    except TransferError as error:
        return Listed(b"", "", brief(str(error)))
    except Exception as error:  # packages for stores have errors of their own
        return Listed(b"", "", in_a_line(error))
    return Listed(manifest.encode(), "\n".join(url for _, url in entries))


def _single(url: str) -> tuple[Entry, str]:
    with closing(open_source(url)) as opened:
        return Entry(os.fsencode(name_of(url)), FILE, _MODE, time.time_ns(), opened.size), url


def _of_store(url: str, recursive: bool) -> Iterator[tuple[Entry, str]]:
    """Yield the files of a store: one, those of a directory, or those that match a pattern."""
    files, path = import_module("fsspec.core").url_to_fs(url)
    if has_magic(path):
        found = files.glob(path, detail=True)
        base = posixpath.dirname(path.partition("*")[0].rstrip("/"))
    elif files.isdir(path):
        if not recursive:
            raise TransferError("a directory; -r copies it with all that is in it")
        found = files.find(path, detail=True)
        base = path.rstrip("/") if url.endswith("/") else posixpath.dirname(path.rstrip("/"))
    else:
        found, base = {path: files.info(path)}, posixpath.dirname(path)
    for name, info in found.items():
        if info.get("type") != "directory":
            inside = name[len(base) :].lstrip("/")
            entry = Entry(os.fsencode(inside), FILE, _MODE, _changed(info), int(info["size"]))
            yield entry, files.unstrip_protocol(name)
    if not found:
        raise TransferError("there is no such file")


def _changed(info: dict[str, Any]) -> int:
    """Return the time of change of a file of a store, in ns; now, where the store does not say."""
    for name in _CHANGES:
        value = info.get(name)
        if isinstance(value, datetime):
            return int(value.timestamp() * 10**9)
        if isinstance(value, int | float):
            return int(value * 10**9)
    return time.time_ns()


def _folders(paths: Iterator[bytes]) -> Iterator[tuple[Entry, str]]:
    """Yield the directories in which files are."""
    seen: set[bytes] = set()
    for path in paths:
        parts = path.split(b"/")[:-1]
        for depth in range(1, len(parts) + 1):
            if (folder := b"/".join(parts[:depth])) not in seen:
                seen.add(folder)
                yield Entry(folder, DIRECTORY, 0o777, time.time_ns()), ""
