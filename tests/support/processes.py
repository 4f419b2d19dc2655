"""Processes that a test looks at while they end."""

from __future__ import annotations

from contextlib import suppress

import psutil


def alive(process: psutil.Process) -> bool:
    """Return whether a process has not ended, be it awaited or not."""
    with suppress(psutil.NoSuchProcess):  # it may end between the two looks
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False
