"""How many messages and transfers there were with each peer, and what the numbers say of links and of who has left."""

from __future__ import annotations

from collections import Counter

from ringcast.wire.failure import Failure
from ringcast.wire.header import PAIR, Header

PATIENCE = 10  # probes that the last messages of a rank that has left may take to arrive


class Counters:
    """The counts of one rank, by peer. Small talk (probes and their answers) does not tell that anything goes on."""

    def __init__(self) -> None:
        self.sent: Counter[int] = Counter()  # messages ever, by peer
        self.seen: Counter[int] = Counter()
        self.keepalives_sent: Counter[int] = Counter()  # those of `sent` that are small talk
        self.keepalives_seen: Counter[int] = Counter()  # those of `seen`
        self.keepalives = 0  # all of `answered`, and what wakes a wait
        self.posted: Counter[int] = Counter()  # sends ever (of whole transfers), by peer; `matched` is the other end
        self.matched: Counter[int] = Counter()
        self.dropped: Counter[str] = Counter()  # messages that had no effect, by reason
        self.finished: dict[int, int] = {}  # messages that a rank which has left has sent to this one
        self.exit_records: dict[int, Failure] = {}  # of those that have finished, with the error that made them leave
        self._silent: Counter[int] = Counter()  # probes since a rank has left with messages missing

    def missing(self, h: Header) -> int:
        """Return how many messages are missing before this one; 0: none, and if it is not the next one, it is old."""
        ahead = (h.pair - self.seen[h.source]) & PAIR
        return ahead if ahead <= PAIR >> 1 else 0

    def count_keepalive(self, peer: int) -> None:
        """Count the message that has just come as one that only asks or answers whether all is well."""
        self.keepalives_seen[peer] += 1
        self.keepalives += 1

    def without_keepalives(self) -> tuple[dict[int, int], dict[int, int]]:
        """Return the messages to and from every peer, without small talk."""
        sent = {peer: count - self.keepalives_sent[peer] for peer, count in self.sent.items()}
        return sent, {peer: count - self.keepalives_seen[peer] for peer, count in self.seen.items()}

    def leave(self, peer: int, sent: int, exit_record: Failure) -> None:
        """A rank has left, after so many messages to this one."""
        self.finished[peer] = sent
        self.exit_records[peer] = exit_record

    def seen_all(self, peer: int) -> bool:
        """Whether nothing more can come from a rank that has left."""
        return self.seen[peer] >= self.finished[peer]

    def note_arrival(self, peer: int) -> None:
        """A message of a rank that has left has come: the others may be on their way."""
        self._silent.pop(peer, None)

    def probes_exhausted(self, peer: int) -> bool:
        """Count a probe that goes nowhere, for `peer` has left; whether its last messages had time enough."""
        self._silent[peer] += 1
        return self._silent[peer] > PATIENCE
