"""Keep the time limit for the start of all hosts and their workers."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from ringcast_launcher.decide.supervisor import TIMED_OUT, timed_out
from ringcast_launcher.plan.job import JobError

NAMED = 5  # missing hosts that an error names


class StartDeadline:
    """A limit that runs from its construction. `due` is its end on the monotonic clock, `seconds` its length."""

    def __init__(self, seconds: float, *, start: float, timeout: float | None) -> None:
        """Begin a limit of `seconds`; the `timeout` of the whole job, counted from `start`, may end it earlier."""
        self.seconds, self._timeout = seconds, timeout
        self._end = math.inf if timeout is None else start + timeout
        self.due = min(time.monotonic() + seconds, self._end)

    @property
    def over(self) -> bool:
        """True once the time is over."""
        return time.monotonic() >= self.due

    def end_if_timed_out(self, missing: Sequence[str]) -> None:
        """Check that the time of the whole job (--timeout) is not over; `missing` are the hosts that have not started.

        Raises:
            JobError: the time is over.
        """
        if self._timeout is not None and time.monotonic() >= self._end:
            more = f" and {len(missing) - NAMED} more" if len(missing) > NAMED else ""
            text = f"{timed_out(self._timeout)}; not started yet: {', '.join(missing[:NAMED])}{more}"
            raise JobError(text, TIMED_OUT)
