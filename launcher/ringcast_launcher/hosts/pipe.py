"""Send and receive messages without blocking, with signs of life; over two files, or another kind of connection.

Only time in which this process ran counts as silence of the other end. Signs of life are sent only while some arrive
from the other end: if messages arrive in one direction only, they soon stop in both.
"""

from __future__ import annotations

import os
import select
from abc import ABC, abstractmethod
from collections.abc import Container, Mapping
from contextlib import suppress
from typing import Any

from ringcast.procs.timing import TIMING
from ringcast.wire.codec import CodecError
from ringcast_launcher.hosts.framing import MARK, Frames, encode
from ringcast_launcher.system.polling import File

BEAT, HEARD = TIMING.beat, TIMING.heard
CHUNK = 1 << 16  # bytes read at once
AT_ONCE = 1 << 22  # bytes taken in one turn at most: others have to be served as well


class Connection(ABC):
    """One end of a connection.

    Attributes:
        ended: the reason why nothing more will arrive; empty as long as it may.
        silent: seconds since anything arrived.
        unanswered: seconds since a sign of life arrived, which proves that the other end hears this one.
        garbled: the reason why the received data could not be understood; the connection has ended then.
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
        """The number of bytes that wait to be sent."""

    @property
    @abstractmethod
    def files(self) -> Mapping[File, int]:
        """The files to poll, and for which events."""

    @abstractmethod
    def send(self, message: Any) -> None:
        """Send a message of plain values, as soon as there is room for it."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection; idempotent."""

    def turn(self, ready: Container[File], now: float) -> list[Any]:
        """Receive and send without blocking, and return the messages that arrived; `ready` are usable files."""
        passed, self._turned = min(now - self._turned, 2 * BEAT), now
        self.silent, self.unanswered = self.silent + passed, self.unanswered + passed
        found = self._receive(ready)
        if None in found:
            self.unanswered = 0.0
        if now >= self._next_beat:
            self._next_beat = now + BEAT
            # As long as data waits to be sent, a sign of life would only wait behind it.
            if not self.unsent and not self.ended and self.silent < HEARD:
                self.send(None)
        self._flush()
        return [message for message in found if message is not None]

    def excuse_silence(self) -> None:
        """Do not count the silence until now, because it was announced."""
        self.silent = self.unanswered = 0.0

    def refuse(self, why: str) -> None:
        """Close the connection because of invalid data: the other end is no agent or launcher."""
        self.ended = self.garbled = why
        self.close()

    @abstractmethod
    def _receive(self, ready: Container[File]) -> list[Any]:
        """Return the messages that arrived; reset `silent` if any byte arrived."""

    @abstractmethod
    def _flush(self) -> None:
        """Send as much as there is room for."""


class PipeConnection(Connection):
    """One end of a connection over two files."""

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
        """The text that arrived instead of messages, or before the first one."""
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
            except CodecError as error:
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
                except BrokenPipeError:  # the next read shows that the other end has ended
                    self._unsent.clear()
