"""Messages in both directions that never block, with signs of life; and such a line over two files.

The other end is silent for the time in which this process could have heard it: who was stopped blames nobody. Signs of
life go only to who gives some: where messages arrive in one direction only, they soon stop in both.
"""

from __future__ import annotations

import os
import select
from abc import ABC, abstractmethod
from collections.abc import Container, Mapping
from contextlib import suppress
from typing import Any

from ringcast.procs.timing import TIMING
from ringcast_launcher.hosts.codec import MARK, FrameError, Frames, encode
from ringcast_launcher.system.polling import File

BEAT, HEARD = TIMING.beat, TIMING.heard
CHUNK = 1 << 16  # bytes read at once
AT_ONCE = 1 << 22  # bytes taken in one turn at most: others have to be served as well


class Connection(ABC):
    """One end. `ended` is why nothing more will come, `silent` for how many seconds nothing came.

    `unanswered` is for how many seconds no sign of life came, which means that the other end has heard of this one.
    `garbled` is why what came makes no sense, with which it has ended too.
    """

    def __init__(self, now: float) -> None:
        self._turned = self._next_beat = now
        self.ended = self.garbled = ""
        self.silent = self.unanswered = 0.0

    @property
    def due(self) -> float:
        """The time at which `turn` is to be called at the latest."""
        return self._next_beat

    @property
    @abstractmethod
    def unsent(self) -> int:
        """How many bytes wait to be sent."""

    @property
    @abstractmethod
    def files(self) -> Mapping[File, int]:
        """What to poll, and for which events."""

    @abstractmethod
    def send(self, message: Any) -> None:
        """Send a message of plain values, as soon as there is room for it."""

    @abstractmethod
    def close(self) -> None:
        """Close what it uses; idempotent."""

    def turn(self, ready: Container[File], now: float) -> list[Any]:
        """Do what can be done now, and return the messages that came; `ready` is what can be used."""
        passed, self._turned = min(now - self._turned, 2 * BEAT), now
        self.silent, self.unanswered = self.silent + passed, self.unanswered + passed
        found = self._receive(ready)
        if None in found:
            self.unanswered = 0.0
        if now >= self._next_beat:
            self._next_beat = now + BEAT
            # Who does not take what there is needs no sign of life.
            if not self.unsent and not self.ended and self.silent < HEARD:
                self.send(None)
        self._flush()
        return [message for message in found if message is not None]

    def forgive(self) -> None:
        """Let the silence until now count no more: it was announced."""
        self.silent = self.unanswered = 0.0

    def refuse(self, why: str) -> None:
        """Close it because of what came: the other end is no agent or launcher of ours."""
        self.ended = self.garbled = why
        self.close()

    @abstractmethod
    def _receive(self, ready: Container[File]) -> list[Any]:
        """Return what came; who heard anything is not silent."""

    @abstractmethod
    def _flush(self) -> None:
        """Send what there is room for."""


class PipeConnection(Connection):
    """One end of a line over two files."""

    def __init__(self, reading: int, writing: int, now: float, *, marks: bool = False, marked: bool = False) -> None:
        """Take over two files, which `close` closes; `marks`: begin with the mark; `marked`: the other end does."""
        self._reading, self._writing = reading, writing
        self._frames = Frames(marked=marked)
        self._unsent = bytearray(MARK if marks else b"")
        super().__init__(now)
        os.set_blocking(reading, False)
        os.set_blocking(writing, False)

    @property
    def noise(self) -> str:
        """What came instead of, or before, messages."""
        return self._frames.noise.decode("utf-8", "replace").strip()

    @property
    def unsent(self) -> int:
        return len(self._unsent)

    @property
    def files(self) -> Mapping[File, int]:
        wanted: dict[File, int] = {} if self.ended else {self._reading: select.POLLIN}
        return wanted | ({self._writing: select.POLLOUT} if self._unsent else {})

    def send(self, message: Any) -> None:
        if self._writing >= 0:
            self._unsent += encode(message)
            self._flush()

    def close(self) -> None:
        for file in {self._reading, self._writing} - {-1}:
            os.close(file)
        self._reading = self._writing = -1
        self.ended = self.ended or "it was closed"
        self._unsent.clear()

    def _receive(self, ready: Container[File]) -> list[Any]:
        found: list[Any] = []
        if self._reading not in ready:
            return found
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
                self.refuse(str(error))
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
