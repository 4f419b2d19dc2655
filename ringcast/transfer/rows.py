"""Read the rows of a table, each rank its own: of a .npy file, of one of rows and nothing else, or of Parquet.

Rank 0 reads the head of the file and announces it. Then each rank reads the bytes of its rows, and no others, from the
source that it has opened itself: a path, an http(s) URL, or one that fsspec knows. Of Parquet it reads the row groups
that its rows are in.
"""

from __future__ import annotations

import io
import socket
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from math import prod
from typing import Any, Protocol
from zlib import crc32

import numpy as np

from ringcast._util.dataclass import dataclass
from ringcast._util.optional import how_to_install
from ringcast._util.safe_text import safe_text
from ringcast.collectives.rows import even
from ringcast.errors import ArgumentError, RingcastError, SourceChanged, SourceError
from ringcast.ops import Array
from ringcast.transfer import records
from ringcast.transfer.records import LONGEST, announced, brief, exchanged
from ringcast.transfer.sources import tries
from ringcast.transfer.sources.base import (
    Busy,
    Changed,
    Connection,
    Interrupted,
    Source,
    Trouble,
    Unreadable,
    in_a_line,
)
from ringcast.transfer.sources.opening import name_for_people, open_source
from ringcast.transfer.sources.tries import Wait, tried, watched
from ringcast.wire.codec import Count

_NPY, _PARQUET, _RAW = "npy", "parquet", "raw"
_HEAD = 1 << 16  # bytes in which the header of a .npy file is
_MAGIC = {b"\x93NUM": _NPY, b"PAR1": _PARQUET}


@dataclass(frozen=True, slots=True)
class Table:
    """The file as rank 0 sees it.

    Attributes:
        kind: "npy", "parquet" or "raw".
        size: bytes of the file.
        version: of the source.
        rows: in the file, where that says how many.
        head: of a .npy file, the bytes before its items.
        error: why rank 0 cannot read it; empty if it can.
        source: its name on rank 0.
        host: of rank 0.
    """

    kind: str = _RAW
    size: Count = 0
    version: bytes = b""
    rows: Count = 0
    head: bytes = b""
    error: str = ""
    source: str = ""
    host: str = ""


@dataclass(frozen=True, slots=True)
class Read:
    """Whether a rank has read its rows: if not, the reason, and the bytes that it could not read."""

    error: str = ""
    source: str = ""
    changed: bool = False
    host: str = ""
    segment: tuple[Count, ...] = ()
    asked: Count = 0  # a checksum of the counts, and of the description of the items


