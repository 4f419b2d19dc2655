"""Digests of the results of all calls that combine values, on one rank.

Run as a program, rank 0 prints those of all ranks; arguments are numbers of items."""

from __future__ import annotations

import functools
import json
import operator
import sys
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import ringcast

SIZES = (1, 3, 2500, 33_001, 150_001)  # numbers: 8 bytes to more than a megabyte
HYPOT = ringcast.Op(np.hypot, commutative=True, elementwise=True)
JOINED = ringcast.Op(lambda a, b: a + b * 0.1, name="joined")  # neither commutative nor elementwise


def values(rank: int, size: int, kind: str) -> np.ndarray[Any, Any]:
    """Return numbers whose sum has other bits in every order."""
    rng = np.random.default_rng([rank, size])
    numbers = rng.standard_normal(size) * 10.0 ** rng.integers(-3, 4, size)
    return numbers.astype(kind) if kind != "D" else numbers + 1j * numbers[::-1]


def calls(comm: ringcast.Communicator, sizes: tuple[int, ...] = SIZES) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the name of each call, and the call."""
    rank, p = comm.rank, comm.size
    for size in sizes:
        x = values(rank, size, "f8")
        uneven = [size - p + 1 if r == p // 2 else 1 for r in range(p)] if size >= p else [size] + [0] * (p - 1)
        for name, op in (("SUM", ringcast.SUM), ("hypot", HYPOT), ("joined", JOINED)):
            yield f"allreduce {name} {size}", functools.partial(comm.allreduce, x, op)
            yield f"reduce {name} {size}", functools.partial(comm.reduce, x, op, p - 1)
            yield f"reduce_scatter {name} {size}", functools.partial(comm.reduce_scatter, x, op)
            yield f"reduce_scatter {name} {size} uneven", functools.partial(comm.reduce_scatter, x, op, uneven)
            yield f"scan {name} {size}", functools.partial(comm.scan, x, op)
            yield f"exscan {name} {size}", functools.partial(comm.exscan, x, op)
        for kind, op in (("f2", ringcast.SUM), ("f4", ringcast.SUM), ("D", ringcast.PROD), ("f8", ringcast.MIN)):
            y = values(rank, size, kind)
            yield f"allreduce {op} of {kind} {size}", functools.partial(comm.allreduce, y, op)
            yield f"reduce {op} of {kind} {size}", functools.partial(comm.reduce, y, op)
        yield f"allreduce in place {size}", lambda x=x: (copy := x.copy(), comm.allreduce(copy, out=copy))[1]
        yield f"iallreduce {size}", lambda x=x: comm.iallreduce(x).wait()
        yield f"merge_sorted {size}", functools.partial(comm.merge_sorted, np.sort(x))
    one = float(values(rank, 1, "f8")[0])
    for name, call in (("allreduce", comm.allreduce), ("reduce", comm.reduce), ("scan", comm.scan)):
        yield f"{name} of objects", functools.partial(call, one)
        yield f"{name} of objects in order", functools.partial(call, one, operator.add)
    byte = np.array([rank % 100], "i1")
    yield "allreduce of a byte", functools.partial(comm.allreduce, byte)


def digest(result: Any) -> int:
    return zlib.crc32(b"none" if result is None else np.asarray(result).tobytes())


def digests(comm: ringcast.Communicator, sizes: tuple[int, ...] = SIZES) -> dict[str, int]:
    """Return the digest of this rank's result of each call; of an allreduce it is the same on all ranks."""
    return {name: digest(call()) for name, call in calls(comm, sizes)}


def report(comm: ringcast.Communicator, sizes: tuple[int, ...] = SIZES) -> None:
    """Print the digests of all ranks, also of a communicator of every other rank."""
    half = comm.split(comm.rank % 2)
    assert half is not None
    every = comm.gather((digests(comm, sizes), digests(half, sizes[:2])))
    if every is not None:
        print(json.dumps(every))


if __name__ == "__main__":
    report(ringcast.init(), tuple(map(int, sys.argv[1:])) or SIZES)
