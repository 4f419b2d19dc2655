"""Try again what may succeed the next time, and give up in time: the limits of all reads of a source.

A rank that reads for others works in a thread. So it hears of their failures while its source says nothing, and the
timeout of the communicator ends its wait as it ends theirs.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import Any, Protocol, TypeVar

from ringcast._util.dataclass import dataclass
from ringcast.transfer.sources.base import Busy, Connection, Interrupted

MOST = 5  # tries without a byte between them
BACKOFF = 0.1  # seconds after the first of them; twice as long after each further one
LONGEST_PAUSE = 600.0  # seconds; a server that asks for more is given up
_SHARE = 0.9  # of a timeout: the reader gives up before the ranks that wait for it, so that all raise its error
_LOOK = 0.1  # seconds after which a rank that waits asks whether others have failed
_GRACE, _AGAIN = 0.5, 0.02  # seconds that an interrupted read has to end at most, and between two interruptions
_SHARE_OF_GRACE = 0.02  # of a timeout
_UNUSED = (1 << 32) - 1  # a tag that a program has hardly given to a message

Result = TypeVar("Result")


class Ranks(Protocol):
    """The part of a communicator by which a rank that waits hears of the others."""

    timeout: float | None

    def iprobe(self, source: int = ..., tag: int = ...) -> Any: ...


@dataclass(frozen=True, slots=True)
class Limit:
    """The time without a byte after which a source is given up, by the timeout of the communicator."""

    timeout: float | None = None

    @property
    def seconds(self) -> float:
        """The time, in seconds; infinite if there is no timeout."""
        return math.inf if self.timeout is None else _SHARE * self.timeout

    @property
    def grace(self) -> float:
        """Seconds for the end of a read that is given up."""
        return _GRACE if self.timeout is None else min(_GRACE, _SHARE_OF_GRACE * self.timeout)

    def passed(self, reason: str) -> Interrupted:
        """Return the error of a source that gave nothing for this time; `reason`: why the last try failed, or empty."""
        why = f" ({reason})" if reason else ""
        timeout = f"the timeout of the communicator is {self.timeout:g} s"
        return Interrupted(f"nothing came for {self.seconds:.3g} s{why}; {timeout}")


class Wait:
    """A wait for a source, as the thread that reads and the one that watches over it see it."""

    def __init__(self) -> None:
        self.nbytes = 0  # that have come
        self.heard = time.monotonic()  # when the last one came, or the wait began
        self.reason = ""  # of the last try that failed
        self.over = threading.Event()  # nothing is read any more
        self.busy = False  # whether a thread reads
        self._connection: Connection | None = None

    def uses(self, connection: Connection) -> None:
        """Note the connection by which the thread reads."""
        self._connection = connection

    def came(self, length: int) -> None:
        """Count bytes that have come."""
        self.nbytes += length
        self.heard = time.monotonic()

    def interrupt(self) -> None:
        """Have the read end soon, and no further try begin."""
        self.over.set()
        if (used := self._connection) is not None:
            used.interrupt()


def tried(wait: Wait, step: Callable[[], Result]) -> Result:
    """Return the result of a step, which is taken again after a failure that may pass.

    A step that gets further begins to count its tries anew.

    Raises:
        Trouble: of the last try.
    """
    tries, before = 0, wait.nbytes
    while True:
        try:
            return step()
        except (Interrupted, Busy) as error:
            tries = 1 if wait.nbytes > before else tries + 1
            before, wait.reason = wait.nbytes, error.reason
            asked = error.after if isinstance(error, Busy) else None
            pause = max(BACKOFF * 2 ** (tries - 1), asked or 0.0)
            if tries == MOST or pause > LONGEST_PAUSE or wait.over.wait(pause):
                raise


def watched(comm: Ranks, wait: Wait, work: Callable[[], Result]) -> Result:
    """Return the result of work that waits for a source; it is done in a thread.

    Raises:
        Trouble: of the work; Interrupted: no byte came for the time that the communicator's timeout allows.
        PeerFailed, Revoked, JobAborted: a rank failed, or communicator or job was given up, meanwhile.
        Exception: whatever else the work raises.
    """
    found = Future[Result]()

    def run() -> None:
        try:
            result = work()
        except BaseException as error:  # whatever it is: this rank waits
            wait.busy = False
            found.set_exception(error)
        else:
            wait.busy = False
            found.set_result(result)

    limit, wait.heard, wait.busy, wait.reason = Limit(comm.timeout), time.monotonic(), True, ""
    threading.Thread(target=run, name="ringcast source", daemon=True).start()
    try:
        while not _done(found, min(_LOOK, wait.heard + limit.seconds - time.monotonic())):
            comm.iprobe(tag=_UNUSED)
            if time.monotonic() - wait.heard >= limit.seconds and not found.done():
                raise limit.passed(wait.reason)
    except BaseException:
        _end(wait, found, limit.grace)
        raise
    return found.result()


def _done(found: Future[Any], seconds: float) -> bool:
    """Return whether a thread has ended; wait for that."""
    return bool(wait_for([found], max(0.0, seconds)).done)


def _end(wait: Wait, found: Future[Any], grace: float) -> None:
    """End the thread that reads; one that nothing interrupts is left to the time limits of system and packages."""
    until = time.monotonic() + grace
    while not found.done() and time.monotonic() < until:
        wait.interrupt()
        _done(found, _AGAIN)


def seconds_of(after: str | None) -> float | None:
    """Return the seconds that a header Retry-After asks for, as a number or as a date; None if it is neither."""
    with suppress(ValueError, TypeError, OverflowError):
        return max(0.0, float(after or "none"))
    with suppress(ValueError, TypeError, OverflowError):
        return max(0.0, parsedate_to_datetime(after or "").timestamp() - time.time())
    return None
