"""End the rank when a call that this layer lacks has ended a thread of the program."""

from __future__ import annotations

import sys
import threading
from typing import Any

from ringcast.mpi.base.abort import leave
from ringcast.mpi.unsupported import Unsupported


def end_with_threads(endpoint: Any) -> None:
    """End this rank if a call that this layer lacks ends a thread.

    Python lets the other threads go on, but they may wait for that one: executors of mpi4py start processes in a
    thread, and its error does not reach their futures.
    """
    previous = threading.excepthook

    def hook(args: threading.ExceptHookArgs) -> None:
        interactive = hasattr(sys, "ps1")  # a user sees the error, and would lose the state of the session
        if interactive or not isinstance(args.exc_value, Unsupported):
            previous(args)
            return
        sys.excepthook(args.exc_type, args.exc_value, args.exc_traceback)
        leave(endpoint, 1)

    threading.excepthook = hook
