"""Queue of outgoing messages: each gets its number and its header, and waits here for the transport."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple
from typing import Protocol as Interface

from ringcast.protocol.counters import Counters
from ringcast.transports.base import Frame
from ringcast.wire.header import CTS, DATA, EAGER, OF_NO_CALL, PAIR, REFUSE, VERSION, pack_fields


class Named(Interface):
    """The three header fields that identify an operation: an `Operation` of this rank, or a `Name`."""

    @property
    def context(self) -> int: ...
    @property
    def number(self) -> int: ...
    @property
    def fingerprint(self) -> int: ...


class Name(NamedTuple):
    """An operation that this rank may not have; a message that says nothing of the call has no fingerprint."""

    context: int
    number: int
    fingerprint: int = 0


NOTHING = Name(0, 0)  # what a message names that belongs to no operation


class Outbox:
    """The messages of one rank, in the order in which they leave."""

    def __init__(self, rank: int, nonce: int, counters: Counters) -> None:
        # (peer, message, whether its loss matters, memory that is lent with it)
        self.queue: deque[tuple[int, list[Frame], bool, Sequence[memoryview]]] = deque()
        # Bytes of users' data, headers not counted: by rank, all that were sent there; their sum; all that have come.
        self.payload: list[int] | memoryview[int] = [0] * (len(counters.sent) + 2)
        self.rank, self._nonce, self._sent = rank, nonce, counters.sent

    def count(self, peer: int, size: int) -> None:
        """Count bytes of users' data as sent to a peer."""
        self.payload[peer] += size
        self.payload[-2] += size

    def count_received(self, peer: int, size: int) -> None:
        """Count bytes of users' data as received from a peer."""
        if peer != self.rank:
            self.payload[-1] += size

    def emit(
        self,
        kind: int,
        flags: int,
        peer: int,
        op: Named,
        ordinal: int,
        transfer: int,
        length: int,
        word: int,
        frames: Sequence[Frame] = (),
        lent: Sequence[memoryview] = (),
    ) -> None:
        """Send a message of an operation; the arguments are the fields of its header."""
        sent = self._sent[peer]
        self._sent[peer] = sent + 1
        header = pack_fields(
            VERSION,
            kind,
            flags,
            self.rank,
            self._nonce,
            op.context,
            op.number,
            ordinal,
            sent & PAIR,
            transfer,
            length,
            word,
            op.fingerprint,
        )
        vital = True
        if kind == EAGER:
            self.count(peer, length)
            # One frame is cheaper than two, and what goes eagerly has to be copied anyway.
            self.queue.append((peer, [b"".join((header, *frames))], vital, ()))
            return
        if kind == DATA:
            self.count(peer, length)
        elif kind == REFUSE or (kind == CTS and flags & OF_NO_CALL):
            vital = False  # a peer that has left, properly or not, misses neither
        self.queue.append((peer, [header, *frames], vital, lent))
