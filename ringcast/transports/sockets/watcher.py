"""Watch all files of a transport by one epoll, and call the owner of a file at an event."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable
from math import inf

IN, OUT = select.EPOLLIN, select.EPOLLOUT
_MANY = 64  # events that are taken at once
_FEWEST, _MOST = 4, 64  # looks before a wait; each takes a microsecond, if no other process wants to run
_SHORT = 200e-6  # seconds; after a shorter wait there are more looks before the next one
# Seconds; if one look takes longer, a process that does not wait for messages has this processor, for all of its slice.
# Ranks that share a processor take turns in less.
_TAKEN = 2e-3
_CROWDED = 256  # waits without looks after that


class Watcher:
    """Calls the owners of files at events. A call may find no event; errors and ends are always reported."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._looks = _FEWEST
        self._crowded = 0  # waits that are to come without looks
        self._owners: dict[int, Callable[[], None]] = {}
        self._new: set[int] = set()  # files added since the last look, which may reuse the numbers of closed ones

    def fileno(self) -> int:
        """Return a descriptor that is readable as long as `wait` would not wait."""
        return self._epoll.fileno()

    def add(self, file: int, events: int, owner: Callable[[], None]) -> None:
        """Watch a file."""
        self._epoll.register(file, events)
        self._owners[file] = owner
        self._new.add(file)

    def change(self, file: int, events: int) -> None:
        """Watch a file for other events."""
        self._epoll.modify(file, events)

    def pass_on(self, file: int, events: int, owner: Callable[[], None]) -> None:
        """Give a file another owner."""
        self._epoll.modify(file, events)
        self._owners[file] = owner

    def remove(self, file: int) -> None:
        """Stop watching a file; call this before the file is closed."""
        if self._owners.pop(file, None) is not None:
            self._epoll.unregister(file)

    def wait(self, until: float) -> None:
        """Wait for events, at most until this time (inf: without limit), and call the owners."""
        new, owners = self._new, self._owners
        if new:
            new.clear()
        for file, _ in self._epoll.poll(0, _MANY) or self._look(until):
            if file not in new and (owner := owners.get(file)) is not None:
                owner()

    def _look(self, until: float) -> list[tuple[int, int]]:
        """Return the files with events until this time, where there are none now.

        Before the wait it looks a few times, more often if waits were short lately, and lets others run in between: so
        the processor is not idle when a message comes; to wake an idle processor takes longer than many looks. Ranks
        that share a processor hand it on in this way, without a wake-up. But a process that computes would keep it for
        many messages each time; where there is one, no looks are made for a while, as the kernel interrupts it for a
        rank that waits.
        """
        began = now = time.monotonic()
        if now >= until:
            return []
        if self._crowded:
            self._crowded -= 1
        else:
            for _ in range(self._looks):
                before = now
                os.sched_yield()
                events = self._epoll.poll(0, _MANY)
                now = time.monotonic()
                if now - before >= _TAKEN:
                    self._crowded = _CROWDED
                if events:
                    return events
                if now - began >= _SHORT:
                    break
        events = self._epoll.poll(None if until == inf else max(0.0, until - now), _MANY)
        short = bool(events) and time.monotonic() - now < _SHORT
        self._looks = min(2 * self._looks, _MOST) if short else max(self._looks // 2, _FEWEST)
        return events

    def close(self) -> None:
        """Close the epoll; idempotent."""
        self._epoll.close()
