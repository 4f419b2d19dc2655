"""Compute the routes of messages in a topology (ring, mesh, hypercube, crossbar), and the load of the links.

Grama, Gupta, Karypis, Kumar, "Introduction to Parallel Computing", 2003, chapter 2 (ring, mesh, hypercube); Sanders and
Sibeyn, IPL 86, 2003, section 4 (hierarchical crossbar). Routes depend on the two ends only. Every link has two
directions, which count as two links.

p ranks. A x B = A rows of B ranks, or A modules of B ranks; other letters are as in `ringcast.schedules`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import groupby, pairwise
from typing import TypeAlias

from ringcast._util.dataclass import dataclass
from ringcast.analysis.rounds import Transfer
from ringcast.schedules.crossbar import Channel
from ringcast.schedules.grid import mesh_shape
from ringcast.schedules.mesh import xy_route

Route: TypeAlias = Callable[[int, int], Sequence[Hashable]]  # of two ranks: the links from the first to the second

FULL = "full"
KINDS = "full, ring, mesh:AxB, hypercube, crossbar:AxB"


@dataclass(frozen=True)
class Traffic:
    """The load of a network by the messages of a collective.

    Attributes:
        congestion: the most messages that any link has in any round.
        crossings: the sum of the lengths of all messages' routes.
        hops: the links of the longest route.
        time: seconds, round by round; see `traffic`.
    """

    congestion: int
    crossings: int
    hops: int
    time: float


def traffic(
    messages: Iterable[Transfer], route: Route, sizes: Sequence[int], *, alpha: float = 1.0, beta: float = 0.0
) -> Traffic:
    """Send `messages`, which are in the order of their rounds, along their routes.

    Routing is cut-through (Grama, section 2.5, without its time per hop): messages flow over all links of their route
    at once, and messages on the same link share its bandwidth. Ranks wait for one another: a round takes alpha, and
    beta for each byte that passes its busiest link.

    Args:
        messages: of all rounds.
        route: returns the links of a message.
        sizes: bytes of each slot, scratch included.
        alpha: seconds per round.
        beta: seconds per byte of a link.
    """
    congestion = crossings = hops = 0
    time = 0.0
    for _, together in groupby(messages, key=lambda message: message.round):
        count: Counter[Hashable] = Counter()
        nbytes: Counter[Hashable] = Counter()
        for message in together:
            links = route(message.source, message.dest)
            weight = sum(sizes[slot] for slot in message.slots)
            hops = max(hops, len(links))
            count.update(links)
            for link in links:
                nbytes[link] += weight
        congestion = max(congestion, *count.values())
        crossings += count.total()
        time += alpha + beta * max(nbytes.values())
    return Traffic(congestion, crossings, hops, time)


def route_on(network: str, p: int) -> Route:
    """Return the routes among `p` ranks of a network by its name, such as mesh:4x8.

    Raises:
        ValueError: there is no such network, or none for that many ranks; the text says which ones fit.

    >>> route_on("hypercube", 8)(1, 6)
    [(1, 0), (0, 2), (2, 6)]
    """
    match = re.fullmatch(r"(full|ring|hypercube)|(mesh|crossbar):(\d+)x(\d+)", network)
    if match is None:
        raise ValueError(f"there is no network {network!r}; known are {KINDS}")
    if match[1] == "hypercube" and p & (p - 1):
        below = 1 << p.bit_length() - 1
        raise ValueError(f"a hypercube has a power of two ranks, not {p}; use {below} or {2 * below}")
    if match[1]:
        return {FULL: _direct, "ring": _ring_of(p), "hypercube": _cube}[match[1]]
    a, b = int(match[3]), int(match[4])
    if a * b != p:
        near = "{}x{}".format(*mesh_shape(p))
        other = f", or {a * b} ranks" if a * b else ""
        raise ValueError(f"{network} has {a * b} ranks, not {p}; use {match[2]}:{near}{other}")
    return _mesh_of(b) if match[2] == "mesh" else _crossbar_of(b)


def _direct(source: int, target: int) -> Sequence[Hashable]:
    return [(source, target)]


def _ring_of(p: int) -> Route:
    """Return the routes on a ring: the shorter way round; upwards if both are equally long."""

    def route(source: int, target: int) -> Sequence[Hashable]:
        up = (target - source) % p
        ranks = range(source, source + up + 1) if 2 * up <= p else range(source, source - (p - up) - 1, -1)
        return list(pairwise(rank % p for rank in ranks))

    return route


def _mesh_of(columns: int) -> Route:
    def route(source: int, target: int) -> Sequence[Hashable]:
        return xy_route(columns, source, target)

    return route


def _cube(source: int, target: int) -> Sequence[Hashable]:
    """Return the route across the dimensions in which the ends differ, the lowest first (E-cube routing)."""
    ranks = [source]
    for bit in (1 << k for k in range((source ^ target).bit_length())):
        if (ranks[-1] ^ target) & bit:
            ranks.append(ranks[-1] ^ bit)
    return list(pairwise(ranks))


def _crossbar_of(width: int) -> Route:
    """Ranks of a module are linked in pairs; one channel leads out of each module, and one into it.

    So the congestion is the number of channels that a module needs.
    """

    def route(source: int, target: int) -> Sequence[Hashable]:
        a, b = source // width, target // width
        return [(source, target)] if a == b else [Channel(a, True, 0), Channel(b, False, 0)]

    return route
