"""Make the buffers of one rank for a case, and check the result by an oracle that does not communicate.

It needs numpy only, since peers use it in virtual environments of their own. Rank r gives items with the values
(i + 31 r) mod 251: another sequence for every rank, which no sensible block size divides, and whose sums are exact in
float64 in any order. Data for a merge is sorted before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

PERIOD = 251
POINT_TO_POINT = ("latency", "bandwidth")
COMBINING = ("reduce", "allreduce", "reduce_scatter", "scan", "exscan", "merge_sorted")  # of float64
NOTHING: Array = np.empty(0, np.uint8)


def window(nbytes: int) -> int:
    """Return the number of messages of `nbytes` in one repetition of bandwidth: at most 64, and about 4 MB.

    >>> window(100), window(1_000_000), window(10_000_000)
    (64, 4, 1)
    """
    return max(1, min(64, 4_000_000 // max(nbytes, 1)))


def pattern(rank: int, items: int, dtype: Any) -> Array:
    """Return the data that `rank` gives: `items` numbers."""
    return np.resize(((np.arange(PERIOD) + 31 * rank) % PERIOD).astype(dtype), items)


class Workload:
    """Buffers and call of one rank for a case.

    Attributes:
        collective: of the case.
        root: where there is one.
        nbytes: of the case.
        counts: items of each rank's part, where there are parts; all equal for allgather, gather, scatter and alltoall;
            for alltoallv the items that this rank gives to each rank, and gets from each.
        displs: items before each rank's part.
        messages: of a repetition of bandwidth.
        given: the data that this rank gives; empty if it gives none.
        out: the array for this rank's result; empty if it gets none. For bcast it is the buffer, also at the root.
    """

    def __init__(self, case: Mapping[str, Any], rank: int) -> None:
        self.collective: str = case["collective"]
        self.root: int = case["root"]
        self.nbytes: int = case["nbytes"]
        self._rank, self._size = rank, case["size"]
        self._dtype = np.dtype(np.float64 if self.collective in COMBINING else np.uint8)
        self._items: int = self.nbytes // self._dtype.itemsize
        self._parts = tuple(part // self._dtype.itemsize for part in case["parts"])
        self.counts = self._row(rank) if self.collective == "alltoallv" else self._parts
        self.displs = tuple(accumulate(self.counts, initial=0))[:-1]
        self.messages = window(self.nbytes)
        self.given = self._given()
        self.out = np.empty(self._length_of_result(), self._dtype)
        self.clear()

    def clear(self) -> None:
        """Overwrite the result, so that a repetition that does nothing is noticed."""
        self.out.fill(0)
        if self.collective == "bcast" and self._rank == self.root:
            self.out[:] = self.given

    def verdict(self) -> str:
        """Return the error in the result, or ""."""
        expected = self._expected()
        wrong = np.flatnonzero(self.out != expected)
        if not len(wrong):
            return ""
        first = wrong[0]
        return (
            f"{self.collective}, rank {self._rank}: {len(wrong)} of {len(expected)} items are wrong; "
            f"item {first} is {self.out[first]} instead of {expected[first]}"
        )

    def _given(self) -> Array:
        if self.collective in ("bcast", "scatter"):
            return self._pattern(self._rank) if self._rank == self.root else NOTHING
        if self.collective in ("allgather", "allgatherv", "gather"):
            return self._part(self._rank)
        if self.collective == "merge_sorted":
            return self._run(self._rank)
        if self.collective in ("latency", "bandwidth") and self._rank > 1:
            return NOTHING
        return self._pattern(self._rank)

    def _length_of_result(self) -> int:
        """Return the items of the result; as many as `_expected` gives."""
        at_root = self._rank == self.root
        match self.collective:
            case "reduce" | "gather":
                return self._items if at_root else 0
            case "reduce_scatter" | "scatter":
                return self.counts[self._rank]
            case "exscan":
                return self._items if self._rank else 0
            case "latency":
                return self._items if self._rank < 2 else 0
            case "bandwidth":
                return self._items if self._rank == 1 else 0
            case _:
                return self._items

    def _expected(self) -> Array:
        match self.collective:
            case "bcast":
                return self._pattern(self.root)
            case "reduce" | "allreduce":
                return self._sum(self._size) if len(self.out) else NOTHING
            case "scan":
                return self._sum(self._rank + 1)
            case "exscan":
                return self._sum(self._rank) if len(self.out) else NOTHING
            case "allgather" | "allgatherv" | "gather":
                return np.concatenate([self._part(r) for r in range(self._size)]) if len(self.out) else NOTHING
            case "reduce_scatter":
                return self._mine(self._sum(self._size), self.counts)
            case "scatter":
                return self._mine(self._pattern(self.root), self.counts)
            case "alltoall":
                return np.concatenate([self._mine(self._pattern(r), self.counts) for r in range(self._size)])
            case "alltoallv":
                return np.concatenate([self._mine(self._pattern(r), self._row(r)) for r in range(self._size)])
            case "shift":
                return self._pattern((self._rank - 1) % self._size)
            case "merge_sorted":
                return np.sort(np.concatenate([self._run(r) for r in range(self._size)]))
            case "latency" | "bandwidth":
                return self._pattern(1 - self._rank) if len(self.out) else NOTHING
            case _:
                return self.out

    def _pattern(self, rank: int) -> Array:
        return pattern(rank, self._items, self._dtype)

    def _part(self, rank: int) -> Array:
        return pattern(rank, self.counts[rank], self._dtype)

    def _run(self, rank: int) -> Array:
        return np.sort(pattern(rank, self._parts[rank], self._dtype))

    def _row(self, rank: int) -> tuple[int, ...]:
        """Return the items that `rank` has for each rank in an alltoallv."""
        return tuple(self._parts[(rank + j) % self._size] for j in range(self._size))

    def _mine(self, whole: Array, counts: Sequence[int]) -> Array:
        """Return the part for this rank in the data of another rank."""
        first = sum(counts[: self._rank])
        return whole[first : first + counts[self._rank]]

    def _sum(self, ranks: int) -> Array:
        """Return the sum of the data of the first `ranks` ranks."""
        total = np.zeros(self._items, self._dtype)
        for rank in range(ranks):
            total += self._pattern(rank)
        return total
