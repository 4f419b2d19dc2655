"""Try again what may succeed the next time: the limits of all reads of a source, and the loop of a read that waits."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import Any, Protocol, TypeVar

from ringcast.transfer.sources.base import Busy, Interrupted

MOST = 5  # tries without a byte between them
BACKOFF = 0.1  # seconds after the first of them; twice as long after each further one
LONGEST_PAUSE = 600.0  # seconds; a server that asks for more is given up
_LOOK = 0.1  # seconds after which a rank that waits asks whether others have failed
_UNUSED = (1 << 32) - 1  # a tag that a program has hardly given to a message

Result = TypeVar("Result")


class Ranks(Protocol):
    """The part of a communicator by which a rank that waits hears of the others."""

    def iprobe(self, source: int = ..., tag: int = ...) -> Any: ...


def tried(comm: Ranks, step: Callable[[], Result], done: Callable[[], int] = lambda: 0) -> Result:
    """Return the result of a step, which is taken again after a failure that may pass.

    `done` is the number of bytes that have come: a step that gets further begins to count its tries anew.

    Raises:
        Trouble: of the last try.
        PeerFailed, Revoked, JobAborted: a rank failed, or communicator or job was given up, meanwhile.
    """
    tries = before = 0
    while True:
        try:
            return step()
        except (Interrupted, Busy) as error:
            tries = 1 if done() > before else tries + 1
            before = done()
            asked = error.after if isinstance(error, Busy) else None
            wait = max(BACKOFF * 2 ** (tries - 1), asked or 0.0)
            if tries == MOST or wait > LONGEST_PAUSE:
                raise
            _wait(comm, wait)


def _wait(comm: Ranks, seconds: float) -> None:
    """Wait, while other ranks wait for the bytes of this one; end by an error if they need not any more."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        comm.iprobe(tag=_UNUSED)
        time.sleep(min(left, _LOOK))


def seconds_of(after: str | None) -> float | None:
    """Return the seconds that a header Retry-After asks for, as a number or as a date; None if it is neither."""
    with suppress(ValueError, TypeError, OverflowError):
        return max(0.0, float(after or "none"))
    with suppress(ValueError, TypeError, OverflowError):
        return max(0.0, parsedate_to_datetime(after or "").timestamp() - time.time())
    return None
