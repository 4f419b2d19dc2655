"""Files and mapped memory: one rank's bytes on all ranks."""

from __future__ import annotations

import operator
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import DTypeLike

from ringcast import collectives
from ringcast._util.safe_text import safe_text
from ringcast.collectives.broadcast import bcast_into
from ringcast.collectives.stage import check_root
from ringcast.engine.datatypes import bytes_of, room
from ringcast.errors import ArgumentError, SharedMemoryError
from ringcast.ops import Array
from ringcast.requests.calls import Calls
from ringcast.requests.inside import Inside
from ringcast.wire.call import NOWHERE

if TYPE_CHECKING:
    from pathlib import Path
    from types import FrameType

    from ringcast.transfer.report import CopyReport, Progress
    from ringcast.transfer.rows import Items


class Files(Calls):
    """Copies of files, which this room only passes on (see `ringcast.transfer`), and of memory such as mapped files."""

    def bcast_into(self, buffer: Any, root: int = 0, *, timeout: float | None = None) -> None:
        """Copy the root's bytes into the memory of all other ranks, in place: a mapped file, an array, a bytearray.

        All ranks know the number of bytes, so no announcement is sent, and types do not matter.

        Cost: n-1+q rounds, in which every rank receives m bytes (Träff 2022, Algorithm 6). Memory: at most 4 MB beside
        a buffer of any size.

        Args:
            buffer: a C-contiguous exporter of the buffer protocol (bytearray, memoryview, mmap, array of numpy,
                np.memmap), without Python objects, of the same number of bytes on all ranks. The root only reads it;
                other ranks' must be writeable.

        Raises:
            ArgumentError: the buffer is none of these.
            CollectiveMismatch: ranks pass different numbers of bytes.

        >>> weights = bytearray(b"1234")
        >>> comm.bcast_into(weights)
        """
        line = bytes_of(self._group.endpoint.rank, "bcast_into", buffer, writes=self._group.rank != root)
        return self._call(bcast_into(self._group, line, root), timeout)

    def bcast_file(
        self,
        source: str | PathLike[str] | Sequence[str | PathLike[str]],
        target: str | PathLike[str],
        root: int = 0,
        *,
        recursive: bool = False,
        preserve: bool = False,
        verify: Literal["full", "size", "none"] = "full",
        keep_going: bool = False,
        rate: float | None = None,
        compress: Literal["auto", "zstd", "none"] = "auto",
        sparse: bool = False,
        slow: float | None = None,
        progress: Callable[[Progress], object] | None = None,
    ) -> CopyReport:
        """Copy files of the root to all other ranks, in segments of 256 MB, each hashed at both ends.

        Data that are there already are compared and not sent again, so that an interrupted copy goes on. When another
        rank than the root is lost, the others get everything (the launcher's `--on-failure continue` lets them go on),
        and this communicator is given up: call `shrink`.

        Cost: per segment that is missing anywhere a broadcast of its bytes, in pieces of 4 MB, three of them under
        way. Memory: 32 MB, and some 10 MB where pieces are compressed.

        Args:
            source: path of a file, or of several, on the root; other ranks' are ignored. `NAME/` with `recursive`
                means the contents of the directory.
            target: path on each other rank: a directory if it ends with "/" or is one; for several sources it is made.
            recursive: directories are copied with all that is in them.
            preserve: keep times of changes and all permission bits.
            verify: how files are compared: "full" by SHA-256, "size" by size (and time, with `preserve`), "none":
                not at all, all is sent.
            keep_going: leave out ranks that cannot take the files, instead of sending nothing.
            rate: most bytes that the root sends in a second.
            compress: "zstd": pieces travel compressed where that makes them shorter; it needs Python 3.14, or the
                package zstandard, on every rank. "auto": if every rank has it, and while it makes the copy faster, as
                the root measures it. "none": never.
            sparse: in files that are new, blocks of 4 KiB that are zero become holes; no room is allocated for them.
            slow: seconds. A rank is left out when the others have waited so much longer for its disk than for the
                quickest one; its received data are kept. None: they wait as long as it takes.
            progress: called on the root after each piece.

        Returns:
            A CopyReport, alike on all ranks; its `ok` says whether every rank has every byte.

        Raises:
            ArgumentError: there is no such root, no such way to verify or to compress, or `slow` is not positive.
            TransferError: the root cannot read its files, or was lost; or a rank cannot take them, or lacks zstd.

        >>> comm.bcast_file("/etc/hostname", "./").ok
        True
        """
        from ringcast.transfer.copying import copy_files  # hashlib and threads: if needed
        from ringcast.transfer.options import Options, reason_not

        self._check("bcast_file")
        check_root(self._group, "bcast_file", root)
        options = Options(recursive, preserve, verify, keep_going, rate, compress, sparse, slow)
        if problem := reason_not(options):
            raise ArgumentError(self._group.endpoint.rank, "bcast_file", *problem)
        sources = [fspath(each) for each in ([source] if isinstance(source, (str, PathLike)) else source)]
        with Inside(self, "bcast_file", ", ".join(sources), sys._getframe().f_back):
            return copy_files(self, sources, fspath(target), root, options, progress)  # type: ignore[arg-type]

    def fetch(
        self, source: str | PathLike[str], target: str | PathLike[str] | None = None, *, sha256: str | None = None
    ) -> Path:
        """Return the path of a copy of a file that is read once: from rank 0's disks, or from an http(s) server.

        A file of 16 MB or more, on a server that sends parts and tells when it changed, is read by one rank of each
        host that lacks it, each another part (as by `read_file`). Any other file rank 0 reads alone.

        Rank 0 writes a copy on its host, and each other host whose ranks do not see that one gets its own. A copy of
        this user with the size and the time of change that the source has is kept, and the source is not read. A copy
        has no more permissions than the source, in the cache none for others. Files are written under
        another name, and get theirs when they are whole. Two jobs must not fetch the same file into the same directory
        of a host at the same time.

        Cost: where a copy is missing, `read_file` among one rank of each such host, or rank 0 reads and writes it, then
        `bcast_file` among these ranks; otherwise some small collectives. A call of the others lasts as long as rank 0
        reads: the communicator's timeout must be longer. Memory: 48 MB.

        Args:
            source: path of a file on rank 0, or URL (http, https, file). Another rank reads parts of the file only if
                it gives the same URL. User and password in a URL are sent to its host, and not to other ranks; neither
                these nor the query of a URL are ever printed.
            target: path of the copy: a directory if it ends with "/" or is one. None: in `ringcast` in the user's
                cache directory (XDG_CACHE_HOME, or `~/.cache`), where its name begins with a hash of the source.
            sha256: the expected SHA-256 of the file, as 64 hexadecimal digits, equal on all ranks. Copies are then
                kept if they have it, and the source is not asked.

        Returns:
            The path of the copy on this rank's host.

        Raises:
            ArgumentError: `sha256` is no such text.
            TransferError: no rank can read the source (there is none, nothing came for 60 s, or nine tenths of the
                communicator's timeout, it ended early, or its
                SHA-256 is another), or a rank cannot write the copy. Alike on all ranks.

        >>> comm.fetch("/etc/hostname", "./").name
        'hostname'
        """
        return self._fetch(source, target, sha256, sys._getframe().f_back)

    def _fetch(
        self,
        source: str | PathLike[str],
        target: str | PathLike[str] | None,
        sha256: str | None,
        user: FrameType | None,
    ) -> Path:
        """Fetch a file for the program, which is at `user`."""
        from ringcast.transfer.fetching import fetch  # urllib, hashlib and threads: if needed
        from ringcast.transfer.sources.opening import name_for_people

        self._check("fetch")
        if sha256 is not None and not re.fullmatch("[0-9a-fA-F]{64}", sha256):
            expected = f"expected 64 hexadecimal digits, got {safe_text(sha256)}"
            raise ArgumentError(self._group.endpoint.rank, "fetch", "sha256", expected)
        place, name = None if target is None else fspath(target), fspath(source)
        with Inside(self, "fetch", name_for_people(name), user):
            return fetch(self, name, place, sha256.lower() if sha256 else None)  # type: ignore[arg-type]

    def read_file(
        self,
        source: str | PathLike[str],
        *,
        out: Any = None,
        connections: int = 4,
        shared: bool = True,
        writeable: bool = False,
    ) -> Any:
        """Return the bytes of a file that the hosts read in parts: from a store, a server, or disks that they share.

        One rank of each host reads, by several connections, the next part whenever it has room, so that faster hosts
        read more; what has come is passed on to all other hosts meanwhile. Parts of a host that fails, that stalls or
        that is lost are read by others. A path that only some hosts have is read there. Answers that ask for fewer
        requests (HTTP 429) pause all hosts at once, and halve the requests. Every part is checked: its length, the
        version of the file, and a checksum of its way.

        Cost: each byte is read once, and received once by every host, at the same time. Memory: 48 MB for each host
        beside the result.

        Args:
            source: path; or URL: http, https and file, others by the package fsspec, as "s3://bucket/key". Each host
                has its own, as paths may differ; its lowest rank reads, and all its ranks give the same. Credentials
                are those of that rank's environment, or of the URL, and never travel.
            out: any writeable memory of as many bytes, for the result, on all ranks; None: a new array.
            connections: of each host, 1 to 64.
            shared: whether the ranks of a host get one new array (`shared_array`), or each its own. Equal on all ranks.
            writeable: whether this rank may write into the array that it shares; each rank has its own choice.

        Returns:
            An array of uint8; `out` if that is given. A shared one without `writeable` is read-only, as of
            `bcast_shared`.

        Raises:
            ArgumentError: `connections` or `out` cannot work.
            SharedMemoryError: there is no room for a shared array.
            TransferError: the `out` of another rank cannot work.
            SourceError: no host can read the file, as one that gives no byte within nine tenths of the communicator's
                timeout; or ranks of a host give different ones. Alike on all ranks.
            SourceChanged: it changed meanwhile, or hosts see different files; alike on all ranks.

        >>> comm.read_file("/etc/hostname").dtype
        dtype('uint8')
        """
        from ringcast.transfer.read_once import read_file  # http, ssl and threads: if needed
        from ringcast.transfer.sources.opening import name_for_people

        self._check("read_file")
        if not (isinstance(connections, int) and 1 <= connections <= 64):
            expected = f"expected 1 to 64, got {safe_text(connections)}"
            raise ArgumentError(self._group.endpoint.rank, "read_file", "connections", expected)
        make = partial(_shared_room, writeable) if out is None and shared else partial(_own_room, out)
        name = fspath(source)
        with Inside(self, "read_file", name_for_people(name), sys._getframe().f_back):
            return read_file(self, name, connections, make)  # type: ignore[arg-type]

    def read_rows(
        self,
        source: str | PathLike[str],
        counts: Sequence[int] | None = None,
        *,
        dtype: DTypeLike | None = None,
        row: int | Sequence[int] = (),
        offset: int = 0,
        columns: Sequence[str] | None = None,
    ) -> Any:
        """Return this rank's rows of a file: of a .npy or Parquet file, or of one of rows and nothing else.

        Each rank opens the file by itself, and reads the bytes of its rows only; of Parquet, the row groups that its
        rows are in. No Python objects are unpickled.

        Cost: some small collectives. Each byte of a .npy file is read once in all.

        Args:
            source: path or URL, as for `read_file`; each rank gives its own, as paths may differ.
            counts: p numbers, which add up to the rows of the file: how many each rank gets; equal on all ranks. None:
                as even as possible, the first ranks get one more.
            dtype: of the items of a file that has rows and nothing else; None: the file is .npy or Parquet.
            row: shape of a row of such a file; a number, or several; (): a row is an item.
            offset: bytes before the first row of such a file.
            columns: names of the columns to read of a Parquet file; None: all.

        Returns:
            An array of `counts[rank]` rows; of a Parquet file a `pyarrow.Table`.

        Raises:
            ArgumentError: the counts do not fit the file; or dtype, row and offset describe no such file.
            SourceError: a rank cannot read the file, as one that gives no byte within nine tenths of the communicator's
                timeout; or it is none of these. Alike on all ranks.
            SourceChanged: it changed meanwhile, or ranks see different files; alike on all ranks.

        >>> comm.read_rows("/etc/hostname", dtype="S1").dtype
        dtype('S1')
        """
        from ringcast.transfer.rows import read_rows  # http and ssl: if needed
        from ringcast.transfer.sources.opening import name_for_people

        self._check("read_rows")
        rank = self._group.endpoint.rank
        items = None if dtype is None else partial(_items, rank, *_described(rank, dtype, row, offset))
        if items is None and not (type(row) is tuple and row == () and type(offset) is int and offset == 0):
            raise ArgumentError(rank, "read_rows", "dtype", "expected one, where a row or an offset is given")
        name, given = fspath(source), _counts(rank, counts)
        with Inside(self, "read_rows", name_for_people(name), sys._getframe().f_back):
            return read_rows(self, name, given, items, columns)  # type: ignore[arg-type]


