"""End the job from within a rank."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Any, NoReturn

from ringcast.wire.control_messages import Failing
from ringcast.wire.failure import Failure


def abort(comm: Any, code: int) -> NoReturn:
    """End this process, and with it the job, with an exit code: its last 8 bits, or 1 if these are 0.

    Programs call it when they have caught an error, also in `sys.excepthook`. The report has that error, and the ranks
    that the error blames, so that the launcher can name the rank that failed first.
    """
    endpoint = comm._group.endpoint
    endpoint.control.send(Failing(endpoint.rank, _failure(code, sys.exception() or getattr(sys, "last_value", None))))
    leave(endpoint, code)


def leave(endpoint: Any, code: int) -> NoReturn:
    """End this process, when the launcher has its output and the cause."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # closed, or none
            stream.flush()
    endpoint.control.close()
    os._exit(code & 0xFF or 1)


def _failure(code: int, error: BaseException | None) -> Failure:
    call = f"MPI.Abort({code})"
    if error is None:
        return Failure(call)
    why = Failure.of(error)
    return Failure(f"{call} after {why.cause}", blames=why.blames)
