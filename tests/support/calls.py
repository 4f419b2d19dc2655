"""Calls of all collectives with the results that numpy computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ringcast.communicator import Communicator


def data(rank: int, size: int, seed: int) -> np.ndarray[Any, Any]:
    return np.arange(size) * (rank + 1) + seed


def bcast(comm: Communicator, size: int, seed: int) -> tuple[tuple[Any, ...], Any]:
    root = seed % comm.size
    return (data(root, size, seed) if comm.rank == root else None, root), data(root, size, seed)


def reduce(comm: Communicator, size: int, seed: int) -> tuple[tuple[Any, ...], Any]:
    root = seed % comm.size
    total = sum(data(r, size, seed) for r in range(comm.size))
    return (data(comm.rank, size, seed), sum, root), total if comm.rank == root else None


def allreduce(comm: Communicator, size: int, seed: int) -> tuple[tuple[Any, ...], Any]:
    return (data(comm.rank, size, seed),), sum(data(r, size, seed) for r in range(comm.size))


def gather(comm: Communicator, size: int, seed: int) -> tuple[tuple[Any, ...], Any]:
    root = seed % comm.size
    every = [data(r, size, seed) for r in range(comm.size)]
    return (data(comm.rank, size, seed), root), np.stack(every) if comm.rank == root else None


def gatherv(comm: Communicator, size: int, seed: int) -> tuple[tuple[Any, ...], Any]:
    root = seed % comm.size
    every = [data(r, size * (r % 3), seed) for r in range(comm.size)]
    return (every[comm.rank], None, root), np.concatenate(every) if comm.rank == root else None


def scatter(comm: Communicator, size: int, seed: int) -> tuple[tuple[Any, ...], Any]:
    root = seed % comm.size
    rows = np.stack([data(r, size, seed) for r in range(comm.size)])
    return (rows if comm.rank == root else None, root), rows[comm.rank]


def scatterv(comm: Communicator, size: int, seed: int) -> tuple[tuple[Any, ...], Any]:
    root, counts = seed % comm.size, [size * (r % 3) for r in range(comm.size)]
    rows = data(root, sum(counts), seed)
    begin = sum(counts[: comm.rank])
    return (rows if comm.rank == root else None, counts, root), rows[begin : begin + counts[comm.rank]]


def allgather(comm: Communicator, size: int, seed: int) -> tuple[tuple[Any, ...], Any]:
    return (data(comm.rank, size, seed),), np.stack([data(r, size, seed) for r in range(comm.size)])


def allgatherv(comm: Communicator, size: int, seed: int) -> tuple[tuple[Any, ...], Any]:
    every = [data(r, size * (r % 3), seed) for r in range(comm.size)]
    return (every[comm.rank],), np.concatenate(every)


def merge_sorted(comm: Communicator, size: int, seed: int) -> tuple[tuple[Any, ...], Any]:
    every = [data(r, size, seed) for r in range(comm.size)]
    return (every[comm.rank],), np.sort(np.concatenate(every))


def reduce_scatter(comm: Communicator, size: int, seed: int) -> tuple[tuple[Any, ...], Any]:
    total = sum(data(r, size * comm.size, seed) for r in range(comm.size))
    return (data(comm.rank, size * comm.size, seed),), total[size * comm.rank :][:size]


def scan(comm: Communicator, size: int, seed: int) -> tuple[tuple[Any, ...], Any]:
    return (data(comm.rank, size, seed),), sum(data(r, size, seed) for r in range(comm.rank + 1))


def exscan(comm: Communicator, size: int, seed: int) -> tuple[tuple[Any, ...], Any]:
    before = [data(r, size, seed) for r in range(comm.rank)]
    return (data(comm.rank, size, seed),), sum(before) if before else None


def alltoall(comm: Communicator, size: int, seed: int) -> tuple[tuple[Any, ...], Any]:
    rows = [data(r, comm.size * size, seed).reshape(comm.size, size) for r in range(comm.size)]
    return (rows[comm.rank],), np.stack([rows[r][comm.rank] for r in range(comm.size)])


def alltoallv(comm: Communicator, size: int, seed: int) -> tuple[tuple[Any, ...], Any]:
    counts = [size * (r % 3) for r in range(comm.size)]  # of each rank for rank r
    rows = [data(r, sum(counts), seed) for r in range(comm.size)]
    begin = sum(counts[: comm.rank])
    return (rows[comm.rank], counts), np.concatenate([row[begin : begin + counts[comm.rank]] for row in rows])


def shift(comm: Communicator, size: int, seed: int) -> tuple[tuple[Any, ...], Any]:
    return (data(comm.rank, size, seed), seed), data((comm.rank - seed) % comm.size, size, seed)


def barrier(*_: Any) -> tuple[tuple[Any, ...], Any]:
    return (), None


CASES: dict[str, Callable[[Communicator, int, int], tuple[tuple[Any, ...], Any]]] = {
    case.__name__: case
    for case in (
        bcast, reduce, allreduce, gather, gatherv, scatter, scatterv, allgather, allgatherv, merge_sorted,
        reduce_scatter, scan, exscan, alltoall, alltoallv, shift, barrier,
    )
}  # fmt: skip


def assert_same(got: Any, expected: Any, name: str) -> None:
    assert (got is None) == (expected is None), name
    if expected is not None:
        np.testing.assert_array_equal(got, expected, err_msg=name)
        assert got.dtype == expected.dtype, name
