"""Counters of messages and transfers by peer, from which lost links and departed ranks are recognised."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ringcast.protocol.ledger import Ledger
from ringcast.wire.failure import Failure
from ringcast.wire.header import PAIR, Header

PATIENCE = 10  # probes that the last messages of a rank that has left may take to arrive


class Counters:
    """The counters of one rank, by peer. Keepalives (probes and their answers) do not count as progress.

    What changes with every message is in the ledger.
    """

    def __init__(self, ledger: Ledger) -> None:
        self.sent, self.seen = ledger.sent, ledger.seen  # messages ever
        self.keepalives_sent: Counter[int] = Counter()  # how many of `sent` are keepalives
        self.keepalives_seen: Counter[int] = Counter()  # how many of `seen` are
        self.keepalives = 0  # all of `answered`, and what wakes a wait
        self.posted, self.matched = ledger.posted, ledger.matched  # whole transfers; `matched` is the other end
        self.dropped: Counter[str] = Counter()  # messages that had no effect, by reason
        self.finished: dict[int, int] = {}  # messages that a rank which has left has sent to this one
        self.absent: set[int] = set()  # ranks that have left or failed
        self.exit_records: dict[int, Failure] = {}  # of ranks that have finished, with the error that made them leave
        self._silent: Counter[int] = Counter()  # probes since a rank has left with messages missing

    def missing(self, h: Header) -> int:
        """Return the number of messages missing before this one; 0 if it is the next one, or an old one."""
        ahead = (h.pair - self.seen[h.source]) & PAIR
        return ahead if ahead <= PAIR >> 1 else 0

    def count_keepalive(self, peer: int) -> None:
        """Count the message that has just arrived as a keepalive."""
        self.keepalives_seen[peer] += 1
        self.keepalives += 1

    def without_keepalives(self) -> tuple[dict[int, int], dict[int, int]]:
        """Return the numbers of messages to and from every peer, without keepalives."""
        sent = {peer: count - self.keepalives_sent[peer] for peer, count in by_peer(self.sent).items()}
        return sent, {peer: count - self.keepalives_seen[peer] for peer, count in by_peer(self.seen).items()}

    def leave(self, peer: int, sent: int, exit_record: Failure) -> None:
        """Record that a rank has left, after so many messages to this one."""
        self.finished[peer] = sent
        self.absent.add(peer)
        self.exit_records[peer] = exit_record

    def seen_all(self, peer: int) -> bool:
        """Return whether all messages of a rank that has left have been seen."""
        return self.seen[peer] >= self.finished[peer]

    def note_arrival(self, peer: int) -> None:
        """Record the arrival of a message of a rank that has left: the others may be on their way."""
        self._silent.pop(peer, None)

    def probes_exhausted(self, peer: int) -> bool:
        """Count an unsent probe of a `peer` that has left; return whether its last messages had time enough."""
        self._silent[peer] += 1
        return self._silent[peer] > PATIENCE


def by_peer(counts: Sequence[int]) -> dict[int, int]:
    """Return the counts that are not 0, by peer, as reports have them."""
    return {peer: count for peer, count in enumerate(counts) if count}
