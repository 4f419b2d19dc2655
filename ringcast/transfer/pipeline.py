"""Pipeline: a thread that reads and hashes, or hashes and writes, beside the one that communicates.

Both sides share a ring of buffers, which bounds the memory: whoever is faster waits for a buffer. A thread that meets
an error keeps it, and goes on with buffers of zeros, or drops what comes: all ranks make the same calls to the end of
the segment, where they tell each other.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Self

import numpy as np

from ringcast._util.dataclass import dataclass
from ringcast.errors import TransferError
from ringcast.ops import Array
from ringcast.transfer import digests
from ringcast.transfer.destination import Destination
from ringcast.transfer.layout import CHUNK, PIECE, Layout, Piece
from ringcast.transfer.source import Source

BUFFERS = 8  # of a piece each: 32 MB


@dataclass(frozen=True, slots=True)
class Filled:
    """A piece in memory: `data` is as long as the piece, and part of `buffer`."""

    piece: Piece
    data: Array
    buffer: Array


class Buffers:
    """The ring of buffers of a rank, made once."""

    def __init__(self) -> None:
        self._free: SimpleQueue[Array] = SimpleQueue()
        for _ in range(BUFFERS):
            self._free.put(np.empty(PIECE * CHUNK, np.uint8))

    def take(self, wait: bool = True) -> Array | None:
        """Return a free buffer; None if there is none and it shall not wait."""
        try:
            return self._free.get(block=wait)
        except Empty:
            return None

    def give_back(self, buffer: Array) -> None:
        self._free.put(buffer)


class _Worker:
    """A thread for one segment; leaving the `with` block waits for its end."""

    def __init__(self, name: str) -> None:
        self.error = ""
        self.digests: dict[int, bytes] = {}
        self.seconds = 0.0  # of work, without waiting
        self._thread = threading.Thread(target=self._run, name=f"ringcast-{name}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()
        self._thread.join()

    def _run(self) -> None:
        raise NotImplementedError

    def _end(self) -> None:
        raise NotImplementedError


class Reader(_Worker):
    """Reads and hashes the pieces of a segment on the root, at most `rate` bytes in a second."""

    def __init__(self, source: Source, pieces: Sequence[Piece], buffers: Buffers, rate: float | None) -> None:
        super().__init__("reader")
        self._source, self._pieces, self._buffers, self._rate = source, pieces, buffers, rate
        self._filled: SimpleQueue[Filled | None] = SimpleQueue()  # None: there is no more
        self._given_up = threading.Event()

    def take(self, wait: bool) -> Filled | None:
        """Return the next piece; None if it is not read yet and the caller shall not wait."""
        try:
            return self._filled.get(block=wait)
        except Empty:
            return None

    def _run(self) -> None:
        begun, read = time.monotonic(), 0
        for piece in self._pieces:
            buffer = self._buffers.take()
            assert buffer is not None
            length = self._source.layout.length(piece)
            if self._rate is not None:
                self._given_up.wait(max(0.0, begun + read / self._rate - time.monotonic()))
            if self._given_up.is_set():
                self._buffers.give_back(buffer)
                break
            self._fill(piece, buffer[:length])
            read += length
            self._filled.put(Filled(piece, buffer[:length], buffer))
        self._filled.put(None)

    def _fill(self, piece: Piece, data: Array) -> None:
        began = time.monotonic()
        if not self.error:
            try:
                self._source.read(piece, data.data)
            except TransferError as error:
                self.error = str(error)
            except Exception as error:  # whatever it is: the other thread waits for this piece
                self.error = repr(error)
        if self.error:
            data[...] = 0
        self.digests.update(zip(piece.chunks, digests.of_chunks(data.data), strict=True))
        self.seconds += time.monotonic() - began

    def _end(self) -> None:
        self._given_up.set()
        while (filled := self._filled.get()) is not None:
            self._buffers.give_back(filled.buffer)


class Writer(_Worker):
    """Hashes and writes the pieces of a segment on another rank; without a destination it drops them."""

    def __init__(self, destination: Destination | None, buffers: Buffers) -> None:
        super().__init__("writer")
        self._destination, self._buffers = destination, buffers
        self._arrived: SimpleQueue[Filled | None] = SimpleQueue()

    def put(self, filled: Filled) -> None:
        """Hand over a piece that has arrived, with its buffer."""
        self._arrived.put(filled)

    def drain(self) -> None:
        """Wait until all that was handed over is written."""
        self._arrived.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (filled := self._arrived.get()) is not None:
            began = time.monotonic()
            data = filled.data.data
            try:
                if self._destination is not None and not self.error:
                    self.digests.update(zip(filled.piece.chunks, digests.of_chunks(data), strict=True))
                    self._destination.write(filled.piece, data)
            except TransferError as error:
                self.error = str(error)
            except Exception as error:  # whatever it is: the other thread waits for the buffer
                self.error = repr(error)
            self.seconds += time.monotonic() - began
            self._buffers.give_back(filled.buffer)

    def _end(self) -> None:
        self._arrived.put(None)


def piece_of(layout: Layout, piece: Piece, buffer: Array) -> Filled:
    """Return a buffer as the memory of a piece that will arrive."""
    return Filled(piece, buffer[: layout.length(piece)], buffer)
