"""Checks before every call: process, thread, timeout; and the record of errors that a program catches."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterable

import numpy as np

from ringcast._util.safe_text import safe_text
from ringcast.collectives.stage import Group
from ringcast.errors import ArgumentError, JobAborted, UsageError
from ringcast.procs import green_threads
from ringcast.procs.child_processes import GUARD
from ringcast.wire.call import Site, in_words


class Caller:
    """One rank's side of a communicator: the process and the thread that it belongs to."""

    def __init__(self, group: Group, timeout: float | None) -> None:
        self._group = group
        self.timeout = timeout
        self._owner = os.getpid(), threading.get_ident()
        self._closed = False

    def progress_thread(self) -> None:
        """Start a thread of ringcast that makes progress on this rank, and let any thread make calls.

        Calls under way then go on while the program computes, whenever the program releases the interpreter's lock:
        numpy does in operations on large arrays. Operators, and the pickling of objects, may run in that thread, or in
        any other that makes a call. A call costs more: a lock, and mostly two switches of threads.
        `init(threads="multiple")` does the same. It concerns all communicators of this rank, and no other rank; it
        lasts until the rank leaves.

        All ranks still make the collectives of one communicator in the same order: threads that make them use a
        communicator each (`dup`), or messages with tags of their own.

        Raises:
            UsageError: it is called in the middle of a call, as by the handler of a signal.
            RuntimeError: the system starts no thread.

        >>> comm.progress_thread()
        >>> comm.allreduce(1)
        1
        """
        from ringcast.engine.shared import share  # by the few programs that need it: a rank starts 1 ms sooner

        self._check("progress_thread")
        share(self._group.endpoint)

    def _enter(self, operation: str, timeout: float | None = None) -> float | None:
        """Return how long a collective may take; see `_check`.

        Raises:
            UsageError: also if a request was dropped without wait.
        """
        timeout = self._check(operation, timeout)
        if self._group.endpoint.dropped and (calls := self._take_dropped()):
            raise self._not_waited_for(calls)
        return timeout

    def _take_dropped(self) -> list[tuple[str, Site]]:
        """Return the calls whose requests the program has dropped since the last time."""
        dropped, calls = self._group.endpoint.dropped, []
        with self._group.endpoint.gate:  # two threads do not name the same ones
            for _ in range(len(dropped)):  # the garbage collector may drop another request at any moment
                calls.append(dropped.pop(0))
        return calls

    def _not_waited_for(self, calls: Iterable[tuple[str, Site]]) -> UsageError:
        return not_waited_for(self._group.rank, calls)

    def _raised(self, error: BaseException, operation: str, site: Site) -> None:
        """Note an error that the program gets now: the job has failed, even if the program catches it and goes on."""
        group = self._group
        group.endpoint.unanswered.raised(group.context, error, operation, site)

    def _check(self, operation: str, timeout: float | None = None) -> float | None:
        """Return how long a call of `operation` may take; `timeout` is the call's own limit.

        Raises:
            UsageError: this process or thread may not make the call, or the communicator is closed.
            JobAborted: a message was broken off in the middle, so this rank cannot communicate any more.
            ArgumentError: `timeout` is no time.
        """
        pid, thread = self._owner
        endpoint = self._group.endpoint
        if os.getpid() != pid:
            raise UsageError(
                f"rank {self._group.rank}: this process was forked from process {pid}, to which the communicator "
                "belongs; start ranks with ringcast-launch or ringcast.run, and children with the spawn method and "
                f"init under `{GUARD}`"
            )
        if self._closed or endpoint.closed:
            raise UsageError(
                f"rank {self._group.rank}: the communicator was finalized or freed; call {operation} before that"
            )
        if threading.get_ident() != thread and not endpoint.shared:
            green_threads.refuse(f"rank {self._group.rank}")  # gevent, patched in after init, changes thread numbers
            raise UsageError(
                f"rank {self._group.rank}: the communicator belongs to another thread; call it only from the thread "
                'that called init, or allow several: init(threads="multiple"), or progress_thread() of a communicator'
            )
        if endpoint.torn:
            raise JobAborted(endpoint.rank, endpoint.torn)
        timeout = self.timeout if timeout is None else timeout
        if timeout is None:
            return None
        if not (isinstance(timeout, int | float | np.integer | np.floating) and timeout > 0):
            expected = f"expected a number of seconds above 0, got {safe_text(timeout)}"
            raise ArgumentError(self._group.rank, operation, "timeout", expected)
        try:
            return float(timeout)
        except OverflowError:  # an int beyond all floats
            return math.inf


def not_waited_for(rank: int, calls: Iterable[tuple[str, Site]]) -> UsageError:
    """Return the error of a rank whose program does not wait for these requests."""
    named = ", ".join(in_words(operation, site) for operation, site in calls)
    return UsageError(f"rank {rank}: a request was dropped without wait: {named}; call wait() of every request")
