"""The sender's half of the rendezvous protocol: messages leave in segments, as far as the receiver has granted."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import partial

from ringcast.protocol.eager_credits import KEPT, EagerCredits
from ringcast.protocol.ledger import Ledger
from ringcast.protocol.operations import Operation, Send
from ringcast.protocol.outbox import Outbox
from ringcast.protocol.request_budget import BUDGET, RequestBudget
from ringcast.transports.base import Arrival
from ringcast.wire.failure import Broken
from ringcast.wire.header import DATA, OFFER, PACKED, PAIR, RTS, Header

# Bytes that offers may take at a peer while their operations go on: it may be far behind, and keeps so much only.
MOST_OFFERED = BUDGET // 4


class Sending:
    """The outgoing transfers of one rank."""

    def __init__(
        self, ledger: Ledger, outbox: Outbox, eager_credits: EagerCredits, budget: RequestBudget, lookahead: int
    ) -> None:
        self.transfers: dict[tuple[int, int], Send] = {}  # by (peer, transfer)
        # Waiting for a grant without RTS, by (peer, context, operation, ordinal).
        self.promised: dict[tuple[int, int, int, int], Send] = {}
        self.trailing = 0  # bytes of messages whose completion no operation waits for, at most `lookahead`
        self.withdrawn: list[Sequence[memoryview]] = []  # memory that was lent for messages that were dropped
        self.lookahead = lookahead
        self._outbox, self._eager_credits, self._budget = outbox, eager_credits, budget
        self._last = ledger.transfers

    def start(
        self, op: Operation, peer: int, ordinal: int, frames: Sequence[memoryview], total: int, *, lend: bool
    ) -> Send:
        """Number a message that waits for grants from now on, or is to be lent."""
        send = Send(op, peer, ordinal, frames, total)
        send.transfer = self._last[0] = self._last[0] + 1 & PAIR or 1
        self.transfers[peer, send.transfer] = send
        if lend and op.lends and self._budget.asked[peer] < MOST_OFFERED:
            op.lending.add(send)
        else:
            op.pending.add(send)
        return send

    def lent(self, op: Operation, peer: int, ordinal: int, transfer: int, frames: Sequence[memoryview]) -> Send:
        """Await the confirmation of a message that is offered already."""
        send = Send(op, peer, ordinal, frames, sum(map(len, frames)))
        send.transfer, send.lent, send.room = transfer, True, KEPT + 8 * len(frames)
        self.transfers[peer, transfer] = send
        op.lending.add(send)
        return send

    def ask(self, send: Send, *, lend: bool = False) -> None:
        """Send the RTS of a message, which may lend its memory, when there is room for it at the peer."""
        sizes = struct.pack(f"<{len(send.frames)}Q", *map(len, send.frames))
        self._budget.enter(send, len(sizes), partial(self._request, send, sizes, lend))

    def _request(self, send: Send, sizes: bytes, lend: bool, flags: int) -> None:
        """Send an RTS now; it also returns the eager credit that is owed."""
        send.lent = lend
        owed = self._eager_credits.collect(send.peer)
        facts = send.peer, send.operation, send.ordinal, send.transfer, send.total, owed
        lent = send.frames if lend and send.total else ()
        self._outbox.emit(RTS, flags | OFFER if lend else flags, *facts, [sizes], lent)

    def credit(self, send: Send, more: int, missing: int) -> None:
        """Take a grant of `more` bytes, and send the segments that it allows.

        The first one after an offer says how many bytes are `missing`: the rest has been read where it is.

        Raises:
            Broken: the grant goes beyond the message.
        """
        self._budget.leave(send)
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
        self._outbox.count(send.peer, size)

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
            self._outbox.count(send.peer, send.total)
        elif send is not None and send.offset < send.total:
            raise Broken(f"it confirmed {send.total} bytes of which {send.offset} were sent")
        self.finish((h.source, h.transfer))

    def finish(self, key: tuple[int, int]) -> None:
        """Forget a message that is complete, if there is one of this number."""
        send = self.transfers.pop(key, None)
        if send is not None:
            self.trailing -= send.total if send.trailing else 0
            self._budget.leave(send)
            send.operation.complete(send)

    def drop(self, send: Send) -> None:
        """Drop a message that its operation waits for; grants that still arrive for it are stale."""
        op = send.operation
        if send.lent:
            self.withdrawn.append(send.frames)
        self._budget.drop(send)
        self.transfers.pop((send.peer, send.transfer), None)
        self.promised.pop((send.peer, op.context, op.number, send.ordinal), None)

    def withdraw(self) -> None:
        """Withdraw all memory that is lent: no peer may read it any more."""
        for send in self.transfers.values():
            if send.lent:
                send.lent = False
                self.withdrawn.append(send.frames)

    def drop_trailing(self, dead: Callable[[Send], bool]) -> None:
        """Drop the `dead` ones among the messages that no operation waits for."""
        for key, send in list(self.transfers.items()):
            if send.trailing and dead(send):
                self.finish(key)
