"""The content that the master of a pool keeps: as long as tasks need it, and for a while in case that others will."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from ringcast.pool.decide import Digest

MOST = 256  # contents that no task needs
MOST_BYTES = 256 << 20  # of all of these together


class Shelf:
    """Sizes and users of the content; pure. Content that no task needs goes in the order of its last use."""

    def __init__(self, most: int = MOST, most_bytes: int = MOST_BYTES) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._users: dict[Digest, int] = {}
        self._sizes: dict[Digest, int] = {}
        self._idle: OrderedDict[Digest, None] = OrderedDict()
        self._idle_bytes = 0

    def use(self, digest: Digest, size: int) -> bool:
        """Note that a task needs content; return whether the master has to be given it."""
        new = digest not in self._sizes
        if new:
            self._sizes[digest] = size
        elif digest in self._idle:
            del self._idle[digest]
            self._idle_bytes -= size
        self._users[digest] = self._users.get(digest, 0) + 1
        return new

    def release(self, digests: Iterable[Digest]) -> list[Digest]:
        """Note that a task has ended that needed these; return the content that the master is to forget."""
        for digest in digests:
            self._users[digest] -= 1
            if not self._users[digest]:
                del self._users[digest]
                self._idle[digest] = None
                self._idle_bytes += self._sizes[digest]
        gone = []
        while len(self._idle) > self._most or (self._idle_bytes > self._most_bytes and len(self._idle) > 1):
            digest, _ = self._idle.popitem(last=False)
            self._idle_bytes -= self._sizes.pop(digest)
            gone.append(digest)
        return gone
