"""The receiver's half of the rendezvous protocol: grants, one at a time where possible, and placement of bytes.

Rule 4 in `ringcast.protocol.machine` says when a grant is withheld, and why that causes no deadlock.
"""

from __future__ import annotations

from collections import deque
from functools import partial

from ringcast.errors import LinkLost
from ringcast.protocol.operations import Operation, Receive
from ringcast.protocol.outbox import Outbox
from ringcast.protocol.request_budget import RequestBudget
from ringcast.transports.base import Arrival, Loan
from ringcast.wire.failure import Broken
from ringcast.wire.header import CTS, DONE, PACKED, Header


class Receiving:
    """The incoming transfers of one rank."""

    def __init__(self, outbox: Outbox, budget: RequestBudget, lookahead: int) -> None:
        self.transfers: dict[tuple[int, int], Receive] = {}  # by (peer, transfer)
        self.moving: set[Receive] = set()
        self.withheld: deque[Receive] = deque()
        self.lookahead = lookahead
        self._outbox, self._budget = outbox, budget

    def start(self, recv: Receive, h: Header) -> None:
        """Register a receive under the sender's number of the transfer.

        Raises:
            Broken: another receive has that number.
        """
        if (h.source, h.transfer) in self.transfers:
            raise Broken(f"it began transfer {h.transfer} twice")
        self._budget.leave(recv)
        recv.transfer = h.transfer
        self.transfers[h.source, h.transfer] = recv

    def allow(self, recv: Receive) -> None:
        """Grant a transfer, or withhold that while another one moves (one-ported), unless rounds overlap."""
        op = recv.operation
        ahead = op.ahead is recv and any(isinstance(t, Receive) for t in op.pending)
        before = self.moving.union(t for t in op.pending if isinstance(t, Receive)) if ahead else self.moving
        if not op.concurrent and sum((r.total or 0) - r.received for r in before) > self.lookahead:
            self.withheld.append(recv)
            return
        if recv.transfer:
            self._grant(recv, 0)
        else:
            self._budget.enter(recv, 0, partial(self._grant, recv))

    def _grant(self, recv: Receive, flags: int) -> None:
        assert recv.total is not None
        missing = recv.total - recv.received  # all, if nothing was copied out of the sender's memory
        granted = min(missing, recv.operation.window)
        recv.granted = recv.received + granted
        self._outbox.emit(CTS, flags, recv.peer, recv.operation, recv.ordinal, recv.transfer, missing, granted)

    def release(self) -> None:
        """Send the withheld grants, as far as that is possible now."""
        for _ in range(len(self.withheld)):
            self.allow(self.withheld.popleft())

    def withheld_in(self, op: Operation) -> set[Receive]:
        """Return the receives of an operation whose grants are withheld."""
        return {recv for recv in self.withheld if recv.operation is op}

    def take(self, recv: Receive, h: Header, arrival: Arrival) -> None:
        """Place a segment; `advance` has to follow.

        Raises:
            Broken: the segment is not the next one, or does not fit its header.
            LinkLost: the connection broke off before the end of the segment.
            BaseException: an error of the sink, as the user's operator may raise. Then the receive has to be dropped.
        """
        sink, offset, end = recv.sink, h.word, h.word + h.length
        if offset != recv.received or end > recv.granted or (end == offset and recv.total):
            raise Broken(f"bytes {offset}:{end} of a transfer at {recv.received}")
        self.moving.add(recv)
        while arrival.more:
            if h.flags & PACKED:
                frame = arrival.read()
                size, fits = len(frame), offset + len(frame) <= end
                if fits:
                    sink.put(offset, memoryview(frame))
            else:
                view = sink.view(offset, end - offset) if offset < end else memoryview(bytearray())
                size = arrival.read_into(view)
                fits = size <= len(view)  # a longer frame was cut silently
                if fits:
                    sink.placed(offset, size)
            if not fits:
                raise Broken(f"a frame of {size} bytes at offset {offset} of {end}")
            offset += size
        if offset != end:
            raise Broken(f"{offset - h.word} bytes where {h.length} were announced")
        recv.received = end

    def fetch(self, recv: Receive, h: Header, loan: Loan | None) -> bool:
        """Copy a message out of its sender's memory, and confirm it; False: the rest, or all of it, cannot be read.

        Then it has to be granted: if the sender has given up the call, or has ended, that is the answer.

        Raises:
            Broken: not all of it is lent.
            BaseException: as of `take`.
        """
        sink, total = recv.sink, h.length
        while recv.received < total:
            if loan is None:
                return False
            view = sink.view(recv.received, total - recv.received)
            try:
                size = loan.read_into(view)
            except (LinkLost, OSError):
                return False
            if size < len(view):
                raise Broken(f"{recv.received + size} bytes are lent where {total} were announced")
            sink.placed(recv.received, size)
            recv.received += size
        recv.operation.complete(recv)
        self._outbox.emit(DONE, 0, recv.peer, recv.operation, recv.ordinal, h.transfer, 0, 0)
        self.release()
        return True

    def advance(self, recv: Receive) -> bool:
        """After a segment: confirm the message, or grant more of it; return whether it is complete."""
        assert recv.total is not None
        op = recv.operation
        complete = recv.received == recv.total
        if complete:
            del self.transfers[recv.peer, recv.transfer]
            self.moving.discard(recv)
            op.complete(recv)
            self._outbox.emit(DONE, 0, recv.peer, op, recv.ordinal, recv.transfer, 0, 0)
        elif recv.granted < recv.total and recv.granted - recv.received <= op.window // 2:
            more = min(recv.total - recv.granted, op.window - (recv.granted - recv.received))
            recv.granted += more
            self._outbox.emit(CTS, 0, recv.peer, op, recv.ordinal, recv.transfer, 0, more)
        self.release()
        return complete

    def drop(self, recv: Receive) -> None:
        """Drop a receive; segments that still arrive for it are read and discarded."""
        self._budget.drop(recv)
        self.transfers.pop((recv.peer, recv.transfer), None)
        self.moving.discard(recv)
        if recv in self.withheld:
            self.withheld.remove(recv)