def _described(rank: int, dtype: Any, row: Any, offset: Any) -> tuple[np.dtype[Any], tuple[int, ...], int]:
    """Return dtype and shape of a row, and the offset of the first one, as they are used."""
    try:
        kind = np.dtype(dtype)
    except Exception as error:  # of any object that is none
        expected = f"expected one, got {safe_text(dtype)} ({type(error).__name__})"
        raise ArgumentError(rank, "read_rows", "dtype", expected) from None
    shape = [row] if type(row) is int else row
    if type(shape) not in (list, tuple) or not {*map(type, shape)} <= {int} or type(offset) is not int:
        expected = f"expected whole numbers, got {safe_text(row)} and {safe_text(offset)}"
        raise ArgumentError(rank, "read_rows", "row or offset", expected)
    return kind, tuple(shape), offset


def _counts(rank: int, counts: Any) -> list[int] | None:
    try:
        return None if counts is None else [operator.index(each) for each in counts]
    except Exception:  # of any object that has no numbers
        expected = f"expected p numbers of rows, got {safe_text(counts)}"
        raise ArgumentError(rank, "read_rows", "counts", expected) from None


def _items(rank: int, kind: np.dtype[Any], row: tuple[int, ...], offset: int, size: int) -> Items:
    """Return the description of the rows in a file of so many bytes."""
    from ringcast.transfer.rows import Items

    found = Items(kind, (0, *row), offset, fortran=False)
    if kind.hasobject or found.row <= 0 or not 0 <= offset <= size or (size - offset) % found.row:
        rows = f"expected a whole number of rows of {found.row:,} bytes, of items that are no Python objects"
        got = f"a file of {size:,} bytes, from byte {offset:,} on"
        raise ArgumentError(rank, "read_rows", "dtype, row or offset", f"{rows}, got {got}")
    return replace(found, shape=((size - offset) // found.row, *found.shape[1:]))


def _shared_room(writeable: bool, comm: Files, size: int) -> tuple[Any, memoryview, bool]:
    """Return an array that the ranks of a host share, its bytes, and that they share it; all ranks call this."""
    steps = collectives.shared_memory.shared_bytes(comm._group, "read_file", size, bool(writeable))
    made = comm._make("read_file", steps, None, NOWHERE)
    if isinstance(made, SharedMemoryError):
        raise made
    array, memory = made
    return array, memory.data, True


def _own_room(out: Any, comm: Files, size: int) -> tuple[Any, memoryview, bool]:
    """Return the result of a rank, its bytes, and that no other rank shares it."""
    rank = comm._group.endpoint.rank
    if out is None:
        made: Array = room(rank, "read_file", (size,), np.dtype(np.uint8), "source")
        return made, made.data, False
    line = bytes_of(rank, "read_file", out, writes=True)
    if len(line) != size:
        raise ArgumentError(rank, "read_file", "out", f"expected {size:,} bytes, as the source has, got {len(line):,}")
    return out, line.data, False
