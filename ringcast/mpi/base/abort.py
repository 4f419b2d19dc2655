"""Ending the job from within a rank."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Any, NoReturn

from ringcast.wire.control_messages import Failing
from ringcast.wire.failure import Failure


def abort(comm: Any, code: int) -> NoReturn:
    """End this process, and with it the job, with an exit code: its last 8 bits, or 1 if these are 0."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # closed, or none
            stream.flush()
    endpoint = comm._group.endpoint
    endpoint.control.send(Failing(endpoint.rank, Failure(f"MPI.Abort({code})")))
    endpoint.control.close()
    os._exit(code & 0xFF or 1)
