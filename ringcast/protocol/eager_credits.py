"""Flow control for unexpected (eager) messages: credit in bytes per peer, returned when a message is matched."""

from __future__ import annotations

from ringcast.protocol.ledger import Ledger
from ringcast.protocol.outbox import NOTHING, Outbox
from ringcast.wire.failure import Broken
from ringcast.wire.header import CREDIT_RETURN, CTS, SIZE, Header

EAGER_CREDIT = 1 << 20  # bytes of unmatched eager messages per peer …
EAGER_CREDIT_OF_ALL = 64 << 20  # … and of all peers together
KEPT = 256  # bytes that a joined frame counts for, and an unmatched request (`request_budget`)


class EagerCredits:
    """The eager credits of one rank, by peer. A message counts with its header and its joined frames, until it is
    matched or dropped.
    """

    def __init__(self, rank: int, size: int, ledger: Ledger, outbox: Outbox) -> None:
        self._rank = rank
        self.each = min(EAGER_CREDIT, EAGER_CREDIT_OF_ALL // size)
        self.most_owed = self.each // 2
        self.spent, self.held, self.owed = ledger.spent, ledger.held, ledger.owed
        self._outbox = outbox

    def spend(self, peer: int, length: int, frames: int) -> bool:
        """Take the credit for an eager message with these fields; return False if there is too little left."""
        spent = self.spent[peer] + cost(length, frames)
        if spent > self.each:
            return False
        self.spent[peer] = spent
        return True

    def collect(self, peer: int) -> int:
        """Return the credit that is owed to a peer, for the message that gives it back."""
        owed = self.owed[peer]
        self.owed[peer] = 0
        return owed

    def refund(self, h: Header) -> None:
        """Take back the credit that a peer returns; never more than was spent."""
        self.take_back(h.source, h.word)

    def take_back(self, peer: int, credit: int) -> None:
        """Take back credit of a peer; never more than was spent."""
        left = self.spent[peer] - credit
        self.spent[peer] = left if left > 0 else 0

    def may_match(self, peer: int, size: int) -> bool:
        """Return whether a message of this cost, which has just come, may be matched now: it is within its sender's
        credit, and does not make that so much that it has to be given back at once.
        """
        return self.owed[peer] + size < self.most_owed and self.held[peer] + size <= self.each + SIZE

    def hold(self, h: Header) -> None:
        """Count an eager message that has arrived, and take back the credit it returns.

        Raises:
            Broken: it is beyond the sender's credit.
        """
        source = h.source
        held = self.held[source] + cost(h.length, h.transfer)
        if held > self.each + SIZE:
            raise Broken(f"an eager message of {h.length} bytes beyond its budget")
        if h.word:
            self.refund(h)
        self.held[source] = held

    def give_back(self, h: Header) -> None:
        """Return a message's credit to its sender: with the next message to it, or at once if half of all is owed."""
        source, size = h.source, cost(h.length, h.transfer)
        if source == self._rank:  # what a rank sends to itself needs none
            return
        self.held[source] -= size
        self.owed[source] = owed = self.owed[source] + size
        if owed >= self.most_owed:
            self._outbox.emit(CTS, CREDIT_RETURN, source, NOTHING, 0, 0, 0, self.collect(source))


def cost(length: int, frames: int) -> int:
    """Return the credit of an eager message of this length, in which so many frames are joined, if several are."""
    return length + SIZE + (KEPT * frames if frames > 1 else 0)
