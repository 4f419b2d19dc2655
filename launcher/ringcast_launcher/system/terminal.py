"""The modes of a terminal: what a rank that was killed at a prompt has left as it needed them."""

from __future__ import annotations

import os
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def kept_modes(file: int) -> Iterator[None]:
    """Have the terminal `file`, if it is one, as it was at the end; not while it belongs to somebody else."""
    before = None
    with suppress(termios.error):
        before = termios.tcgetattr(file)
    try:
        yield
    finally:
        with suppress(OSError, termios.error):
            if before is not None and os.tcgetpgrp(file) == os.getpgrp() and termios.tcgetattr(file) != before:
                termios.tcsetattr(file, termios.TCSANOW, before)
