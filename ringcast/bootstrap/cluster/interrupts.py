"""Interrupts of the caller of a cluster: put off to places where the state of the ranks is known."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Self


class Interrupts:
    """Context manager in which SIGINT is recorded and ends a wait by `wake`; its handler runs in `deliver`.

    In other threads than the main one it does nothing: handlers run in the main thread only.
    """

    def __init__(self, wake: Callable[[], object]) -> None:
        self._wake = wake
        self._handler: Any = None  # the program's; None: SIGINT is not put off
        self._frame: FrameType | None = None
        self._pending = False

    def __enter__(self) -> Self:
        handler = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is threading.main_thread() and callable(handler):
            self._handler = handler
            signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        if self._handler is not None:
            signal.signal(signal.SIGINT, self._handler)
            self.deliver()  # of one that came in the last moment: nothing is under way any more

    def _note(self, _: int, frame: FrameType | None) -> None:
        self._pending, self._frame = True, frame
        self._wake()

    def deliver(self) -> None:
        """Run the program's handler if SIGINT has come since, and let its error pass."""
        if self._pending:
            self._pending = False
            frame, self._frame = self._frame, None
            self._handler(signal.SIGINT, frame)
