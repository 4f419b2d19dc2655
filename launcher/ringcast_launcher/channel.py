"""A stream of messages in both directions over two files that never block, with signs of life.

The other end is silent for the time in which this process could have heard it: who was stopped blames nobody.
"""

from __future__ import annotations

import os
import select
from collections.abc import Container
from contextlib import suppress
from typing import Any

from ringcast_launcher.frames import MARK, FrameError, Frames, encode

BEAT = 1.0  # seconds between two signs of life
CHUNK = 1 << 16  # bytes read at once
AT_ONCE = 1 << 22  # bytes taken in one turn at most: others have to be served as well
_BEAT = encode(None)


class Channel:
    """One end. `ended` is why nothing more will come, `silent` for how many seconds nothing came."""

    def __init__(self, reading: int, writing: int, now: float, *, marks: bool = False, marked: bool = False) -> None:
        """Take over two files, which `close` closes; `marks`: begin with the mark; `marked`: the other end does."""
        self._reading, self._writing = reading, writing
        self._frames = Frames(marked=marked)
        self._unsent = bytearray(MARK if marks else b"")
        self._turned, self.due = now, now
        self.ended, self.silent = "", 0.0
        os.set_blocking(reading, False)
        os.set_blocking(writing, False)

    @property
    def noise(self) -> str:
        """What came instead of, or before, messages."""
        return self._frames.noise.decode("utf-8", "replace").strip()

    @property
    def unsent(self) -> int:
        """How many bytes wait to be sent."""
        return len(self._unsent)

    @property
    def files(self) -> dict[int, int]:
        """What to poll, and for which events."""
        wanted = {} if self.ended else {self._reading: select.POLLIN}
        return wanted | ({self._writing: select.POLLOUT} if self._unsent else {})

    def send(self, message: Any) -> None:
        """Send a message of plain values, as soon as there is room for it."""
        self._unsent += encode(message)
        self._flush()

    def turn(self, ready: Container[int], now: float) -> list[Any]:
        """Do what can be done now, and return the messages that came; `ready` are the files that can be used."""
        self.silent += min(now - self._turned, 2 * BEAT)
        self._turned = now
        found = self._receive() if self._reading in ready else []
        if now >= self.due:
            self.due = now + BEAT
            if not self._unsent:  # who does not take what there is needs no sign of life
                self._unsent += _BEAT
        self._flush()
        return [message for message in found if message is not None]

    def close(self) -> None:
        """Close both files; idempotent."""
        for file in {self._reading, self._writing} - {-1}:
            os.close(file)
        self._reading = self._writing = -1
        self.ended = self.ended or "it was closed"
        self._unsent.clear()

    def _receive(self) -> list[Any]:
        found: list[Any] = []
        taken = 0
        while not self.ended and taken < AT_ONCE:
            try:
                data = os.read(self._reading, CHUNK)
                if not data:
                    self.ended = "it has ended"
                found += self._frames.feed(data)
            except BlockingIOError:
                break
            except OSError as error:
                self.ended = f"it cannot be read: {error.strerror}"
            except FrameError as error:
                self.ended = str(error)
            else:
                taken += len(data)
        if taken:
            self.silent = 0.0
        return found

    def _flush(self) -> None:
        with suppress(BlockingIOError):
            while self._unsent:
                try:
                    del self._unsent[: os.write(self._writing, self._unsent[:CHUNK])]
                except BrokenPipeError:  # that the other end has ended is seen when reading
                    self._unsent.clear()
