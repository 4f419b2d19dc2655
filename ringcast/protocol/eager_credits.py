"""How many bytes that nobody asked for may wait at a rank, by peer: spent by the sender, held here, given back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ringcast.protocol.outbox import Outbox
from ringcast.transports.base import Frame
from ringcast.wire.failure import Broken
from ringcast.wire.header import CREDIT_RETURN, CTS, EAGER, SIZE, Header

EAGER_CREDIT = 1 << 20  # bytes of unmatched eager messages per peer …
EAGER_CREDIT_OF_ALL = 64 << 20  # … and of all peers together
KEPT = 256  # bytes that a request or grant which waits is counted as, of BUDGET per peer


class EagerCredits:
    """The budgets of one rank. An eager message counts with its header, and until it is matched or dropped."""

    def __init__(self, size: int, outbox: Outbox) -> None:
        self.each = min(EAGER_CREDIT, EAGER_CREDIT_OF_ALL // size)
        self.spent: Counter[int] = Counter()  # eager bytes that each peer has not matched yet
        self.held: Counter[int] = Counter()  # eager bytes from each peer that this rank has not matched yet
        self.owed: Counter[int] = Counter()  # matched, but not yet given back
        self.kept: Counter[int] = Counter()  # bytes of requests and grants from each peer that wait
        self._outbox = outbox

    def spend(self, peer: int, size: int) -> bool:
        """Take what an eager message of `size` bytes needs; False: there is too little left."""
        spent = self.spent[peer] + size + SIZE
        if spent > self.each:
            return False
        self.spent[peer] = spent
        return True

    def refund(self, h: Header) -> None:
        """Take back the budget that a peer returns; never more than was spent."""
        self.spent[h.source] = max(0, self.spent[h.source] - h.word)

    def hold(self, h: Header, size: int) -> None:
        """Count an eager message that has come with a payload of `size` bytes, and take back what it returns.

        Raises:
            Broken: its length is another one, or it is beyond the budget.
        """
        if size != h.length or self.held[h.source] + h.length > self.each:
            raise Broken(f"an eager message of {h.length} bytes beyond its budget")
        if h.word:
            self.refund(h)
        self.held[h.source] += h.length + SIZE

    def give_back(self, h: Header) -> None:
        """Return what an eager message took: with the next message that way, or, when half of all is owed, at once."""
        source, size = h.source, h.length + SIZE
        self.held[source] -= size
        self.owed[source] += size
        if self.owed[source] >= self.each // 2:
            owed = self.owed.pop(source)
            self._outbox.post(CTS, CREDIT_RETURN, source, 0, 0, 0, 0, 0, owed, 0, ())

    def keep(self, h: Header, size: int) -> None:
        """Count a request of `size` bytes, or a grant, that waits for this rank to come to it.

        Raises:
            Broken: too many of that peer wait.
        """
        self.kept[h.source] += KEPT + size
        if self.kept[h.source] > EAGER_CREDIT:
            raise Broken(f"{self.kept[h.source]} bytes of its requests and grants wait")

    def forget(self, h: Header, frames: Sequence[Frame] = ()) -> None:
        """Count a message no more that has waited, and is taken or will never be."""
        if h.kind == EAGER:
            self.give_back(h)
        else:
            self.kept[h.source] -= KEPT + sum(map(len, frames))
