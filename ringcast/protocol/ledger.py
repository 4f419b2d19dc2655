"""The numbers that every message changes, by peer: in flat words, which the fast path reads and writes too."""

from __future__ import annotations

from array import array
from typing import TypeAlias

Words: TypeAlias = "array[int]"


class Ledger:
    """The words of one rank; word `peer` of each array is about that peer.

    Attributes:
        sent, seen: messages to it, and from it, ever.
        posted, matched: whole transfers to it that were begun, and from it that met their receive, ever.
        spent: eager bytes that it has not matched yet, as far as this rank knows.
        held: eager bytes from it that this rank has not matched yet.
        owed: eager bytes from it that were matched, and whose credit was not given back yet.
        asked: bytes of requests to it that it has not matched (`request_budget`).
        transfers: one word, the number of the last transfer to any of them.
    """

    __slots__ = ("asked", "held", "matched", "owed", "posted", "seen", "sent", "spent", "transfers")

    def __init__(self, size: int) -> None:
        self.sent, self.seen, self.posted, self.matched, self.spent, self.held, self.owed, self.asked = (
            _zeros(size) for _ in range(8)
        )
        self.transfers = _zeros(1)

    def words(self) -> tuple[Words, ...]:
        """Return all words, in the order that a compiled lane takes."""
        by_peer = self.sent, self.seen, self.posted, self.matched, self.spent, self.held, self.owed, self.asked
        return *by_peer, self.transfers


def _zeros(size: int) -> Words:
    return array("Q", bytes(8 * size))
