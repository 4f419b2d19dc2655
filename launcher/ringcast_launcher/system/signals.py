"""Turn signals into bytes on a file descriptor, so that a loop can poll them together with other files.

All signals that would kill the launcher are caught, except SIGKILL and the signals of a crash: four end the job, one is
the launcher's own, and the others are passed on to the ranks, as programs may have handlers for them.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from ringcast.procs.portable import REAL_TIME, STACKS

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_NAMED = (
    *("SIGUSR1", "SIGUSR2", "SIGALRM", "SIGVTALRM", "SIGPROF"),
    *("SIGXCPU", "SIGIO", "SIGPWR", "SIGSTKFLT"),  # the last two are not on every system
)
_OF_PROGRAMS = (int(getattr(signal, name)) for name in _NAMED if hasattr(signal, name))
PASSED_ON = frozenset((*_OF_PROGRAMS, *REAL_TIME)) - {STACKS}
CAUGHT = (*ENDING, *sorted(PASSED_ON), *([] if STACKS is None else [STACKS]))


def accept_all() -> None:
    """Unblock all signals, and stop ignoring SIGCHLD; children inherit this.

    A batch system, or a program that starts us, may have blocked signals for itself: then no end of a worker would be
    noticed, and nothing but SIGKILL would end the job.
    """
    if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


@contextmanager
def noted(numbers: Sequence[int]) -> Iterator[int]:
    """Turn these signals and SIGCHLD into bytes on a file descriptor.

    Signals that are ignored (SIGHUP under nohup) stay ignored, except SIGPIPE, which Python always ignores.
    """
    here, there = socket.socketpair()
    here.setblocking(False)
    there.setblocking(False)
    old_file = signal.set_wakeup_fd(there.fileno(), warn_on_full_buffer=False)
    wanted = [number for number in numbers if number == signal.SIGPIPE or signal.getsignal(number) != signal.SIG_IGN]
    old = {number: signal.signal(number, _noted) for number in [*wanted, signal.SIGCHLD]}
    try:
        yield here.fileno()
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(old_file)
        here.close()
        there.close()


def caught(file: int) -> bytes:
    """Return the numbers of the signals that came since the last call."""
    try:
        return os.read(file, 1 << 16)
    except BlockingIOError:
        return b""


def asks_for_states(numbers: bytes) -> bool:
    """Return whether one of these signals asks the launcher for the states of its ranks.

    It is the signal by which ranks write their stacks; programs do not use it.
    """
    return any(number == STACKS for number in numbers)


def _noted(number: int, frame: FrameType | None) -> None:
    """Do nothing: the byte on the wakeup file descriptor is what matters."""
