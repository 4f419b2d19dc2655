"""Draw the status line of a long job: one line at the bottom of the terminal, with the present operations of the ranks.

`Status` computes the text, `Line` (of `ringcast._util.last_line`) the bytes that draw it. The thread that writes the
output (`output.Writer`) erases it before it writes anything else, and draws it again later.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Sequence

from ringcast.monitoring.progress import ProgressSnapshot

DELAY = 5.0  # seconds that a job runs before there is a line: a shorter wait needs none
EVERY = 1.0  # seconds from one look at the ranks to the next
LOOKS = 5  # intervals over which the rate is a mean
NAMED = 3  # missing hosts that the line names


class Status:
    """Shows the progress of the ranks at intervals; `show` is `Writer.show`, None if there is no status line.

    Call `tell` when it is `due` (on the monotonic clock; never without a status line).
    """

    def __init__(
        self, show: Callable[[str], None] | None, size: int, start: float, *, delay: float = DELAY, every: float = EVERY
    ) -> None:
        self._show, self._size, self._start, self._every = show, size, start, every
        self._looks: deque[tuple[float, int]] = deque(maxlen=LOOKS + 1)  # when, and the bytes sent by then
        self.due = math.inf if show is None else start + delay

    def tell(self, now: float, up: int, seen: ProgressSnapshot) -> None:
        """Show the number of running ranks and their progress; nothing while a rank draws on the terminal itself."""
        if self._show is None:
            return
        self.due = now + self._every
        self._looks.append((now, seen.sent))
        (before, less), seconds = self._looks[0], now - self._start
        rate = (seen.sent - less) / (now - before) if now > before else None
        self._show("" if seen.drawing else running(up, self._size, seen, rate, seconds))

    def end(self) -> None:
        """Remove the line for good."""
        if self._show is not None and self._looks:
            self._show("")
        self._show, self.due = None, math.inf


def running(up: int, size: int, seen: ProgressSnapshot, rate: float | None, seconds: float) -> str:
    """Return the line about ranks that run; `rate` is in bytes per second.

    >>> from collections import Counter
    >>> running(64, 64, ProgressSnapshot(64, Counter({"#17 allreduce": 60})), 1.23e9, 83.4)
    '64 ranks up (of 64) · #17 allreduce on 60, 4 outside · 1.2 GB/s · 00:01:23'
    >>> running(3, 4, ProgressSnapshot(), None, 3600.0)  # a program that does not use ringcast
    '3 ranks up (of 4) · 01:00:00'
    """
    facts = [f"{up} rank{'s' if up != 1 else ''} up (of {size})"]
    if seen.ranks:
        facts += [_doing(seen), *([] if rate is None else [f"{_quantity(rate)}/s"])]
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return " · ".join([*facts, f"{hours:02}:{minute:02}:{second:02}"])


def starting(hosts: Sequence[str], up: Collection[str]) -> str:
    """Return the line about hosts that are being started; empty when all of them are up.

    >>> starting(["h0", "h1", "h2"], {"h1"})
    '1 of 3 hosts are up; waiting for h0, h2'
    """
    missing = [host for host in hosts if host not in up]
    if not missing:
        return ""
    more = f" and {len(missing) - NAMED} more" if len(missing) > NAMED else ""
    return f"{len(hosts) - len(missing)} of {len(hosts)} hosts are up; waiting for {', '.join(missing[:NAMED])}{more}"


def _doing(seen: ProgressSnapshot) -> str:
    """Return the two operations in which most ranks are, and the number of ranks elsewhere."""
    common = sorted(seen.operations.items(), key=lambda pair: (-pair[1], pair[0]))
    others = sum(count for _, count in common[2:])
    outside = max(0, seen.ranks - sum(seen.operations.values()))
    facts = [f"{name} on {count}" for name, count in common[:2]]
    facts += [f"{others} in others"] if others else []
    return ", ".join([*facts, *([f"{outside} outside"] if outside else [])])


def _quantity(count: float) -> str:
    """Return bytes in words, with two digits at least.

    >>> _quantity(0), _quantity(999_600), _quantity(64e6), _quantity(9.96e9)
    ('0 B', '1.0 MB', '64 MB', '10 GB')
    """
    units = ["B", "kB", "MB", "GB", "TB"]
    value = max(0.0, count)
    while len(units) > 1 and round(value) >= 1000:
        value, units = value / 1000, units[1:]
    return f"{value:.1f} {units[0]}" if units[0] != "B" and value < 9.95 else f"{value:.0f} {units[0]}"
