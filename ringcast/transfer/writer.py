"""Decompress, hash and write pieces at a destination, in a thread beside the one that communicates.

A system call on a stuck disk can hold the thread for any time. When the other ranks have waited too long for it, the
thread is given up: the buffer in its hand is lost until the call returns, the other buffers stay in use, and pieces
that arrive are dropped.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue

from ringcast._util.dataclass import dataclass
from ringcast.errors import TransferError
from ringcast.ops import Array
from ringcast.transfer import digests
from ringcast.transfer.compression import decompressed
from ringcast.transfer.destination import Destination
from ringcast.transfer.pipeline import Buffers, Filled
from ringcast.transfer.stalls import Stalls
from ringcast.wire.error_text import in_a_line


@dataclass(frozen=True, slots=True)
class _Step:
    """An action on the destination other than a write; `done` is set at its end."""

    act: Callable[[], object]
    done: threading.Event


class Writer:
    """Writes pieces in the order of `put`; it owns the destination, and closes it."""

    def __init__(self, destination: Destination, buffers: Buffers, stalls: Stalls) -> None:
        self.error = ""
        self.digests: dict[int, bytes] = {}  # of the chunks of this segment
        self.seconds = 0.0  # of work, without waiting
        self._destination, self._buffers, self._stalls = destination, buffers, stalls
        self._queue: SimpleQueue[Filled | _Step | None] = SimpleQueue()
        self._given_up = False
        self._thread = threading.Thread(target=self._run, name="ringcast-writer", daemon=True)
        self._thread.start()

    def buffer(self, wait: bool) -> Array | None:
        """Return a free buffer; None if there is none and `wait` is False.

        Pass `wait` only while no broadcast is under way: then the writer has all buffers.
        """
        buffer = self._buffers.take(0.0)
        if buffer is not None or not wait:
            return buffer
        with self._stalls.measured():
            buffer = self._buffers.take(self._stalls.left)
        if buffer is None:
            self._give_up()
            buffer = self._buffers.take()
        return buffer

    def put(self, filled: Filled) -> None:
        """Hand over the payload of a piece, with its buffer."""
        if self.error:
            self._buffers.give_back(filled.buffer)
        else:
            self._queue.put(filled)

    def call(self, act: Callable[[], object]) -> None:
        """Run `act` in the thread after all pieces that were put, and wait for its end; do nothing after an error."""
        step = _Step(act, threading.Event())
        if self.error:
            return
        self._queue.put(step)
        with self._stalls.measured():
            in_time = step.done.wait(self._stalls.left)
        if not in_time:
            self._give_up()

    def drain(self) -> None:
        """Wait until all pieces that were put are written or dropped."""
        self.call(lambda: None)

    def close(self) -> None:
        """End the thread; one that was given up ends when it can."""
        self._queue.put(None)
        if not self._given_up:
            self._thread.join()

    def _give_up(self) -> None:
        self._given_up = True
        self.error = self._stalls.told()
        try:
            while True:
                item = self._queue.get_nowait()
                if isinstance(item, Filled):
                    self._buffers.give_back(item.buffer)
        except Empty:
            return

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            began = time.monotonic()
            try:
                if not self.error:
                    item.act() if isinstance(item, _Step) else self._write(item)
            except TransferError as error:
                self.error = self.error or str(error)
            except Exception as error:  # any error: the other thread waits
                self.error = self.error or in_a_line(error)
            self.seconds += time.monotonic() - began
            if isinstance(item, _Step):
                item.done.set()
            else:
                self._buffers.give_back(item.buffer)
        self._destination.close()

    def _write(self, filled: Filled) -> None:
        length, data = self._destination.layout.length(filled.piece), filled.data.data
        plain = data if len(data) == length else decompressed(data, length)
        if plain is not None:  # else the digests of its chunks are missing, and they are sent again
            self.digests.update(zip(filled.piece.chunks, digests.of_chunks(plain), strict=True))
            self._destination.write(filled.piece, plain)