@dataclass(frozen=True, slots=True)
class Items:
    """Items of a file: their type, the shape of all of them, where the first one is, and whether the first index runs
    fastest.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    start: int
    fortran: bool

    @property
    def row(self) -> int:
        """Bytes of a row."""
        return prod(self.shape[1:]) * self.dtype.itemsize

    def parts(self, first: int, stop: int) -> list[tuple[int, int]]:
        """Return where rows [first, stop) lie in the file: first byte and length of each piece, in order.

        >>> Items(np.dtype("i2"), (3, 2), 100, False).parts(1, 3), Items(np.dtype("i2"), (3, 2), 100, True).parts(1, 3)
        ([(104, 8)], [(102, 4), (108, 4)])
        """
        if not self.fortran:
            return [(self.start + first * self.row, (stop - first) * self.row)]
        size = self.dtype.itemsize
        columns = range(prod(self.shape[1:]))
        return [(self.start + (column * self.shape[0] + first) * size, (stop - first) * size) for column in columns]


class Ranks(records.Ranks, tries.Ranks, Protocol):
    """The part of a communicator by which rows are read."""


def read_rows(
    comm: Ranks,
    source: str,
    counts: Sequence[int] | None,
    items: Callable[[int], Items] | None,
    columns: Sequence[str] | None,
) -> Any:
    """Return this rank's rows of a file: an array, or of a Parquet file a table of pyarrow.

    Args:
        comm: all ranks, each with a source of its own that means the same file.
        source: path or URL.
        counts: rows of each rank, which add up to all rows; None: as even as possible.
        items: returns the description of the items for the size of a file that has nothing else; None: the file says.
        columns: of a Parquet file; None: all.

    Raises:
        ArgumentError: the counts are others than the file's rows, on all ranks alike.
        SourceError: a rank cannot read its rows; all ranks raise it.
    """
    shown, opened, rank = brief(name_for_people(source)), _Opened(source), comm.members[comm.rank]
    result, wrong = None, None
    with closing(opened):
        table = announced(comm, 0, Table, lambda: _table(comm, opened, raw=items is not None))
        if table.error:
            raise SourceError(brief(table.source), brief(table.error), brief(table.host), comm.members[0])
        try:
            described = items(table.size) if items is not None else None
            rows = table.rows if described is None else described.shape[0]
            given = even(rows, len(comm.members)) if counts is None else tuple(counts)
            _check(rank, given, len(comm.members), rows)
        except ArgumentError as error:
            wrong, mine = error, Read(brief(str(error)))
        else:
            first, asked = sum(given[: comm.rank]), crc32(repr((given, described)).encode())
            result, mine = _read(comm, opened, table, described, columns, first, first + given[comm.rank])
            mine = replace(mine, source=shown, asked=asked)
        found = exchanged(comm, mine)
    if wrong is not None:
        raise wrong
    for member, read in zip(comm.members, found, strict=True):
        if read.error:
            kind = SourceChanged if read.changed else SourceError
            segment = (read.segment[0], read.segment[1]) if len(read.segment) == 2 else None
            raise kind(brief(read.source), brief(read.error), brief(read.host), member, segment)
    if len({read.asked for read in found}) > 1:
        raise ArgumentError(rank, "read_rows", "counts, dtype, row or offset", "expected the same on all ranks")
    return result


def _check(rank: int, counts: Sequence[int], size: int, rows: int) -> None:
    if len(counts) != size or sum(counts) != rows or min(counts) < 0:
        expected = f"expected a number of rows for each of {size} ranks, {rows:,} together"
        got = f"{safe_text(list(counts))}, {len(counts)} numbers with the sum {sum(counts):,}"
        raise ArgumentError(rank, "read_rows", "counts", f"{expected}, got {got}")


class _Opened:
    """The source of this rank, which is opened when it is first needed, and a connection to it."""

    def __init__(self, name: str) -> None:
        self.name, self.wait = name, Wait()
        self.segment: tuple[int, ...] = ()  # bytes that were asked for last, of a file of rows
        self._source: Source | None = None
        self._connection: Connection | None = None

    @property
    def source(self) -> Source:
        """The source.

        Raises:
            Trouble: it cannot be opened.
        """
        if self._source is None:
            self._source = tried(self.wait, lambda: open_source(self.name, self.wait.uses))
        return self._source

    def read(self, start: int, into: memoryview) -> None:
        """Fill memory with the bytes from `start` on, by several tries.

        Raises:
            Trouble: they cannot be read.
        """
        done, source = 0, self.source
        if start + len(into) > source.size:
            raise Changed(f"it has {source.size:,} bytes")
        connection = self._connection = self._connection or source.connect()
        self.wait.uses(connection)

        def read() -> None:
            nonlocal done
            for length in connection.read(start + done, into[done:]):
                done += length
                self.wait.came(length)

        tried(self.wait, read)

    def close(self) -> None:
        if self.wait.busy:  # it was given up, and nothing ends the read: its thread needs both
            return
        for each in self._connection, self._source:
            if each is not None:
                each.close()


def _table(comm: Ranks, opened: _Opened, *, raw: bool) -> Table:
    """Return the file as this rank sees it."""
    host = socket.gethostname()
    try:
        return replace(watched(comm, opened.wait, lambda: _described(opened, raw=raw)), host=host)
    except RingcastError:
        raise
    except Exception as error:  # as of pyarrow: the others wait for the record
        return Table(error=_reason(error), source=brief(name_for_people(opened.name)), host=host)


def _described(opened: _Opened, *, raw: bool) -> Table:
    """Return what the head of the file says.

    Raises:
        Trouble: it cannot be read, or is no such file.
    """
    source = opened.source
    facts = source.size, source.version.encode()[:LONGEST]
    head = bytearray(min(source.size, _HEAD))
    opened.read(0, memoryview(head))
    kind = _MAGIC.get(bytes(head[:4]))
    if raw and kind is not None:
        raise Unreadable(f"it is a {kind} file, which says its dtype: leave that out")
    if raw:
        return Table(_RAW, *facts)
    if kind is None:
        raise Unreadable("neither a .npy nor a Parquet file; of rows and nothing else, give their dtype")
    if kind == _PARQUET:
        return Table(kind, *facts, _parquet(opened).metadata.num_rows)
    found = _npy(bytes(head))
    return Table(kind, *facts, found.shape[0], bytes(head[: found.start]))


def _reason(error: Exception) -> str:
    return brief(error.reason if isinstance(error, Trouble) else f"{type(error).__name__}: {in_a_line(error)}")


def _npy(head: bytes) -> Items:
    """Return the description of the items of a .npy file that begins so.

    Raises:
        Unreadable: it is none, or has Python objects, or no rows.
    """
    stream = io.BytesIO(head)
    try:
        version = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(stream)
    except ValueError as error:
        raise Unreadable(f"no .npy file: {str(error).splitlines()[0]}") from None
    if dtype.hasobject:
        raise Unreadable("it has Python objects, which are not unpickled")
    if not shape:
        raise Unreadable("its array has no dimension, and so no rows")
    return Items(dtype, shape, stream.tell(), fortran and len(shape) > 1)


def _read(
    comm: Ranks,
    opened: _Opened,
    table: Table,
    described: Items | None,
    columns: Sequence[str] | None,
    first: int,
    stop: int,
) -> tuple[Any, Read]:
    """Return the rows [first, stop), and the record of it; None for rows that cannot be read.

    The items are `described` by the caller, or by the file.
    """
    try:
        result = watched(comm, opened.wait, lambda: _rows(opened, table, described, columns, first, stop))
    except RingcastError:
        raise
    except Exception as error:  # as of pyarrow, or no memory: the others wait for the record
        where = opened.segment if isinstance(error, Interrupted | Busy | Changed) else ()
        changed = isinstance(error, Changed)
        return None, Read(_reason(error), changed=changed, host=socket.gethostname(), segment=where)
    return result, Read()


def _rows(
    opened: _Opened,
    table: Table,
    described: Items | None,
    columns: Sequence[str] | None,
    first: int,
    stop: int,
) -> Any:
    """Return the rows [first, stop).

    Raises:
        Trouble: they cannot be read; `opened.segment` has the bytes, where these are known.
    """
    source = opened.source
    if (source.size, source.version.encode()[:LONGEST]) != (table.size, table.version):
        raise Changed(f"rank 0 sees {table.size:,} bytes, and this one {source.size:,}, of another version")
    if table.kind == _PARQUET:
        result = _parquet_rows(_parquet(opened), columns, first, stop)
    else:
        items = described or _npy(table.head)
        result = np.empty((stop - first, *items.shape[1:]), items.dtype, "F" if items.fortran else "C")
        memory, at = _bytes(result), 0
        for start, length in items.parts(first, stop):
            opened.segment = start, start + length
            opened.read(start, memory[at : at + length])
            at += length
    source.check()
    return result


def _bytes(array: Array) -> memoryview:
    """Return the bytes of an array, in the order in which they lie in memory."""
    return array.reshape(-1, order="A").view(np.uint8).data if array.nbytes else memoryview(bytearray())


# Parquet.


class _File(io.RawIOBase):
    """A source as a file that pyarrow reads."""

    def __init__(self, opened: _Opened) -> None:
        self._opened, self._at = opened, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self._opened.source.size)[whence]
        return self._at

    def readinto(self, into: Any) -> int:
        length = max(0, min(len(into), self._opened.source.size - self._at))
        self._opened.read(self._at, memoryview(into)[:length])
        self._at += length
        return length


def _parquet(opened: _Opened) -> Any:
    try:
        from pyarrow import ArrowException, PythonFile
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise Unreadable(f"Parquet needs the package pyarrow: {how_to_install('pyarrow')}") from None
    try:
        return ParquetFile(PythonFile(_File(opened), mode="r"))
    except (ArrowException, ValueError, OSError) as error:
        raise Unreadable(f"no Parquet file: {str(error).splitlines()[0]}") from None


def _parquet_rows(file: Any, columns: Sequence[str] | None, first: int, stop: int) -> Any:
    """Return rows [first, stop) as a table, from the row groups that they are in."""
    groups, start, skipped = [], 0, 0
    for number in range(file.num_row_groups):
        end = start + file.metadata.row_group(number).num_rows
        if end <= first:
            skipped = end
        elif start < stop:
            groups.append(number)
        start = end
    table = file.read_row_groups(groups, columns=None if columns is None else list(columns))
    return table.slice(first - skipped if groups else 0, stop - first)
