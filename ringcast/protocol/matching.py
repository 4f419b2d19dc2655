"""Posted receives meet arrived messages: a pure table, one for each operation of a communicator.

Keys are (source, ordinal); for point-to-point the tag stands in place of the ordinal, so several entries may wait
under one key, first come first served.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeAlias, TypeVar

Key: TypeAlias = "tuple[int, int]"
Posted = TypeVar("Posted")
Arrived = TypeVar("Arrived")


class Mailbox(Generic[Posted, Arrived]):
    """The unmatched receives and messages of one operation."""

    __slots__ = ("_arrived", "_posted")

    def __init__(self) -> None:
        self._posted: dict[Key, deque[Posted]] = {}
        self._arrived: dict[Key, deque[Arrived]] = {}

    def post(self, key: Key, posted: Posted) -> Arrived | None:
        """Return the message that was waiting for this receive, or keep the receive."""
        return _meet(self._arrived, self._posted, key, posted)

    def arrive(self, key: Key, arrived: Arrived) -> Posted | None:
        """Return the receive that was waiting for this message, or keep the message."""
        return _meet(self._posted, self._arrived, key, arrived)

    def take_posted(self, key: Key) -> Posted | None:
        """Return the receive that waits under `key` and forget it."""
        return _take(self._posted, key)

    def forget(self, source: int) -> None:
        """Drop all messages of `source` for which no receive was posted."""
        for key in [key for key in self._arrived if key[0] == source]:
            del self._arrived[key]

    def unclaimed(self) -> Iterator[tuple[Key, Arrived]]:
        """Return the messages for which no receive was posted."""
        return ((key, arrived) for key, queue in self._arrived.items() for arrived in queue)


T = TypeVar("T")
S = TypeVar("S")


def _take(table: dict[Key, deque[T]], key: Key) -> T | None:
    queue = table.get(key)
    if queue is None:
        return None
    first = queue.popleft()
    if not queue:
        del table[key]
    return first


def _meet(waiting: dict[Key, deque[T]], other: dict[Key, deque[S]], key: Key, mine: S) -> T | None:
    if key in waiting:
        return _take(waiting, key)
    if key in other:
        other[key].append(mine)
    else:
        other[key] = deque((mine,))
    return None
