"""Find out whether gevent or eventlet has replaced Python's blocking calls, which ringcast cannot run on.

Their replacements switch to another coroutine of the same thread. ringcast waits in the kernel, and its control thread
must answer the launcher meanwhile: as a coroutine of the waiting thread it never runs, and the job hangs.
"""

from __future__ import annotations

import _thread
import queue
import select
import socket
import time

from ringcast.errors import UsageError

_WAITS = (
    (_thread, "start_new_thread"), (_thread, "allocate_lock"), (time, "sleep"), (socket, "socket"),
    (select, "select"), (queue, "SimpleQueue"),
)  # fmt: skip
_ADVICE = {
    "gevent": "or call gevent.monkey.patch_all(thread=False, socket=False, select=False, queue=False, time=False)",
    "eventlet": "or use eventlet without monkey_patch",
}


def refuse(place: str) -> None:
    """Check that Python's blocking calls are its own; `place` says in the error which process cannot run.

    Raises:
        UsageError: gevent or eventlet has replaced them; the text says what to do.
    """
    if library := patched_by():
        raise UsageError(
            f"{place}: {library} has replaced Python's threads, sockets and waits by its own (monkey patching), on "
            f"which ringcast would hang; do not patch this process, {_ADVICE[library]}"
        )


def patched_by() -> str | None:
    """Return the name of the library that has replaced one of Python's blocking calls; None if they are Python's own.

    Wrappers of debuggers and profilers call the original and do no harm, so only known libraries count.
    """
    for module, name in _WAITS:
        library = str(getattr(getattr(module, name), "__module__", "")).partition(".")[0]
        if library in _ADVICE:
            return library
    return None
