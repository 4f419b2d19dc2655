"""Questions of `ringcast ps` for what the ranks on all hosts do, which come over a socket in the job's directory."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import suppress

from ringcast.jobs import INQUIRIES

PATIENCE = 1.0  # seconds in which who has asked must take the answer: all else waits meanwhile


class Inquiries:
    """A socket that only who may enter the directory can find; a context manager. Whoever connects has asked."""

    def __init__(self, directory: str) -> None:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.setblocking(False)
        self._path = os.path.join(directory, INQUIRIES)

    def __enter__(self) -> Inquiries:
        self._listener.bind(self._path)
        self._listener.listen()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        with suppress(OSError):
            os.unlink(self._path)

    def fileno(self) -> int:
        """Return the file that can be read when somebody asks."""
        return self._listener.fileno()

    def answer(self, tell: Callable[[], bytes]) -> None:
        """Answer all that have asked, at the same time, with what `tell` returns; it is not called if nobody has."""
        told: bytes | None = None
        while (asker := self._next()) is not None:
            with asker, suppress(OSError):  # it has not waited for the answer
                told = tell() if told is None else told
                asker.settimeout(PATIENCE)
                asker.sendall(told)

    def _next(self) -> socket.socket | None:
        try:
            return self._listener.accept()[0]
        except OSError:  # nobody, or it has gone again
            return None
