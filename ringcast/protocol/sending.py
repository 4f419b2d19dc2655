"""The sender's half of the rendezvous protocol: messages leave in segments, as far as the receiver has granted."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Sequence

from ringcast.protocol.eager_credits import EAGER_CREDIT, KEPT
from ringcast.protocol.operations import Operation, Send
from ringcast.protocol.outbox import Outbox
from ringcast.transports.base import Arrival
from ringcast.wire.failure import Broken
from ringcast.wire.header import DATA, OFFER, PACKED, PAIR, RTS, Header

# Bytes that offers may take at a peer while their operations go on: it may be far behind, and keeps so much only.
MOST_OFFERED = EAGER_CREDIT // 4
_SIZE = 8  # bytes of a frame's size in a request


class Sending:
    """The outgoing transfers of one rank."""

    def __init__(self, outbox: Outbox, lookahead: int) -> None:
        self.transfers: dict[tuple[int, int], Send] = {}  # by (peer, transfer)
        # Waiting for a grant without RTS, by (peer, context, operation, ordinal).
        self.promised: dict[tuple[int, int, int, int], Send] = {}
        self.trailing = 0  # bytes of messages whose completion no operation waits for, at most `lookahead`
        self.withdrawn: list[Sequence[memoryview]] = []  # memory that was lent for messages that were dropped
        self._offered: Counter[int] = Counter()  # bytes that `room` of all messages adds up to, by peer
        self.lookahead = lookahead
        self._outbox = outbox
        self._last = 0  # number of a transfer

    def start(
        self, op: Operation, peer: int, ordinal: int, frames: Sequence[memoryview], total: int, *, lend: bool
    ) -> Send:
        """Number a message that waits for grants from now on, or is to be lent."""
        send = Send(op, peer, ordinal, frames, total)
        self._last = self._last + 1 & PAIR or 1
        send.transfer = self._last
        self.transfers[peer, send.transfer] = send
        if lend and op.lends and self._offered[peer] < MOST_OFFERED:
            send.room = KEPT + _SIZE * len(frames)
            self._offered[peer] += send.room
            op.lending.add(send)
        else:
            op.pending.add(send)
        return send

    def ask(self, send: Send, owed: int, *, lend: bool = False) -> None:
        """Send the RTS of a message, which also returns `owed` bytes of eager credit, and may lend its memory."""
        sizes = struct.pack(f"<{len(send.frames)}Q", *map(len, send.frames))
        facts = send.peer, send.operation, send.ordinal, send.transfer, send.total, owed
        send.lent = lend
        self._outbox.emit(RTS, OFFER if lend else 0, *facts, [sizes], send.frames if lend and send.total else ())

    def credit(self, send: Send, more: int, missing: int) -> None:
        """Take a grant of `more` bytes, and send the segments that it allows.

        The first one after an offer says how many bytes are `missing`: the rest has been read where it is.

        Raises:
            Broken: the grant goes beyond the message.
        """
        if send.lent:
            self._skip(send, send.total - missing)
        if send.credit + more > send.total:
            raise Broken(f"it granted {send.credit + more} bytes of a message of {send.total}")
        send.credit += more
        self._pump(send)

    def _skip(self, send: Send, size: int) -> None:
        """Count bytes as sent that the receiver has read; it reads no more."""
        if not 0 <= size <= send.total or sum(map(len, send.take(size))) != size:
            raise Broken(f"it has read {size} bytes of a message of {send.total}")
        send.lent = False
        send.offset = send.credit = size
        self._outbox.payload[0] += size

    def _pump(self, send: Send) -> None:
        """Send the segments that are granted; only whole ones, except at the end."""
        op, flags = send.operation, PACKED if send.packed else 0
        segment = op.segment
        while True:
            left = send.total - send.offset
            if min(segment, left) > send.credit - send.offset or (left == 0 and send.total > 0):
                break
            frames = send.take(segment)
            size = sum(map(len, frames))
            self._outbox.emit(DATA, flags, send.peer, op, send.ordinal, send.transfer, size, send.offset, frames)
            send.offset += size
            if send.total == 0:
                break
        if left == 0 and self.lookahead and self.trailing + send.total <= self.lookahead:
            self.trailing += send.total
            send.trailing = True
            op.complete(send)

    def on_done(self, h: Header, _: Arrival) -> None:
        """Handle a DONE: the receiver has all of a message.

        Raises:
            Broken: not all of it was sent.
        """
        send = self.transfers.get((h.source, h.transfer))
        if send is not None and send.lent:
            self._outbox.payload[0] += send.total
        elif send is not None and send.offset < send.total:
            raise Broken(f"it confirmed {send.total} bytes of which {send.offset} were sent")
        self.finish((h.source, h.transfer))

    def finish(self, key: tuple[int, int]) -> None:
        """Forget a message that is complete, if there is one of this number."""
        send = self.transfers.pop(key, None)
        if send is not None:
            self.trailing -= send.total if send.trailing else 0
            self._offered[send.peer] -= send.room
            send.operation.complete(send)

    def drop(self, send: Send) -> None:
        """Drop a message that its operation waits for; grants that still arrive for it are stale."""
        op = send.operation
        if send.lent:
            self.withdrawn.append(send.frames)
        if self.transfers.pop((send.peer, send.transfer), None) is not None:
            self._offered[send.peer] -= send.room
        self.promised.pop((send.peer, op.context, op.number, send.ordinal), None)

    def withdraw(self) -> None:
        """Withdraw all memory that is lent: nobody may read it any more."""
        for send in self.transfers.values():
            if send.lent:
                send.lent = False
                self.withdrawn.append(send.frames)

    def drop_trailing(self, context: int) -> None:
        """Drop the messages of a communicator that no operation waits for."""
        for key, send in list(self.transfers.items()):
            if send.trailing and send.operation.context == context:
                self.finish(key)
