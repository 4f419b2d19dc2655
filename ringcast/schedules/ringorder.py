"""Order ranks around a ring: ranks without data are spread between the others, ranks of a host are side by side.

Träff, Ripke, Siebert, Balaji, Thakur, Gropp, "A pipelined algorithm for large, irregular all-gather problems",
IJHPCA 24(1), 2010, section 2.3 and Figures 1 and 3.

p ranks; z of them contribute nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import TypeVar

_T = TypeVar("_T")


@lru_cache(maxsize=64)
def ring_order(counts: tuple[int, ...]) -> tuple[int, ...]:
    """Return the rank at each position: ranks without data lie between the others at equal distances.

    Both kinds keep the order of their ranks. The longest run of ranks without data is ceil(z / (p-z)).

    >>> ring_order((1, 0, 0, 0, 1, 1))
    (0, 1, 4, 2, 5, 3)
    """
    return tuple(_spread([r for r, m in enumerate(counts) if m], [r for r, m in enumerate(counts) if not m]))


def node_order(hosts: Sequence[Hashable], counts: Sequence[int]) -> tuple[int, ...]:
    """Return the rank at each position, where rank r runs on hosts[r]: the ranks of a host are neighbours.

    So in a round at most one message enters and one leaves each host. The last rank of a host has data, if any rank of
    the host has, so that the host sends from round 0 on; ranks before it, and hosts, without data lie at equal
    distances.

    >>> node_order(["a", "b", "a", "b", "a"], [1, 1, 1, 1, 1])
    (0, 2, 4, 1, 3)
    >>> node_order(["a", "b", "a", "b", "a"], [3, 3, 0, 0, 0])
    (2, 4, 0, 3, 1)
    """
    members: dict[Hashable, list[int]] = {}
    for rank, host in enumerate(hosts):
        members.setdefault(host, []).append(rank)
    empty = [ranks for ranks in members.values() if not any(counts[r] for r in ranks)]
    full = [ranks for ranks in members.values() if any(counts[r] for r in ranks)]
    return tuple(rank for ranks in _spread(full, empty) for rank in _data_last(ranks, counts))


def _data_last(ranks: list[int], counts: Sequence[int]) -> list[int]:
    """Return the ranks of one host, spread from the last one on."""
    backwards = ranks[::-1]
    return _spread([r for r in backwards if counts[r]], [r for r in backwards if not counts[r]])[::-1]


def _spread(full: Sequence[_T], empty: Sequence[_T]) -> list[_T]:
    """Return `full` at equal distances, the first in front, and `empty` in between."""
    total, rest = len(full) + len(empty), iter(empty)
    places = {h * total // len(full): x for h, x in enumerate(full)}
    return [places[i] if i in places else next(rest) for i in range(total)]
