"""How long the start of a job may take: that of all hosts, and of the workers on them, together."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from ringcast_launcher.decide.supervisor import TIMED_OUT, timed_out
from ringcast_launcher.plan.job import JobError

NAMED = 5  # hosts that are named when the time is over


class StartLimit:
    """It begins when it is made. `due` is its end on the monotonic clock, `seconds` what was allowed."""

    def __init__(self, seconds: float, *, start: float, timeout: float | None) -> None:
        """`timeout` is that of the whole job, from its `start` on; it may end the start earlier."""
        self.seconds, self._timeout = seconds, timeout
        self._end = math.inf if timeout is None else start + timeout
        self.due = min(time.monotonic() + seconds, self._end)

    @property
    def over(self) -> bool:
        """Whether the time is over."""
        return time.monotonic() >= self.due

    def end_if_timed_out(self, missing: Sequence[str]) -> None:
        """Go on unless the job's own time is over, while these hosts have not started.

        Raises:
            JobError: it is.
        """
        if self._timeout is not None and time.monotonic() >= self._end:
            more = f" and {len(missing) - NAMED} more" if len(missing) > NAMED else ""
            text = f"{timed_out(self._timeout)}; not started yet: {', '.join(missing[:NAMED])}{more}"
            raise JobError(text, TIMED_OUT)
