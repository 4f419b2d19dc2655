"""Pipeline: the ring of buffers between the thread that communicates and the one that reads or writes.

The ring bounds the memory: whoever is faster waits for a buffer. A thread that meets an error keeps it, and goes on
with buffers of zeros, or drops what comes: all ranks make the same calls to the end of the segment, where they tell
each other.
"""

from __future__ import annotations

from queue import Empty, SimpleQueue

import numpy as np

from ringcast._util.dataclass import dataclass
from ringcast.ops import Array
from ringcast.transfer.framing import TRAILER
from ringcast.transfer.layout import CHUNK, PIECE, Piece

BUFFERS = 8  # of a piece each: 32 MB


@dataclass(frozen=True, slots=True)
class Filled:
    """A piece in memory: `data` is what travels of it, and part of `buffer`."""

    piece: Piece
    data: Array
    buffer: Array


class Buffers:
    """The ring of buffers of a rank, made once."""

    def __init__(self) -> None:
        self._free: SimpleQueue[Array] = SimpleQueue()
        for _ in range(BUFFERS):
            self._free.put(np.empty(PIECE * CHUNK + TRAILER, np.uint8))

    def take(self, within: float | None = None) -> Array | None:
        """Return a free buffer; None if there is none after so many seconds (`within` None: it waits for ever)."""
        try:
            return self._free.get(timeout=within) if within != 0.0 else self._free.get_nowait()
        except Empty:
            return None

    def give_back(self, buffer: Array) -> None:
        self._free.put(buffer)
