"""List all algorithms in a table, check calls, and build schedules. A family's TESTED names the file with its laws.

`ALGORITHMS[collective][name]` has an algorithm's needs and costs; `build` checks a call and returns a rank's schedule.
At a tie in the cost model the first algorithm in the table is chosen. `table` and `find` also know algorithms outside
of the table: fractional trees that are named with their r.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from ringcast.algorithms import (
    circulant,
    doubling,
    exchange,
    fractional,
    grama,
    grama_all,
    lanes,
    merging,
    ordered,
    ring,
    scan,
    shift,
)
from ringcast.algorithms.algorithm import Algorithm
from ringcast.algorithms.params import Params
from ringcast.schedules.schedule import Schedule


def _table(entries: tuple[Algorithm, ...]) -> Mapping[str, Mapping[str, Algorithm]]:
    table: dict[str, dict[str, Algorithm]] = {}
    for entry in entries:
        table.setdefault(entry.collective, {})[entry.name] = entry
    return MappingProxyType({collective: MappingProxyType(named) for collective, named in table.items()})


FAMILIES = circulant, doubling, ring, ordered, scan, fractional, grama, grama_all, merging, exchange, shift, lanes
ALGORITHMS = _table(tuple(entry for family in FAMILIES for entry in family.ALGORITHMS))

_WITH_RUN = re.compile(r"(fractional_tree)_([1-9]\d{0,8})")


def table(collective: str, algorithm: str | None = None) -> Mapping[str, Algorithm]:
    """Return the algorithms of a collective, and `algorithm` as well if it names a fractional tree with its r.

    >>> [name for name in table("bcast", "fractional_tree_8") if name not in ALGORITHMS["bcast"]]
    ['fractional_tree_8']
    """
    named = ALGORITHMS[collective]
    match = _WITH_RUN.fullmatch(algorithm or "")
    if match is None or match[1] not in named:
        return named
    return {**named, match[0]: fractional.with_run(named[match[1]], int(match[2]))}


def names(collective: str) -> str:
    """Return the names of all algorithms of a collective as text for errors.

    >>> names("bcast")
    'circulant, linear_pipeline, binary_tree, fractional_tree, ..., full_lane; or fractional_tree_R, R = 1, 2, ...'
    """
    named = ", ".join(ALGORITHMS[collective])
    return f"{named}; or fractional_tree_R, R = 1, 2, ..." if "fractional_tree" in ALGORITHMS[collective] else named


def find(collective: str, algorithm: str) -> Algorithm:
    """Return an algorithm of the table, or a fractional tree that is named with its r."""
    return table(collective, algorithm)[algorithm]


def build(collective: str, algorithm: str, params: Params, rank: int) -> Schedule:
    """Return the schedule of `rank`.

    Raises:
        ValueError: there is no such collective or algorithm, or the algorithm cannot do this call.

    >>> build("bcast", "circulant", Params(size=3, nblocks=2), rank=1)
    Broadcast(size=3, rank=1, nblocks=2, root=0)
    """
    if collective not in ALGORITHMS:
        raise ValueError(f"there is no collective {collective!r}; known are {', '.join(ALGORITHMS)}")
    if algorithm not in table(collective, algorithm):
        raise ValueError(f"there is no algorithm {algorithm!r} for {collective}; known are {names(collective)}")
    entry = find(collective, algorithm)
    if reason := _reason_not(entry, params, rank):
        raise ValueError(f"{collective} by {algorithm}: {reason}")
    return entry.build(params, rank)


def validate(p: Params, rank: int = 0) -> str:
    """Return why no algorithm can do such a call; "" if the call is valid."""
    if p.size < 1:
        return f"there is no group of {p.size} ranks"
    for name, r in ("rank", rank), ("root", p.root):
        if not 0 <= r < p.size:
            return f"{name} {r} is not one of {p.size} ranks"
    if not 0 <= p.distance < p.size:
        return f"distance {p.distance} is not in 0..{p.size - 1}"
    if p.counts and len(p.counts) != p.size:
        return f"{len(p.counts)} counts for {p.size} ranks"
    if min(p.counts, default=0) < 0:
        return f"a count of {min(p.counts)} is negative"
    return ""


def _reason_not(entry: Algorithm, p: Params, rank: int) -> str:
    """Return why `entry` cannot do this call; "" if it can."""
    if reason := validate(p, rank):
        return reason
    if p.nblocks < 1 or (p.nblocks > 1 and not entry.blocks):
        return f"cannot cut into {p.nblocks} blocks" + ("" if entry.blocks else ", it always uses one")
    if entry.equal_counts and len(set(p.counts)) > 1:
        return "all counts must be equal"
    return entry.fits(p)
