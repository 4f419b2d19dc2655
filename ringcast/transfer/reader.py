"""Read, hash and compress a segment's pieces on the root, in a thread beside the one that communicates."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Self

from ringcast.errors import TransferError
from ringcast.ops import Array
from ringcast.transfer import digests
from ringcast.transfer.compression import Compressor
from ringcast.transfer.framing import AHEAD, TRAILER, write_trailer
from ringcast.transfer.layout import Piece
from ringcast.transfer.pipeline import Buffers, Filled
from ringcast.transfer.source import Source
from ringcast.wire.error_text import in_a_line


class Reader:
    """Fills the messages of a segment; leaving the `with` block ends the thread.

    Args:
        source: the files to read.
        pieces: of the segment.
        buffers: the caller of `take` gives them back.
        rate: most bytes of messages in a second.
        compressor: of pieces; None: no compression.
        framed: whether messages have trailers, and pieces may be compressed.
    """

    def __init__(
        self,
        source: Source,
        pieces: Sequence[Piece],
        buffers: Buffers,
        rate: float | None = None,
        compressor: Compressor | None = None,
        framed: bool = False,
    ) -> None:
        self.error = ""
        self.digests: dict[int, bytes] = {}
        self.waited = 0.0  # seconds in `take`: the broadcasts were faster
        self._source, self._pieces, self._buffers, self._rate = source, pieces, buffers, rate
        self._compressor, self._framed = compressor, framed
        self._lengths: SimpleQueue[int] = SimpleQueue()  # of the first payloads
        self._held: deque[Filled] = deque()  # framed messages, until the length for their trailers is known
        self._filled: SimpleQueue[Filled | None] = SimpleQueue()  # None: there is no more
        self._given_up = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ringcast-reader", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._given_up.set()
        while (filled := self._filled.get()) is not None:
            self._buffers.give_back(filled.buffer)
        self._thread.join()

    def first_lengths(self) -> list[int]:
        """Wait for the lengths of the first payloads of a framed segment, and return them."""
        return [self._lengths.get() for _ in self._pieces[:AHEAD]]

    def take(self, wait: bool) -> Filled | None:
        """Return the next message; None if it is not there yet and the caller shall not wait."""
        began = time.monotonic()
        try:
            return self._filled.get(block=wait)
        except Empty:
            return None
        finally:
            self.waited += time.monotonic() - began

    def _run(self) -> None:
        begun, taken = time.monotonic(), 0
        for number, piece in enumerate(self._pieces):
            buffer = self._buffers.take()
            assert buffer is not None
            if self._rate is not None:
                self._given_up.wait(max(0.0, begun + taken / self._rate - time.monotonic()))
            if self._given_up.is_set():
                self._buffers.give_back(buffer)
                break
            length = self._fill(piece, buffer)
            taken += length
            if self._framed:
                self._frame(number, Filled(piece, buffer[: length + TRAILER], buffer))
            else:
                self._filled.put(Filled(piece, buffer[:length], buffer))
        while self._held:
            self._release(0)
        self._filled.put(None)

    def _fill(self, piece: Piece, buffer: Array) -> int:
        """Read a piece into a buffer, and compress it where that is better; return the length of the payload."""
        data = buffer[: self._source.layout.length(piece)]
        if not self.error:
            try:
                self._source.read(piece, data.data)
                self.digests.update(zip(piece.chunks, digests.of_chunks(data.data), strict=True))
                return self._compress(piece, data)
            except TransferError as error:
                self.error = str(error)
            except Exception as error:  # any error: the other thread waits for this piece
                self.error = in_a_line(error)
        data[...] = 0
        return len(data)

    def _compress(self, piece: Piece, data: Array) -> int:
        if self._compressor is None:
            return len(data)
        if not self._framed:
            if piece == self._pieces[-1]:
                self._compressor.consider(data.data)  # for the next segment
            return len(data)
        packed = self._compressor.shortened(data.data)
        if packed is None:
            return len(data)
        data[: len(packed)].data[:] = packed
        return len(packed)

    def _frame(self, number: int, filled: Filled) -> None:
        length = len(filled.data) - TRAILER
        if number < AHEAD:
            self._lengths.put(length)
        else:
            self._release(length)
        self._held.append(filled)

    def _release(self, following: int) -> None:
        filled = self._held.popleft()
        write_trailer(filled.data, following)
        self._filled.put(filled)
