"""Calls of collectives with one fault at one place, as plain data; and what numpy says that the calls return.

A place is an exchange of a rank: the first, second, ... in which it sends or receives something.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ringcast import collectives
from ringcast.algorithms import ALGORITHMS, Algorithm, Params
from ringcast.collectives.neighbors import Neighbors, neighbor_allgather, neighbor_alltoall, neighbors_of
from ringcast.collectives.stage import Choice, Group
from ringcast.engine.execute import Steps
from ringcast.ops import SUM
from ringcast.schedules.neighborhood import of_graph

SIZES = (1, 1_000, 100_000)  # bytes of a rank's value
ENDS = ("leave", "barrier")  # what ranks do after the call: nothing more, or a second call
OF_RANKS = (
    "dies",
    "died",
    "stops",
    "raises",
)  # before it sends; when it has sent; stopped, or an error, before it sends
OF_MESSAGES = ("lost", "late", "twice")
OF_LINKS = ("cut", "half")  # from a message on nothing passes between its two ranks, or nothing in its direction

Array = np.ndarray[Any, Any]
# What can go wrong: of each collective with all its algorithms, and between neighbours.
EVERY = [(collective, name) for collective, named in ALGORITHMS.items() for name in named]
EVERY += [("neighbor_allgather", "graph"), ("neighbor_alltoall", "graph")]


@dataclass(frozen=True)
class Case:
    """A call of a collective, what its ranks do afterwards, and a fault. Its text is `parse`d back."""

    collective: str
    algorithm: str
    size: int
    nbytes: int
    after: str = "leave"
    fault: str = "none"  # or one of the above, or "quits": it leaves instead of making the call
    rank: int = 0  # whose fault it is
    place: int = 0
    message: int = 0  # for faults of messages and links: which of those that the rank sends there

    def __str__(self) -> str:
        return ":".join(map(str, astuple(self)))

    @classmethod
    def parse(cls, text: str) -> Case:
        """Return the case whose text this is.

        >>> Case.parse("shift:ring:5:1:leave:lost:4:0:1").rank
        4
        """
        collective, algorithm, size, nbytes, after, fault, *numbers = text.split(":")
        return cls(collective, algorithm, int(size), int(nbytes), after, fault, *map(int, numbers))

    @property
    def entry(self) -> Algorithm | None:
        """The algorithm; None between neighbours."""
        return ALGORITHMS[self.collective][self.algorithm] if self.collective in ALGORITHMS else None

    @property
    def graph(self) -> tuple[tuple[int, ...], ...]:
        """The destinations of each rank, where the call is between neighbours: two on a ring, and some more."""
        p = self.size
        return tuple(((r + 1) % p, (r + 3) % p, *range(r, p, 3)[1:]) for r in range(p))

    @property
    def root(self) -> int:
        return self.size // 2

    @property
    def distance(self) -> int:
        return min(2, self.size - 1)

    @property
    def fits(self) -> bool:
        return self.entry is None or not self.entry.fits(Params(self.size, self.root, distance=self.distance))


def values(case: Case) -> list[Array]:
    """Return the value of each rank: of uneven lengths, where that is allowed."""
    sort = case.collective == "merge_sorted"
    uneven = case.entry and (sort or case.collective == "allgatherv") and not case.entry.equal_counts
    lengths = (case.nbytes * (rank % 3) if uneven else case.nbytes for rank in range(case.size))
    return [_numbers(rank, n, sort) for rank, n in enumerate(lengths)]


def rows(case: Case) -> list[Array]:
    """Return for each rank an array with a row for every rank."""
    p, width = case.size, max(case.nbytes // case.size, 1)
    return [_numbers(rank, p * width).reshape(p, width) for rank in range(p)]


@lru_cache(maxsize=256)
def _numbers(rank: int, n: int, sort: bool = False) -> Array:
    made = (np.arange(n) * (rank + 3) // 7 + rank).astype(np.uint8)
    made = np.sort(made) if sort else made
    made.flags.writeable = False  # no call may change what it is given
    return made


def call(case: Case, group: Group) -> Steps[Any]:
    """Return what a rank does."""
    c, rank, root = collectives, group.rank, case.root
    choice = Choice(case.algorithm, 2 if case.entry and case.entry.blocks else None)
    mine, row = values(case)[rank], rows(case)[rank]
    calls: dict[str, Callable[[], Steps[Any]]] = {
        "bcast": lambda: c.broadcast.bcast(group, mine if rank == root else None, root, choice),
        "reduce": lambda: c.reduce.reduce(group, mine, SUM, root, None, choice),
        "allreduce": lambda: c.reduce.allreduce(group, mine, SUM, None, choice),
        "gather": lambda: c.gather.gather(group, mine, root, None, choice),
        "scatter": lambda: c.scatter.scatter(group, row if rank == root else None, root, None, choice),
        "allgather": lambda: c.gather.allgather(group, mine, None, choice),
        "allgatherv": lambda: c.gather.allgatherv(group, mine, None, None, choice),
        "reduce_scatter": lambda: c.reduce.reduce_scatter(group, row, SUM, None, None, choice),
        "scan": lambda: c.scan.scan(group, mine, SUM, None, choice),
        "exscan": lambda: c.scan.exscan(group, mine, SUM, None, choice),
        "merge_sorted": lambda: c.merge.merge_sorted(group, mine, None, choice),
        "alltoall": lambda: c.alltoall.alltoall(group, row, None, choice),
        "alltoallv": lambda: c.alltoall.alltoallv(group, row, [1] * case.size, None, None, choice),
        "shift": lambda: c.shift.shift(group, mine, case.distance, None, choice),
        "barrier": lambda: c.reduce.barrier(group),
        "neighbor_allgather": lambda: neighbor_allgather(neighbors(case, group), mine, None),
        "neighbor_alltoall": lambda: neighbor_alltoall(
            neighbors(case, group), row[[i % case.size for i in range(len(case.graph[rank]))]], None
        ),
    }
    return calls[case.collective]()


def neighbors(case: Case, group: Group) -> Neighbors:
    return neighbors_of(group, of_graph(group.rank, case.graph))


def arrivals(case: Case, rank: int) -> list[tuple[int, int]]:
    """Return from whom something comes to a rank, and its place there."""
    return [(r, place) for r, each in enumerate(case.graph) for place, dest in enumerate(each) if dest == rank]


def expected(case: Case) -> list[Any]:
    """Return the right result of each rank."""
    return _expected(case.collective, case.algorithm, case.size, case.nbytes)


@lru_cache(maxsize=64)
def _expected(*facts: Any) -> list[Any]:
    case = Case(*facts)
    p, root, each, table = case.size, case.root, values(case), np.stack(rows(case))

    def at_root(value: Array) -> list[Any]:
        return [value if rank == root else None for rank in range(p)]

    results: dict[str, Callable[[], list[Any]]] = {
        "bcast": lambda: [each[root]] * p,
        "reduce": lambda: at_root(np.stack(each).sum(0, np.uint8)),
        "allreduce": lambda: [np.stack(each).sum(0, np.uint8)] * p,
        "gather": lambda: at_root(np.stack(each)),
        "scatter": lambda: list(table[root]),
        "allgather": lambda: [np.stack(each)] * p,
        "allgatherv": lambda: [np.concatenate(each)] * p,
        "reduce_scatter": lambda: [table.sum(0, np.uint8)[rank : rank + 1] for rank in range(p)],
        "scan": lambda: list(np.stack(each).cumsum(0, np.uint8)),
        "exscan": lambda: [None, *np.stack(each).cumsum(0, np.uint8)[:-1]],
        "merge_sorted": lambda: [np.sort(np.concatenate(each))] * p,
        "alltoall": lambda: [table[:, rank] for rank in range(p)],
        "alltoallv": lambda: [table[:, rank] for rank in range(p)],
        "shift": lambda: [each[(rank - case.distance) % p] for rank in range(p)],
        "barrier": lambda: [None] * p,
        "neighbor_allgather": lambda: [np.stack([each[r] for r, _ in arrivals(case, rank)]) for rank in range(p)],
        "neighbor_alltoall": lambda: [
            np.stack([table[r][place % p] for r, place in arrivals(case, rank)]) for rank in range(p)
        ],
    }
    return results[case.collective]()
