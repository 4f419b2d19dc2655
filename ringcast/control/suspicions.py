"""Dead links between live ranks: the decision which of the two ranks is evicted, without sockets or clocks.

The survivors have to agree on who they are, and each of them needs a link to every other one. So of the two ends of a
dead link exactly one stays. The control plane decides for all, after `SETTLE` seconds in which more accusations can
come: a host that is cut off loses all its links, and its ranks are to be evicted, not all others. Of the ranks at the
ends of dead links the one with most of them is evicted; a silent rank before all others, and with a tie the one with
the highest number. This is repeated until no dead link is left.

A silent rank may be on a host that was cut off. A launcher detects that by itself, and knows when the ranks there must
have ended; so the decision waits up to `PATIENCE` longer.

Either end may report a link: a packet that is lost on the way back is as bad as one on the way there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from ringcast._util.dataclass import dataclass
from ringcast.procs.timing import TIMING

SETTLE, PATIENCE = TIMING.accusation_settle, TIMING.accusation_patience


@dataclass(frozen=True, slots=True)
class Eviction:
    """Rank `given_up`, one of `reporter` and `peer`, is evicted, as `reporter` found the link between them dead."""

    given_up: int
    reporter: int
    peer: int
    cause: str


class Accusations:
    """The dead links that were reported to the control plane."""

    def __init__(self, settle: float = SETTLE, patience: float = 0.0) -> None:
        """Decide after `settle` seconds, but `patience` seconds later while a rank is silent."""
        self._settle, self._patience = settle, patience
        self._until = 0.0  # end of the patience
        self._links: dict[frozenset[int], tuple[int, int, str]] = {}  # with the first report: reporter, peer, cause
        self.due: float | None = None  # when `decide` is to be called

    def accuse(self, rank: int, peer: int, cause: str, now: float) -> None:
        """Record the report of `rank` that its link to `peer` is dead."""
        if rank != peer:
            self._links.setdefault(frozenset((rank, peer)), (rank, peer, cause))
            if self.due is None:
                self.due, self._until = now + self._settle, now + self._settle + self._patience

    def decide(self, here: Callable[[int], bool], silent: Callable[[int], bool], now: float) -> list[Eviction]:
        """Return the ranks to evict, once the accusations have settled.

        Args:
            here: whether a rank takes part in the job and is not given up: other links are of no interest.
            silent: whether a rank has not been heard lately.
            now: the time in seconds.
        """
        if self.due is None or now < self.due:
            return []
        links = {pair: told for pair, told in self._links.items() if all(map(here, pair))}
        if now < self._until and any(silent(rank) for pair in links for rank in pair):
            self.due = min(now + self._settle, self._until)
            return []
        self.due = None
        self._links = {}
        evictions = []
        while links:
            dead = Counter(rank for pair in links for rank in pair)
            victim = max(dead, key=lambda rank: (silent(rank), dead[rank], rank))
            told = next(told for pair, told in links.items() if victim in pair)
            evictions.append(Eviction(victim, *told))
            links = {pair: told for pair, told in links.items() if victim not in pair}
        return evictions
