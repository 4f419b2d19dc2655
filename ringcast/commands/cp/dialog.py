"""Talk to a command on another host over its pipes; no wait for it lasts longer than a limit."""

from __future__ import annotations

import os
import select
import subprocess
import time
from contextlib import suppress

_PART = 1 << 16  # bytes that are read at once


class Dialog:
    """The standard input and output of a process, whose other end may fall silent."""

    def __init__(self, process: subprocess.Popen[bytes], limit: float) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._to, self._from, self._limit = process.stdin.fileno(), process.stdout.fileno(), limit
        self._got = b""
        os.set_blocking(self._to, False)

    def after(self, mark: bytes) -> str | None:
        """Return the rest of the next line with this mark; None if the output has ended. Other lines are dropped.

        Raises:
            TimeoutError: no such line has come within the limit.
        """
        by = time.monotonic() + self._limit
        while True:
            line, ended, rest = self._got.partition(b"\n")
            if ended:
                self._got = rest
                _, found, words = line.partition(mark)
                if found:
                    return words.decode(errors="surrogateescape").strip()
                continue
            self._await(self._from, select.POLLIN, by - time.monotonic())
            data = os.read(self._from, _PART)
            if not data:
                return None
            self._got += data

    def give(self, file: int, size: int) -> None:
        """Send the first bytes of a file.

        Raises:
            TimeoutError: none of them was taken within the limit.
            BrokenPipeError: the process takes no more.
        """
        at = 0
        while at < size:
            self._await(self._to, select.POLLOUT, self._limit)
            with suppress(BlockingIOError):
                at += os.sendfile(self._to, file, at, size - at)

    @staticmethod
    def _await(fd: int, event: int, seconds: float) -> None:
        poll = select.poll()
        poll.register(fd, event)
        if not poll.poll(max(seconds, 0) * 1000):
            raise TimeoutError
