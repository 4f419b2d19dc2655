"""Map the stream of contents to files, and cut the missing parts of the stream into pieces and segments.

The contents of all files follow each other in one stream, which is cut into chunks of 1 MiB. A chunk is the unit of
hashing and of resuming. A piece is a run of chunks that one call broadcasts; after a segment of pieces the ranks
compare digests. Layout and order follow from the manifest and the set of missing chunks, alike on all ranks.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from ringcast._util.dataclass import dataclass
from ringcast.transfer.manifest import Manifest

CHUNK = 1 << 20  # bytes
PIECE = 4  # chunks
SEGMENT = 256  # chunks


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes of a file: `length` of them, from `offset` of entry number `entry`."""

    entry: int
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Piece:
    """Chunks `first` to `first + count - 1`, which travel together."""

    first: int
    count: int

    @property
    def chunks(self) -> range:
        return range(self.first, self.first + self.count)


class Layout:
    """Map the bytes of the stream to files of a manifest and offsets in them."""

    def __init__(self, manifest: Manifest) -> None:
        self._firsts = array("q")  # extent of each entry
        self._entries, self._offsets = array("q"), array("q")  # of each extent
        self._starts = array("q", [0])  # of each extent in the stream
        for number, entry in enumerate(manifest.entries):
            self._firsts.append(len(self._entries))
            for offset, length in entry.extents:
                self._entries.append(number)
                self._offsets.append(offset)
                self._starts.append(self._starts[-1] + length)
        self._firsts.append(len(self._entries))
        self.nbytes = self._starts[-1]
        self.chunks = -(-self.nbytes // CHUNK)

    def length(self, piece: Piece) -> int:
        """Return the bytes of a piece; the last chunk of the stream may be shorter than others."""
        return min(self.nbytes, (piece.first + piece.count) * CHUNK) - piece.first * CHUNK

    def spans(self, piece: Piece) -> Iterator[Span]:
        """Yield the bytes of files that make up a piece, in order."""
        at, end = piece.first * CHUNK, piece.first * CHUNK + self.length(piece)
        number = bisect_right(self._starts, at) - 1
        while at < end:
            length = min(end, self._starts[number + 1]) - at
            yield Span(self._entries[number], self._offsets[number] + at - self._starts[number], length)
            at, number = at + length, number + 1

    def data_of(self, entry: int) -> int:
        """Return the bytes of data of an entry."""
        return self._starts[self._firsts[entry + 1]] - self._starts[self._firsts[entry]]

    def chunks_of(self, entry: int) -> range:
        """Return the chunks in which an entry has data."""
        first, end = self._firsts[entry], self._firsts[entry + 1]
        return range(self._starts[first] // CHUNK, -(-self._starts[end] // CHUNK)) if first < end else range(0)


def segments(missing: Sequence[int]) -> list[list[Piece]]:
    """Return the pieces in which missing chunks, in ascending order, are sent, segment by segment.

    >>> segments([0, 1, 2, 3, 4, 9])
    [[Piece(first=0, count=4), Piece(first=4, count=1), Piece(first=9, count=1)]]
    """
    result: list[list[Piece]] = []
    for start in range(0, len(missing), SEGMENT):
        pieces: list[Piece] = []
        for chunk in missing[start : start + SEGMENT]:
            last = pieces[-1] if pieces else None
            if last is not None and last.count < PIECE and chunk == last.first + last.count:
                pieces[-1] = Piece(last.first, last.count + 1)
            else:
                pieces.append(Piece(chunk, 1))
        result.append(pieces)
    return result
