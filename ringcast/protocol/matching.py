"""Posted receives meet arrived messages: pure tables, one for each collective, and one for all point-to-point calls.

In a collective both sides know the source and the ordinal of a message. In point-to-point the tag stands in place of
the ordinal, and a receive may leave both open.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable
from itertools import count
from operator import itemgetter
from typing import Generic, TypeAlias, TypeVar

ANY = -1  # as a source or a tag: whatever comes

Key: TypeAlias = "tuple[int, int]"
Posted = TypeVar("Posted")
Arrived = TypeVar("Arrived")


class Mailbox(Generic[Posted, Arrived]):
    """The unmatched receives and messages of one operation."""

    __slots__ = ("_arrived", "_posted")

    def __init__(self) -> None:
        # Queues, nearly all of one: only a peer that breaks the rules sends two messages of one ordinal.
        self._posted: dict[Key, list[Posted]] = {}
        self._arrived: dict[Key, list[Arrived]] = {}

    def post(self, key: Key, posted: Posted) -> Arrived | None:
        """Return the message that was waiting for this receive, or keep the receive."""
        if key in self._arrived:
            return _take(self._arrived, key)
        self._posted.setdefault(key, []).append(posted)
        return None

    def arrive(self, key: Key, arrived: Arrived) -> Posted | None:
        """Return the receive that was waiting for this message, or keep the message."""
        if key in self._posted:
            return _take(self._posted, key)
        self._arrived.setdefault(key, []).append(arrived)
        return None

    def take_posted(self, key: Key) -> Posted | None:
        """Return the receive that waits under `key` and forget it."""
        return _take(self._posted, key) if key in self._posted else None

    def forget(self, source: int) -> None:
        """Drop all messages of `source` for which no receive was posted."""
        for key in [key for key in self._arrived if key[0] == source]:
            del self._arrived[key]

    def unclaimed(self) -> list[Arrived]:
        """Return the messages for which no receive was posted."""
        return [arrived for queue in self._arrived.values() for arrived in queue] if self._arrived else []


class TaggedMailbox(Generic[Posted, Arrived]):
    """The unmatched receives and messages of all point-to-point calls on one communicator.

    Keys are (source, tag); `ANY` stands for either in the key of a receive. A message meets the
    first posted receive that fits it, a receive meets the message that has come first: so of two messages between the
    same ranks that fit the same receive, the second one never overtakes. All takes constant time: from the first
    receive with a wildcard on, a message that waits is listed under each key that fits it.
    """

    __slots__ = ("_arrived", "_numbers", "_open", "_posted")

    def __init__(self) -> None:
        self._numbers = count()  # the order in which receives were posted, and in which messages have come
        self._posted: defaultdict[Key, OrderedDict[int, Posted]] = defaultdict(OrderedDict)
        self._arrived: defaultdict[Key, OrderedDict[int, tuple[Key, Arrived]]] = defaultdict(OrderedDict)
        self._open = False  # whether a receive, or a probe, has had a wildcard

    def post(self, key: Key, posted: Posted) -> Arrived | None:
        """Return the message that was waiting for this receive, or keep the receive."""
        arrived = self.take(key)
        if arrived is None:
            self._posted[key][next(self._numbers)] = posted
        return arrived

    def arrive(self, key: Key, arrived: Arrived) -> Posted | None:
        """Return the receive that was waiting for this message, or keep the message."""
        fitting = _fitting(key) if self._open else (key,)
        waiting = [(next(iter(self._posted[fit])), fit) for fit in fitting if fit in self._posted]
        if not waiting:
            number = next(self._numbers)
            for fit in fitting:
                self._arrived[fit][number] = key, arrived
            return None
        number, fit = min(waiting)
        posted = self._posted[fit].pop(number)
        if not self._posted[fit]:
            del self._posted[fit]
        return posted

    def free(self, key: Key) -> bool:
        """Return whether a receive of one source would meet the next message that fits it: nothing waits before."""
        return not self._posted and not (self._arrived if ANY in key else key in self._arrived)

    def peek(self, key: Key) -> Arrived | None:
        """Return the message that a receive would meet now, and keep it."""
        waiting = self._waiting(key)
        return next(iter(waiting.values()))[1] if waiting is not None else None

    def take(self, key: Key) -> Arrived | None:
        """Return the message that a receive would meet now, and forget it."""
        waiting = self._waiting(key)
        if waiting is None:
            return None
        number, (own, arrived) = next(iter(waiting.items()))
        self._remove(number, own)
        return arrived

    def cancel(self, key: Key, posted: Posted) -> None:
        """Forget a receive that waits under `key`."""
        waiting = self._posted[key]
        del waiting[next(number for number, other in waiting.items() if other is posted)]
        if not waiting:
            del self._posted[key]

    def forget(self, source: int, lost: Callable[[Arrived], bool]) -> None:
        """Drop the messages of `source` that are `lost`, and for which no receive was posted."""
        self._list_all()
        for number, (key, arrived) in list(self._arrived.get((source, ANY), {}).items()):
            if lost(arrived):
                self._remove(number, key)

    def unclaimed(self) -> list[Arrived]:
        """Return the messages for which no receive was posted."""
        self._list_all()
        return [arrived for _, arrived in self._arrived.get((ANY, ANY), {}).values()]

    def _waiting(self, key: Key) -> OrderedDict[int, tuple[Key, Arrived]] | None:
        """Return the messages that a receive fits, in the order in which they have come; None if there are none."""
        if ANY in key:
            self._list_all()
        return self._arrived.get(key)

    def _list_all(self) -> None:
        """List messages under all keys that fit them, from now on."""
        if self._open:
            return
        self._open = True
        known = [(number, *each) for queue in self._arrived.values() for number, each in queue.items()]
        for number, key, arrived in sorted(known, key=itemgetter(0)):
            for fit in _fitting(key):
                self._arrived[fit][number] = key, arrived

    def _remove(self, number: int, key: Key) -> None:
        for fit in _fitting(key) if self._open else (key,):
            waiting = self._arrived[fit]
            del waiting[number]
            if not waiting:
                del self._arrived[fit]


def _fitting(key: Key) -> tuple[Key, ...]:
    """Return the keys of all receives that a message with this key fits."""
    source, tag = key
    return key, (source, ANY), (ANY, tag), (ANY, ANY)


T = TypeVar("T")


def _take(table: dict[Key, list[T]], key: Key) -> T:
    """Take the first of a queue."""
    queue = table[key]
    first = queue.pop(0)
    if not queue:
        del table[key]
    return first
