"""Feed a worker's standard input through a pipe with data from the launcher on another host, without blocking."""

from __future__ import annotations

import os
import select
from collections.abc import Container

from ringcast_launcher.hosts.messages import InputTaken
from ringcast_launcher.system.polling import File


class WorkerInput:
    """Input that a worker has not read yet; the launcher sends as many bytes as the worker has taken."""

    def __init__(self, rank: int, file: int) -> None:
        """Write to `file`, which `close` closes."""
        self._rank, self._file = rank, file
        self._data = bytearray()
        self._ending = False  # nothing more comes
        os.set_blocking(file, False)

    @property
    def files(self) -> dict[File, int]:
        """The file to poll, and for which events."""
        return {self._file: select.POLLOUT} if self._data else {}

    @property
    def closed(self) -> bool:
        """True once the worker gets nothing more."""
        return self._file < 0

    def feed(self, data: bytes) -> None:
        """Take the next data; empty data means the end."""
        self._data += data
        self._ending |= not data
        self._end_if_written()

    def turn(self, ready: Container[File]) -> list[InputTaken]:
        """Write as much as the pipe has room for; `ready` are usable files."""
        if self.closed or self._file not in ready:
            return []
        try:
            taken = os.write(self._file, self._data)
        except BlockingIOError:
            return []
        except BrokenPipeError:
            self.close()
            return [InputTaken(self._rank, 0, closed=True)]
        del self._data[:taken]
        self._end_if_written()
        return [InputTaken(self._rank, taken, closed=False)]

    def close(self) -> None:
        """Close the pipe; the worker can still read all written data; idempotent."""
        if not self.closed:
            os.close(self._file)
        self._file = -1
        self._data.clear()

    def _end_if_written(self) -> None:
        if self._ending and not self._data:
            self.close()
