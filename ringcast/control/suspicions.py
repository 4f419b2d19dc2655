"""Dead links between live ranks: the decision which of the two ranks is given up, without sockets or clocks.

The survivors have to agree on who they are, and each of them needs a link to every other one. So of the two ends of a
dead link exactly one stays. Which one is decided for all, by the control plane, when `SETTLE` seconds have passed in
which more could be heard: a host that is cut off loses all its links, and its ranks are to go, not all others. Of the
ranks at the ends of dead links the one that has most of them goes; one that has been silent goes before all others, and
with a tie the one with the highest number. This is repeated until no dead link is left.

A silent rank may be on a host that was cut off. A launcher finds that out by itself, and knows when the ranks there
must have ended; so it has `PATIENCE` for that.

Which end tells of a link does not matter: a packet that is lost on the way back is as bad as one on the way there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from ringcast.procs.timing import TIMING

SETTLE, PATIENCE = TIMING.accusation_settle, TIMING.accusation_patience


@dataclass(frozen=True, slots=True)
class Eviction:
    """Rank `given_up` has to go, for `reporter` has found its link to `peer` dead; one of the two is given up."""

    given_up: int
    reporter: int
    peer: int
    cause: str


class Accusations:
    """The dead links of which the control plane has heard."""

    def __init__(self, settle: float = SETTLE, patience: float = 0.0) -> None:
        """Decide after `settle` seconds, but `patience` seconds later while a rank is silent."""
        self._settle, self._patience = settle, patience
        self._until = 0.0  # how long to have patience
        self._links: dict[frozenset[int], tuple[int, int, str]] = {}  # with who told first, of whom, and why
        self.due: float | None = None  # when `decide` is to be called

    def accuse(self, rank: int, peer: int, cause: str, now: float) -> None:
        """Hear from `rank` that its link to `peer` is dead."""
        if rank != peer:
            self._links.setdefault(frozenset((rank, peer)), (rank, peer, cause))
            if self.due is None:
                self.due, self._until = now + self._settle, now + self._settle + self._patience

    def decide(self, here: Callable[[int], bool], silent: Callable[[int], bool], now: float) -> list[Eviction]:
        """Return the ranks to give up, once the accusations have settled.

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
