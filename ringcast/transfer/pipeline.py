"""Keep the buffers that the communicating thread and the reading or writing thread pass to each other.

Their number bounds the memory: the faster thread waits for a buffer. A thread that meets an error keeps the error, and
sends zeros or drops data, because all ranks make the same calls to the end of the segment; there they exchange errors.
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
    """A piece in memory: `data` is the message or payload, a view of the beginning of `buffer`."""

    piece: Piece
    data: Array
    buffer: Array


class Buffers:
    """The free buffers of a rank; all are made at the start."""

    def __init__(self) -> None:
        self._free: SimpleQueue[Array] = SimpleQueue()
        for _ in range(BUFFERS):
            self._free.put(np.empty(PIECE * CHUNK + TRAILER, np.uint8))

    def take(self, within: float | None = None) -> Array | None:
        """Return a free buffer; None if there is none after `within` seconds (None: wait for ever)."""
        try:
            return self._free.get(timeout=within) if within != 0.0 else self._free.get_nowait()
        except Empty:
            return None

    def give_back(self, buffer: Array) -> None:
        self._free.put(buffer)
