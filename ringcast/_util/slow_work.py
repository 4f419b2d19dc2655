"""Say that work is under way, if it takes longer than people like to wait in silence."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

SILENCE = 2.0  # seconds


@contextmanager
def told_if_slow(show: Callable[[str], object] | None, text: str, silence: float = SILENCE) -> Iterator[None]:
    """Let `show` show a text if the block takes longer than `silence`, and "" at its end; None: nothing is shown."""
    if show is None:
        yield
        return
    shown = threading.Event()
    timer = threading.Timer(silence, _show, (show, text, shown))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        if shown.is_set():
            _show(show, "", shown)


def _show(show: Callable[[str], object], text: str, shown: threading.Event) -> None:
    shown.set()
    with suppress(OSError):  # the terminal is gone: the work goes on
        show(text)
