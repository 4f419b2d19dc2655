"""Signal handlers and the engine: Python handlers run between the steps of a call, never in the middle of one.

A handler may raise, as Python's own of Ctrl-C does, at any instruction. In the middle of the engine that would lose a
message that was read from the socket, or the number of one that is never sent. So handlers of the program are wrapped:
during a call a signal is recorded, and its handler runs at the next safe point, which is before each wait and at the
end of the call. A signal ends a wait at once.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from _signal import getsignal  # type: ignore[import-not-found]  # the one of `signal` makes enums, ten times slower
from collections.abc import Callable
from types import CodeType, FrameType, TracebackType
from typing import Any, Protocol, TypeAlias, TypeVar

NUMBERS = tuple(
    map(
        int,
        (
            signal.SIGHUP,
            signal.SIGINT,
            signal.SIGQUIT,
            signal.SIGUSR1,
            signal.SIGUSR2,
            signal.SIGALRM,
            signal.SIGTERM,
            signal.SIGVTALRM,
            signal.SIGPROF,
        ),
    )
)
PATIENCE = 1.0  # seconds after which a signal that comes again does not wait for a safe point any more

Handler: TypeAlias = Callable[[int, FrameType | None], Any]
Function = TypeVar("Function", bound=Callable[..., object])

_CALLED_FROM_C: set[CodeType] = set()


def called_from_c(function: Function) -> Function:
    """Mark a function that C calls, and that catches all errors: handlers wait until it makes a call of ringcast.

    A signal that has come while C ran is handled before the first line of the function, where nothing is caught yet: C
    would go on as if the function had been called.
    """
    _CALLED_FROM_C.add(function.__code__)
    return function


class Waiter(Protocol):
    """An engine that may be waiting for a message."""

    def wake(self) -> None:
        """End the wait under way, or the next one; called by a signal's handler in the waiting thread."""


class Gate:
    """Context manager for calls in a thread in which no signal handlers run: it does nothing."""

    def __init__(self) -> None:
        self.pending: dict[int, tuple[Handler, float]] = {}  # by number: the handler, and when the signal came
        self.waiter: Waiter | None = None  # the engine that waits, or is about to

    def __enter__(self) -> Gate:
        """Close the gate."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Open it, and run the handlers that are pending."""

    def deliver(self) -> None:
        """Run the handlers that are pending, here and now; what one raises is raised."""

    def restore(self) -> None:
        """Restore the program's handlers."""

    @property
    def closed(self) -> bool:
        """Whether a call is known to be under way, or a wait that another gate must not be put in the way of."""
        return False

    def replaced_by(self, gate: Gate) -> Gate:
        """Return the gate of an engine that has this one, when the thread with that `gate` is to use it."""
        return gate

    def left(self) -> Gate:
        """Take note that the rank leaves its job, and return the gate of its engine from then on."""
        return Gate()  # a handler that raises may end that only when all is done


class SignalGate(Gate):
    """The gate of the main thread: closed from the beginning of the outermost call to its end."""

    def __init__(self) -> None:
        super().__init__()
        self._depth = 0  # calls under way; 0: the gate is open
        self._woken = False
        self._seen: list[object] = []  # the handlers of NUMBERS, wrapped, when they were last looked at

    @property
    def closed(self) -> bool:
        return self._depth > 0

    def __enter__(self) -> Gate:
        if [*map(getsignal, NUMBERS)] != self._seen:
            self._wrap()
        self._depth += 1
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._depth -= 1
        if self.pending and not self._depth:
            self.deliver()

    def deliver(self) -> None:
        depth, waiter = self._depth, self.waiter
        self.waiter = None
        self._depth = 0
        try:
            self._woken = False
            while self.pending:
                number = next(iter(self.pending))
                handler, _ = self.pending.pop(number)
                handler(number, sys._getframe(1))
            self.waiter = waiter  # before the gate is closed: from then on a signal has to end the wait
        finally:
            self._depth = depth

    def note(self, number: int, frame: FrameType | None, handler: Handler) -> None:
        """Take note of a signal: its handler runs now if the gate is open, else at the next safe point.

        One that comes again after PATIENCE, as Ctrl-C in an operator that hangs, is not put off any more, but for a
        function that is `called_from_c`.
        """
        from_c = frame is not None and frame.f_code in _CALLED_FROM_C
        if not self._depth and not from_c:
            handler(number, frame)
            return
        now = time.monotonic()
        _, first = self.pending.setdefault(number, (handler, now))
        if now - first >= PATIENCE and not from_c:
            del self.pending[number]
            handler(number, frame)
        elif self.waiter is not None and not self._woken:
            self._woken = True
            self.waiter.wake()

    def restore(self) -> None:
        for number in NUMBERS:
            handler = getsignal(number)
            if isinstance(handler, Deferred):
                signal.signal(number, handler.__wrapped__)
        self._seen = []

    def _wrap(self) -> None:
        """Wrap the program's handlers; what the system does by itself, or ignores, stays as it is."""
        for number in NUMBERS:
            handler = getsignal(number)
            if callable(handler) and not isinstance(handler, Deferred):
                signal.signal(number, Deferred(self, handler))
        self._seen = [*map(getsignal, NUMBERS)]


class Deferred:
    """A handler of the program, `__wrapped__`, as it is installed from the first call on until the job is left."""

    def __init__(self, gate: SignalGate, handler: Handler) -> None:
        self._gate, self.__wrapped__ = gate, handler

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self._gate.note(number, frame, self.__wrapped__)


_MAIN = SignalGate()


def gate_of_this_thread() -> Gate:
    """Return the gate for calls made by this thread; handlers of signals run in the main thread only."""
    return _MAIN if threading.get_ident() == threading.main_thread().ident else Gate()
