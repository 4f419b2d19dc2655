"""Network topologies (ring, mesh, hypercube, crossbar): the links that a message takes, and how many share a link.

Grama, Gupta, Karypis, Kumar, "Introduction to Parallel Computing", 2003, chapter 2 (ring, mesh, hypercube); Sanders and
Sibeyn, IPL 86, 2003, section 4 (hierarchical crossbar). Routes depend on the two ends only. Every link has two
directions, which count as two links.

p ranks. A x B = A rows of B ranks, or A modules of B ranks; the others are those of `ringcast.schedules`.
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
        crossings: how many links all messages take together.
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

    Messages are cut through (Grama, section 2.5, without its time per hop): they flow over all links of their route at
    once, however many these are, and those on a link share its bandwidth. Ranks wait for one another: a round takes
    alpha, and beta for each byte that passes its busiest link.

    Args:
        messages: of all rounds.
        route: what links they take.
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
    """Return the routes of the network that is named, such as mesh:4x8, among `p` ranks.

    Raises:
        ValueError: there is no such network, or none for that many ranks; the message says what fits.

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
    """The shorter way round; upwards if both are equally long."""

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
    """Cross the dimensions in which the ends differ, the lowest first (E-cube routing)."""
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
