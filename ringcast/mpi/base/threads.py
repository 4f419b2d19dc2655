"""Programs of several threads: the engine of a rank is shared when another thread is there, and not before.

Only the thread that makes calls can start another one, so none appears in the middle of a call. A thread that calls
while others exist has the engine shared first (`ringcast.engine.shared`): a program of one thread pays a look at the
threads for each call, a tenth of a microsecond.
"""

from __future__ import annotations

import os
import threading
from threading import _active as by_number  # type: ignore[attr-defined]  # to ask for a list takes a microsecond

from ringcast.engine.shared import share
from ringcast.requests.caller import Caller

_LOCK = threading.Lock()
_OURS: set[threading.Thread] = set()  # the thread that makes calls, and ringcast's own


def enter(caller: Caller, operation: str) -> float | None:
    """Return the time limit of a call, which any thread may make.

    Raises:
        RingcastError: the communicator makes no calls any more.
    """
    let_threads_call(caller)
    return caller._enter(operation)


def let_threads_call(caller: Caller) -> None:
    """Have the engine of a rank shared, if the program has several threads now."""
    if not of_one_thread():
        _share(caller)


def of_one_thread() -> bool:
    """Return whether no other thread than the one that makes calls is there; False also before its first call."""
    return _OURS.issuperset(by_number.values())


def _share(caller: Caller) -> None:
    endpoint = caller._group.endpoint
    if endpoint.shared or endpoint.closed or endpoint.torn:
        return
    _, owner = caller._owner
    threads = threading.enumerate()
    if all(thread.ident == owner or thread.name.startswith("ringcast-") for thread in threads):
        _OURS.update(threads)
        return
    with _LOCK:
        share(endpoint)


def give_way() -> None:
    """Let other processes run: a program that polls in vain polls again at once, and ranks may share cores."""
    os.sched_yield()
