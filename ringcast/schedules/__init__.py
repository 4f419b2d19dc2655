"""Schedules of the collectives, one family per file, and the table of them.

`ALGORITHMS[collective][algorithm]` says what an algorithm needs, and what it takes; `build` checks a call and
returns a rank's schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ringcast.schedule import Schedule, reverse
from ringcast.schedules import circulant, doubling, ring

__all__ = ["ALGORITHMS", "Algorithm", "Params", "build"]


@dataclass(frozen=True)
class Params:
    """What all ranks know about a call of a collective."""

    size: int
    root: int = 0
    nblocks: int = 1  # of every part; pipelined ring: of the largest part
    counts: tuple[int, ...] = ()  # v-forms: elements of each part; (): all parts are equal and not empty

    @property
    def contributions(self) -> tuple[int, ...]:
        """Counts that tell which parts are empty, also where all are equal."""
        return self.counts or (self.nblocks,) * self.size


@dataclass(frozen=True)
class Algorithm:
    """One way to do a collective: how to get its schedule, what it needs, what it takes, where it is from."""

    name: str
    collective: str
    build: Callable[[Params, int], Schedule]
    rounds: Callable[[Params], int]
    source: str
    commutative: bool = False  # needs a commutative operator
    elementwise: bool = False  # needs an operator that may be applied to pieces of the value
    exact: bool = False  # gives all ranks the same bits only if the operator gives the same in any association
    equal_counts: bool = False  # needs parts of equal size
    blocks: bool = False  # cuts parts into `nblocks` blocks
    whole: bool = (
        False  # a reduce_scatter that gives every rank the whole vector, as one slot: the caller takes its part
    )


_TRAEFF_2022 = "Träff, (Poly)logarithmic time construction of round-optimal n-block broadcast schedules, 2022"
_TRAEFF_2024 = "Träff, Optimal, non-pipelined reduce-scatter and allreduce algorithms, arXiv 2410.14234"
_REVERSAL = "Träff, arXiv 2407.18004: the broadcast backwards"
_RING = "Träff et al., A pipelined algorithm for large, irregular all-gather problems, 2010"
_FOLKLORE = "folklore; Grama et al., Introduction to Parallel Computing, 2003"


def _log(p: Params) -> int:
    """Return ceil(log2 size)."""
    return (p.size - 1).bit_length()


def _pipelined(p: Params) -> int:
    """Return the rounds of n blocks on the circulant graph; nothing moves where there is no data at all."""
    return p.nblocks - 1 + _log(p) if p.size > 1 and any(p.contributions) else 0


_ENTRIES = (
    Algorithm(
        "circulant",
        "bcast",
        lambda p, rank: circulant.bcast(p.size, rank, nblocks=p.nblocks, root=p.root),
        _pipelined,
        f"{_TRAEFF_2022}, Algorithm 6",
        blocks=True,
    ),
    Algorithm(
        "circulant",
        "reduce",
        lambda p, rank: circulant.reduce(p.size, rank, nblocks=p.nblocks, root=p.root),
        _pipelined,
        _REVERSAL,
        commutative=True,
        elementwise=True,
        blocks=True,
    ),
    Algorithm(
        "binomial",
        "reduce",
        lambda p, rank: doubling.ordered_reduce(p.size, rank, root=p.root),
        _log,
        _FOLKLORE,
    ),
    Algorithm(
        "census",
        "allreduce",
        lambda p, rank: circulant.census(p.size, rank),
        _log,
        f"{_TRAEFF_2022}, Algorithm 8",
        commutative=True,
        exact=True,
    ),
    Algorithm(
        "doubling",
        "allreduce",
        lambda p, rank: doubling.doubling(p.size, rank),
        lambda p: doubling.doubling_rounds(p.size),
        _FOLKLORE,
    ),
    Algorithm(
        "circulant",
        "allreduce",
        lambda p, rank: circulant.allreduce(p.size, rank),
        lambda p: 2 * _log(p),
        _TRAEFF_2024,
        commutative=True,
        elementwise=True,
    ),
    Algorithm(
        "pipelined_ring",
        "allreduce",
        lambda p, rank: ring.allreduce(p.size, rank, nblocks=p.nblocks),
        lambda p: 2 * (p.size - 1) * p.nblocks,
        f"{_RING}: backwards, then forwards",
        commutative=True,
        elementwise=True,
        blocks=True,
    ),
    Algorithm(
        "circulant",
        "allgather",
        lambda p, rank: circulant.allgather(p.size, rank),
        _log,
        f"{_TRAEFF_2022}, Algorithm 7",
        equal_counts=True,
    ),
    Algorithm(
        "ring",
        "allgather",
        lambda p, rank: ring.ring(p.size, rank),
        lambda p: p.size - 1,
        _FOLKLORE,
        equal_counts=True,
    ),
    Algorithm(
        "pipelined_ring",
        "allgather",
        lambda p, rank: ring.pipelined_ring(p.size, rank, nblocks=p.nblocks, counts=p.contributions),
        lambda p: ring.ring_rounds(p.contributions, p.nblocks),
        _RING,
        equal_counts=True,
        blocks=True,
    ),
    Algorithm(
        "circulant",
        "allgatherv",
        lambda p, rank: circulant.allgather(p.size, rank),
        _log,
        f"{_TRAEFF_2022}, Algorithm 7",
    ),
    Algorithm(
        "circulant_blocks",
        "allgatherv",
        lambda p, rank: circulant.allgatherv(p.size, rank, nblocks=p.nblocks, counts=p.contributions),
        _pipelined,
        f"{_TRAEFF_2022}, Algorithm 9",
        blocks=True,
    ),
    Algorithm(
        "ring",
        "allgatherv",
        lambda p, rank: ring.ring(p.size, rank),
        lambda p: p.size - 1,
        _FOLKLORE,
    ),
    Algorithm(
        "pipelined_ring",
        "allgatherv",
        lambda p, rank: ring.pipelined_ring(p.size, rank, nblocks=p.nblocks, counts=p.contributions),
        lambda p: ring.ring_rounds(p.contributions, p.nblocks),
        _RING,
        blocks=True,
    ),
    Algorithm(
        "circulant",
        "reduce_scatter",
        lambda p, rank: circulant.reduce_scatter(p.size, rank),
        _log,
        _TRAEFF_2024,
        commutative=True,
        elementwise=True,
    ),
    Algorithm(
        "circulant_blocks",
        "reduce_scatter",
        lambda p, rank: circulant.reduce_scatter_v(p.size, rank, nblocks=p.nblocks, counts=p.contributions),
        _pipelined,
        _REVERSAL,
        commutative=True,
        elementwise=True,
        blocks=True,
    ),
    Algorithm(
        "pipelined_ring",
        "reduce_scatter",
        lambda p, rank: reverse(ring.pipelined_ring(p.size, rank, nblocks=p.nblocks, counts=p.contributions)),
        lambda p: ring.ring_rounds(p.contributions, p.nblocks),
        f"{_RING}: backwards",
        commutative=True,
        elementwise=True,
        blocks=True,
    ),
    Algorithm(
        "whole",
        "reduce_scatter",
        lambda p, rank: doubling.doubling(p.size, rank),
        lambda p: doubling.doubling_rounds(p.size),
        _FOLKLORE,
        whole=True,
    ),
    Algorithm(
        "circulant",
        "scatter",
        lambda p, rank: circulant.scatter(p.size, rank, root=p.root),
        _log,
        f"a tree on the graph of {_TRAEFF_2022}",
    ),
    Algorithm(
        "circulant",
        "gather",
        lambda p, rank: circulant.gather(p.size, rank, root=p.root),
        _log,
        f"a tree on the graph of {_TRAEFF_2022}, backwards",
    ),
    Algorithm(
        "census",
        "barrier",
        lambda p, rank: circulant.barrier(p.size, rank),
        _log,
        f"{_TRAEFF_2022}, Algorithm 8",
    ),
)


def _table(entries: tuple[Algorithm, ...]) -> Mapping[str, Mapping[str, Algorithm]]:
    table: dict[str, dict[str, Algorithm]] = {}
    for entry in entries:
        table.setdefault(entry.collective, {})[entry.name] = entry
    return MappingProxyType({collective: MappingProxyType(named) for collective, named in table.items()})


ALGORITHMS = _table(_ENTRIES)


def build(collective: str, algorithm: str, params: Params, rank: int) -> Schedule:
    """Return the schedule of `rank`.

    Raises:
        ValueError: there is no such collective or algorithm, or it cannot do what `params` ask for.

    >>> build("bcast", "circulant", Params(size=3, nblocks=2), rank=1)
    Broadcast(size=3, rank=1, nblocks=2, root=0)
    """
    if collective not in ALGORITHMS:
        raise ValueError(f"there is no collective {collective!r}; known are {', '.join(ALGORITHMS)}")
    if algorithm not in ALGORITHMS[collective]:
        known = ", ".join(ALGORITHMS[collective])
        raise ValueError(f"there is no algorithm {algorithm!r} for {collective}; known are {known}")
    entry = ALGORITHMS[collective][algorithm]
    if reason := _objection(entry, params, rank):
        raise ValueError(f"{collective} by {algorithm}: {reason}")
    return entry.build(params, rank)


def _objection(entry: Algorithm, p: Params, rank: int) -> str:
    """Return why `entry` cannot do what is asked for, or nothing."""
    if p.size < 1:
        return f"there is no group of {p.size} ranks"
    for name, r in ("rank", rank), ("root", p.root):
        if not 0 <= r < p.size:
            return f"{name} {r} is not one of {p.size} ranks"
    if p.nblocks < 1 or (p.nblocks > 1 and not entry.blocks):
        return f"cannot cut into {p.nblocks} blocks" + ("" if entry.blocks else ", it always uses one")
    if p.counts and len(p.counts) != p.size:
        return f"{len(p.counts)} counts for {p.size} ranks"
    if min(p.counts, default=0) < 0:
        return f"a count of {min(p.counts)} is negative"
    if entry.equal_counts and len(set(p.counts)) > 1:
        return "all counts must be equal"
    return ""
