"""Reconstruction of rounds and messages from events, and of the intervals with a transfer under way.

A message is *under way* from the moment at which its sender is in its round and its receiver is ready, until its last
byte is in place on the receiver (and combined, where it is combined as it comes). A receiver is ready when it is in
its round, or before, where its receive was posted ahead. A large message is sent when its receiver has granted it: no
byte travels before that, so the interval is the time of the grant and of the bytes on the wire, alpha + beta * bytes of
the model. A small message needs no grant; it may travel before its receiver is ready, which is not seen. Events from
`ringcast.analysis.simulate` have no arrival: there it is the end of the round that ends first.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from operator import itemgetter

from ringcast._util.dataclass import dataclass
from ringcast.events import Event, RoundEnd, RoundStart

Interval = tuple[float, float]  # first and last moment, in seconds


@dataclass(frozen=True, slots=True)
class Round:
    """A round of one rank from its start to its end."""

    start: RoundStart
    end: RoundEnd

    @property
    def ready(self) -> float:
        """The time from which the rank could receive."""
        return self.start.time if self.start.ready is None else self.start.ready


@dataclass(frozen=True, slots=True)
class TracedMessage:
    """A message between two ranks: the sender's round and the receiver's; zero bytes are a message too."""

    sender: Round
    receiver: Round

    @property
    def nbytes(self) -> int:
        return self.sender.start.sent

    @property
    def opened(self) -> float:
        """The time from which the sender was in its round, and the receiver ready."""
        return max(self.sender.start.time, self.receiver.ready)

    @property
    def arrived(self) -> float:
        """The time at which the last byte was in place; of no bytes, at which one of the two may first have gone on."""
        known = self.receiver.end.arrived
        if known is not None:
            return known
        return max(self.opened, min(self.sender.end.time, self.receiver.end.time))  # a sender may not wait for it


def rounds(events: Iterable[Event]) -> list[Round]:
    """Return the rounds of one rank, in the order in which they ended; one that has not ended is left out."""
    begun: dict[tuple[int, int], RoundStart] = {}
    complete = []
    for event in events:
        key = event.number, event.round
        if isinstance(event, RoundStart):
            begun[key] = event
        elif key in begun:
            complete.append(Round(begun.pop(key), event))
    return complete


def messages(rounds_by_rank: Sequence[Sequence[Round]]) -> list[TracedMessage]:
    """Return all messages with two known rounds.

    The n-th message from one rank to another in an operation is the n-th that this one receives from there.
    """
    sent: dict[tuple[int, int, int], deque[Round]] = defaultdict(deque)
    for done in (done for mine in rounds_by_rank for done in mine):
        start = done.start
        if start.send_to is not None:
            sent[start.number, start.rank, start.send_to].append(done)
    paired = []
    for done in (done for mine in rounds_by_rank for done in mine):
        start = done.start
        if start.recv_from is not None and (queue := sent[start.number, start.recv_from, start.rank]):
            paired.append(TracedMessage(queue.popleft(), done))
    return paired


def moving(rounds_by_rank: Sequence[Sequence[Round]]) -> list[list[Interval]]:
    """Return for each rank when a message with bytes in it was under way, to it or (in its own round) from it.

    Sending and receiving at the same time counts once. The intervals are in order, do not overlap, and are not empty.
    """
    found: list[list[Interval]] = [[] for _ in rounds_by_rank]
    for message in messages(rounds_by_rank):
        if message.nbytes:
            sender, receiver, opened, arrived = message.sender, message.receiver, message.opened, message.arrived
            found[sender.start.rank].append((opened, min(arrived, sender.end.time)))
            found[receiver.start.rank].append((opened, arrived))
    return [_joined((first, last) for first, last in intervals if first < last) for intervals in found]


def within(intervals: Sequence[Interval], first: float, last: float) -> list[Interval]:
    """Return the parts of `intervals`, from `moving`, between two moments; in O(log n) and the length of the result.

    >>> within([(1.0, 3.0), (4.0, 6.0), (7.0, 8.0)], 2.0, 5.0)
    [(2.0, 3.0), (4.0, 5.0)]
    """
    found = []
    for i in range(bisect_right(intervals, first, key=itemgetter(1)), len(intervals)):
        start, end = intervals[i]
        if start >= last:
            break
        found.append((max(start, first), min(end, last)))
    return found


def _joined(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the union, in order.

    >>> _joined([(4.0, 5.0), (1.0, 2.5), (2.0, 3.0), (3.0, 3.5)])
    [(1.0, 3.5), (4.0, 5.0)]
    """
    union: list[Interval] = []
    for first, last in sorted(intervals):
        if union and first <= union[-1][1]:
            union[-1] = union[-1][0], max(union[-1][1], last)
        else:
            union.append((first, last))
    return union
