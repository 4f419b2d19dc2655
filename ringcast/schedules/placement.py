"""Describe the placement of ranks on hosts by plain data: for each rank the number of its host."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import TypeAlias

Hosts: TypeAlias = tuple[int, ...]  # (): the hosts are unknown, or make no difference


def hosts_of(names: Sequence[Hashable]) -> Hosts:
    """Return the hosts of ranks that run on hosts of these names; () if all run on one, or each on its own.

    >>> hosts_of(["b", "a", "b", "a", "c"])
    (0, 1, 0, 1, 2)
    >>> hosts_of(["a", "a"]), hosts_of(["a", "b"])
    ((), ())
    """
    numbers: dict[Hashable, int] = {}
    hosts = tuple(numbers.setdefault(name, len(numbers)) for name in names)
    return hosts if 1 < len(numbers) < len(names) else ()


@lru_cache(maxsize=64)
def members(hosts: Hosts) -> tuple[tuple[int, ...], ...]:
    """Return the ranks of each host.

    >>> members((0, 1, 0, 1, 2))
    ((0, 2), (1, 3), (4,))
    """
    found: dict[int, list[int]] = {}
    for rank, host in enumerate(hosts):
        found.setdefault(host, []).append(rank)
    return tuple(tuple(ranks) for ranks in found.values())


@lru_cache(maxsize=64)
def leaving(hosts: Hosts, distance: int) -> int:
    """Return the most messages that leave a host when each rank sends one to the rank `distance` behind it, mod p.

    >>> leaving((0, 0, 0, 1, 1, 1), 1), leaving((0, 0, 0, 1, 1, 1), 2), leaving((0, 1, 0, 1, 0, 1), 1)
    (1, 2, 3)
    """
    p = len(hosts)
    return max(sum(hosts[(r + distance) % p] != host for r in ranks) for host, ranks in enumerate(members(hosts)))


@lru_cache(maxsize=64)
def chain(hosts: Hosts, root: int) -> tuple[int, ...]:
    """Return all ranks, host by host: the root, the others of its host, then the other hosts' ranks.

    >>> chain((0, 1, 0, 1, 2), root=3)
    (3, 1, 0, 2, 4)
    """
    own = [r for r, host in enumerate(hosts) if host == hosts[root] and r != root]
    return (root, *own, *(r for ranks in members(hosts) if root not in ranks for r in ranks))
