"""The gate of an engine that several threads use: it lets in one at a time, and calls the threads that wait outside.

A thread that waits for a message gives the lock back meanwhile. What wakes it is a bell of its own, a queue: to put
something there needs no lock, so that the handler of a signal may do it at any instruction of the thread that waits.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Protocol

from ringcast.engine.signal_gate import Gate, gate_of_this_thread
from ringcast.errors import UsageError


class Bell(Protocol):
    """A function to call when some call may be complete."""

    def put(self, _: None) -> None:
        """Ring; from any thread."""


class Sleeper:
    """The bell of a thread that waits."""

    def __init__(self) -> None:
        self._rung: SimpleQueue[None] = SimpleQueue()
        self.put = self._rung.put

    def wake(self) -> None:
        """Ring; called by a signal's handler in the waiting thread."""
        self._rung.put(None)

    def sleep(self, seconds: float | None) -> None:
        """Wait until it rings, for so many seconds at most."""
        with suppress(Empty):
            self._rung.get(timeout=None if seconds is None else min(max(0.0, seconds), threading.TIMEOUT_MAX))


class SharedGate(Gate):
    """Lets one thread in at a time, which may enter again while it is in; keeps signals off as before.

    Attributes:
        bells: of the threads, and of the loops of asyncio, that wait; used by the thread that is in.
        inside: the threads that are in a call, those included that wait there; twice, if the handler of a signal makes
            a call of its own meanwhile.
        refusal: why no thread comes in any more, and none waits; empty while the rank is in its job.
    """

    def __init__(self, settle: Callable[[], None]) -> None:
        """`settle` is called by a thread that goes out, before the next one comes in."""
        super().__init__()
        self._settle = settle
        self._lock = threading.Lock()
        self._owner, self._depth = 0, 0  # the thread that is in, and how many calls deep
        self._main, self._no_signals = threading.main_thread().ident, Gate()
        self.bells: list[Bell] = []
        self.inside: list[int] = []
        self.refusal = ""

    def signals(self) -> Gate:
        """Return the gate that keeps signals off this thread: they come to the main thread only."""
        return gate_of_this_thread() if threading.get_ident() == self._main else self._no_signals

    def __enter__(self) -> Gate:
        signals, thread = self.signals(), threading.get_ident()
        signals.__enter__()
        if self._owner != thread:
            try:
                self._lock.acquire()
                if self.refusal:
                    self._lock.release()
                    raise UsageError(self.refusal)
            except BaseException:
                signals.__exit__(*sys.exc_info())
                raise
            self._owner = thread
            self.inside.append(thread)
        self._depth += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._depth > 1:
                self._depth -= 1
            else:
                self._go_out()
        finally:
            self.signals().__exit__(kind, error, trace)

    def _go_out(self) -> None:
        self.inside.remove(self._owner)
        try:
            if self.refusal:
                self.ring()  # for the thread that leaves when all are out
            else:
                self._settle()
        finally:
            self._depth = self._owner = 0
            self._lock.release()

    def step_out(self) -> int:
        """Let others in, in the middle of a call; return what `step_in` takes."""
        depth, self._depth, self._owner = self._depth, 0, 0
        self._lock.release()
        return depth

    def step_in(self, depth: int) -> None:
        """Come in again, whatever a signal's handler raises meanwhile."""
        error: BaseException | None = None
        while True:
            try:
                self._lock.acquire()
                break
            except BaseException as raised:  # of a handler that is not put off any more; this thread has to be in
                error = raised
        self._depth, self._owner = depth, threading.get_ident()
        if error is not None:
            raise error

    def replaced_by(self, gate: Gate) -> Gate:  # noqa: ARG002 (the gate of one thread)
        return self

    def left(self) -> Gate:
        return self  # which refuses whoever still comes

    def ring(self) -> None:
        """Have all that wait look again."""
        for bell in self.bells:
            bell.put(None)
