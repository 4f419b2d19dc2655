"""Queue of outgoing messages: each gets its number and its header, and waits here for the transport."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from ringcast.protocol.counters import Counters
from ringcast.protocol.operations import Operation
from ringcast.transports.base import Frame
from ringcast.wire.header import CREDIT_RETURN, CTS, DATA, EAGER, PAIR, REFUSE, VERSION, pack_fields


class Outbox:
    """The messages of one rank, in the order in which they leave."""

    def __init__(self, rank: int, nonce: int, counters: Counters) -> None:
        # (peer, message, whether its loss matters, memory that is lent with it)
        self.queue: deque[tuple[int, list[Frame], bool, Sequence[memoryview]]] = deque()
        # One number: bytes of users' data ever sent, headers not counted.
        self.payload: list[int] | memoryview[int] = [0]
        self.rank, self._nonce, self._sent = rank, nonce, counters.sent

    def emit(
        self,
        kind: int,
        flags: int,
        peer: int,
        op: Operation,
        ordinal: int,
        transfer: int,
        length: int,
        word: int,
        frames: Sequence[Frame] = (),
        lent: Sequence[memoryview] = (),
    ) -> None:
        """Send a message of an operation."""
        name = op.context, op.number, ordinal
        self.post(kind, flags, peer, *name, transfer, length, word, op.fingerprint, frames, lent)

    def post(
        self,
        kind: int,
        flags: int,
        peer: int,
        context: int,
        operation: int,
        ordinal: int,
        transfer: int,
        length: int,
        word: int,
        fingerprint: int,
        frames: Sequence[Frame],
        lent: Sequence[memoryview] = (),
    ) -> None:
        """Send a message, also of an operation that this rank does not have. The names are those of the header."""
        pair = self._sent[peer] & PAIR
        self._sent[peer] += 1
        header = pack_fields(
            VERSION,
            kind,
            flags,
            self.rank,
            self._nonce,
            context,
            operation,
            ordinal,
            pair,
            transfer,
            length,
            word,
            fingerprint,
        )
        vital = True
        if kind == EAGER:
            self.payload[0] += length
            # One frame is cheaper than two, and what goes eagerly has to be copied anyway.
            header, frames = b"".join((header, *frames)), ()
        elif kind == DATA:
            self.payload[0] += length
        elif kind == REFUSE or (kind == CTS and flags & CREDIT_RETURN):
            vital = False  # a peer that has left, properly or not, misses neither
        self.queue.append((peer, [header, *frames], vital, lent))
