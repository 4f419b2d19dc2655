"""The time limit of a run, with the start of its ranks."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from ringcast._util.safe_text import safe_text

GRACE = 5.0  # seconds in which all ranks must have ended a run that is broken off
LONGEST = 1e9  # seconds; more is no limit, and more than the system can wait for


def deadline(timeout: Any) -> float | None:
    """Return the end of a run that begins now, on the clock of `time.monotonic`; None: it has no limit.

    Raises:
        ValueError: the timeout is no number of seconds above 0.
    """
    if timeout is None:
        return None
    if not (isinstance(timeout, int | float | np.integer | np.floating) and timeout > 0):
        raise ValueError(f"timeout={safe_text(timeout)}: expected a number of seconds above 0")
    return None if timeout >= LONGEST else time.monotonic() + float(timeout)


def left(until: float | None) -> float | None:
    """Return the seconds until a time of `deadline`, at least 0; None: no limit."""
    return None if until is None else max(0.0, until - time.monotonic())
