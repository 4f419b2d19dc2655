"""Budget for requests: bounds what waits at a peer until its program gets there, and holds the rest back here.

A request is an RTS, or a CTS that is sent without one. Until it is matched it counts as `KEPT` bytes and its payload,
and each peer keeps `BUDGET` bytes of them. The others wait at their sender, which says so once (HELD). If the program
of the peer waits for a message or a grant of that sender, the peer lends more room (MORE_ROOM), as the one that it
waits for may be behind others: so programs may receive in any order. A request uses lent room once, and has the flag
LENT. So a rank keeps `BUDGET` bytes of a peer, and `MOST_LENT` bytes more while its own program waits for that peer.

Point-to-point messages leave in order. Requests of collectives do not wait behind them: the program may receive those
messages after the collective only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from ringcast.protocol.eager_credits import EAGER_CREDIT, KEPT, EagerCredits
from ringcast.protocol.ledger import Ledger
from ringcast.protocol.operations import Transfer
from ringcast.protocol.outbox import NOTHING, Outbox
from ringcast.transports.base import Frame
from ringcast.wire.failure import Broken
from ringcast.wire.header import CTS, EAGER, HELD, LENT, MORE_ROOM, P2P, Header

BUDGET = EAGER_CREDIT  # bytes of requests of each peer that wait for this rank's program
MOST_LENT = 64 << 20  # bytes beyond, while the program waits for a message of that peer …
LENT_AT_ONCE = BUDGET // 16  # … and how many are lent by one message, or as many as the next request takes

SendOff: TypeAlias = Callable[[int], None]  # emits a request with these flags
Queue: TypeAlias = "dict[Transfer, tuple[int, SendOff]]"  # with the bytes that each request takes


class RequestBudget:
    """The requests of one rank to its peers, and its peers' requests that wait here."""

    def __init__(self, size: int, ledger: Ledger, outbox: Outbox, eager_credits: EagerCredits) -> None:
        self.each, self.most_lent, self.at_once = BUDGET, MOST_LENT, LENT_AT_ONCE
        self.asked = ledger.asked
        self.room = [0] * size  # bytes that each peer has lent, not used yet
        self.rounds: dict[int, Queue] = {}  # requests of collectives that are held back, by peer, …
        self.messages: dict[int, Queue] = {}  # … and of messages point-to-point
        self._told: set[int] = set()  # peers that know that requests to them are held back
        self.kept = [0] * size  # bytes of requests of each peer that wait for this rank
        self.lent = [0] * size  # bytes that are lent to each peer: used by requests that wait, or …
        self.unused = [0] * size  # … not used yet
        self.holding: dict[int, int] = {}  # peers that hold requests back: bytes that the first one takes
        self._outbox, self._eager_credits = outbox, eager_credits

    # Requests of this rank.

    def enter(self, transfer: Transfer, payload: int, send_off: SendOff) -> None:
        """Send a request off, with `payload` bytes beside the header: now, or when there is room at the peer."""
        peer, size = transfer.peer, KEPT + payload
        queues = self.rounds if transfer.operation.number != P2P else self.messages
        flags = None if peer in queues else self._claim(transfer, size)
        if flags is None:
            queues.setdefault(peer, {})[transfer] = size, send_off
            self._tell(peer, size)
        else:
            send_off(flags)

    def leave(self, transfer: Transfer) -> None:
        """Free the room of a request that the peer has matched, for requests that are held back."""
        if transfer.room:
            self.asked[transfer.peer] -= transfer.room
            transfer.room = 0
            self._go_on(transfer.peer)

    def drop(self, transfer: Transfer) -> None:
        """Forget a request that is given up; `go_on` has to follow."""
        self.asked[transfer.peer] -= transfer.room
        transfer.room = 0
        for queues in self.rounds, self.messages:
            queue = queues.get(transfer.peer)
            if queue and transfer in queue:
                del queue[transfer]
                if not queue:
                    del queues[transfer.peer]

    def go_on(self) -> None:
        """Send off what is held back, as far as there is room."""
        for peer in {*self.rounds, *self.messages}:
            self._go_on(peer)

    def borrow(self, h: Header) -> None:
        """Use the room that a peer lends."""
        self._told.discard(h.source)
        self.room[h.source] += h.word
        self._go_on(h.source)

    def _go_on(self, peer: int) -> None:
        for queues in self.rounds, self.messages:
            queue = queues.get(peer)
            while queue:
                transfer, (size, send_off) = next(iter(queue.items()))
                flags = self._claim(transfer, size)
                if flags is None:
                    self._tell(peer, size)
                    return
                del queue[transfer]
                send_off(flags)
            queues.pop(peer, None)

    def _claim(self, transfer: Transfer, size: int) -> int | None:
        """Take room for a request at the peer, and return the request's flags; None if there is too little."""
        peer = transfer.peer
        if self.asked[peer] + size <= self.each:
            self.asked[peer] += size
            transfer.room = size
            return 0
        if self.room[peer] >= size:
            self.room[peer] -= size
            return LENT
        return None

    def _tell(self, peer: int, size: int) -> None:
        if peer not in self._told:
            self._told.add(peer)
            self._outbox.emit(CTS, HELD, peer, NOTHING, 0, 0, 0, size)

    # Requests of peers.

    def arrive(self, h: Header, payload: int) -> None:
        """Count the use of lent room.

        Raises:
            Broken: none was lent.
        """
        if h.flags & LENT:
            size = KEPT + payload
            if size > self.unused[h.source]:
                raise Broken(f"its request takes {size} bytes of the {self.unused[h.source]} that are lent")
            self.unused[h.source] -= size
            self.lent[h.source] -= size

    def keep(self, h: Header, payload: int) -> None:
        """Count an RTS with so many bytes of payload, or a CTS, that waits for this rank's operation.

        Raises:
            Broken: too many of that peer wait.
        """
        if h.flags & LENT:
            self.lent[h.source] += KEPT + payload
            return
        self.kept[h.source] += KEPT + payload
        if self.kept[h.source] > self.each:
            raise Broken(f"{self.kept[h.source]} bytes of its requests and grants wait")

    def forget(self, h: Header, frames: Sequence[Frame] = ()) -> None:
        """Release an unmatched message of any kind, which is matched now or dropped."""
        if h.kind == EAGER:
            self._eager_credits.give_back(h)
        else:
            counts = self.lent if h.flags & LENT else self.kept
            counts[h.source] -= KEPT + sum(map(len, frames))

    def lend(self, peer: int) -> None:
        """Lend more room to a peer that holds requests back, unless it has had the most."""
        more = max(self.holding.get(peer, 0), self.at_once)
        if peer in self.holding and self.lent[peer] + more <= self.most_lent:
            del self.holding[peer]
            self.lent[peer] += more
            self.unused[peer] += more
            self._outbox.emit(CTS, MORE_ROOM, peer, NOTHING, 0, 0, 0, more)
