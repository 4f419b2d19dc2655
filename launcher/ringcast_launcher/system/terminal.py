"""Restore the modes of a terminal after a job: a rank that was killed at a prompt may have changed them."""

from __future__ import annotations

import os
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def kept_modes(file: int) -> Iterator[None]:
    """Restore the modes of `file` at the end, if it is a terminal and our process group has it then."""
    before = None
    with suppress(termios.error):
        before = termios.tcgetattr(file)
    try:
        yield
    finally:
        with suppress(OSError, termios.error):
            if before is not None and os.tcgetpgrp(file) == os.getpgrp() and termios.tcgetattr(file) != before:
                termios.tcsetattr(file, termios.TCSANOW, before)
