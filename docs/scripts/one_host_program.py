"""The program that one_host_mpi4py.py measures: one_host_program.py ringcast|mpi4py REPETITIONS.

Each case stands twice, as a user of each library writes it. Of each repetition the slowest rank counts. Rank 0 prints
the medians in seconds, as JSON.
"""

import json
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

Case = Callable[[], object]
LARGE = 10_000_000  # bytes from which a case is repeated less often
K, POINTS = 5, 20_000  # of k-means, on each rank
SETTINGS = {f"setting {i}": [i, str(i)] for i in range(100)}

Makers = dict[str, Callable[[int], Case]]  # by name: given a number of bytes, a call
Slowest = Callable[[list[float]], list[float]]  # of each repetition the slowest rank's time

CASES = {  # and their bytes
    "barrier": (0,),
    "message and answer": (8, 1_000_000),
    "allreduce": (8, 100_000, 10_000_000, 100_000_000),
    "bcast": (100_000, 100_000_000),
    "allgatherv, counts unknown": (10_000, 100_000_000),
    "gather of dicts": (0,),
    "k-means, a step": (0,),
}


def with_ringcast() -> tuple[Any, Makers, Slowest, str]:
    """Return the communicator, the cases, what finds the slowest rank, and the version."""
    import ringcast

    comm = ringcast.init()
    rank, size = comm.rank, comm.size

    def allreduce(nbytes: int) -> Case:
        a = np.ones(nbytes // 8)
        out = np.empty_like(a)
        return lambda: comm.allreduce(a, out=out)

    def bcast(nbytes: int) -> Case:
        a = np.ones(nbytes // 8)
        return lambda: comm.bcast(a)

    def allgatherv(nbytes: int) -> Case:
        a = uneven(nbytes, rank, size)
        return lambda: comm.allgatherv(a)

    def message(nbytes: int) -> Case:
        a = np.ones(nbytes // 8)

        def there_and_back() -> None:
            if rank == 0:
                comm.send(a, 1)
                comm.recv(1, out=a)
            elif rank == 1:
                comm.recv(0, out=a)
                comm.send(a, 0)

        return there_and_back

    points, centres = cloud(rank), cloud(0)[:K]

    def kmeans() -> None:
        nearest = nearest_of(points, centres)
        sums = comm.allreduce(nearest.T @ points)
        numbers = comm.allreduce(nearest.sum(axis=0))
        centres[:] = sums / np.maximum(numbers, 1)[:, None]

    cases = {
        "barrier": lambda _: comm.barrier,
        "message and answer": message,
        "allreduce": allreduce,
        "bcast": bcast,
        "allgatherv, counts unknown": allgatherv,
        "gather of dicts": lambda _: lambda: comm.gather(SETTINGS),
        "k-means, a step": lambda _: kmeans,
    }
    return comm, cases, lambda times: comm.allreduce(np.array(times), ringcast.MAX).tolist(), ringcast.__version__


def with_mpi4py() -> tuple[Any, Makers, Slowest, str]:
    """Return the same of mpi4py."""
    import mpi4py
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    rank, size = comm.Get_rank(), comm.Get_size()

    def allreduce(nbytes: int) -> Case:
        a = np.ones(nbytes // 8)
        out = np.empty_like(a)
        return lambda: comm.Allreduce(a, out)

    def bcast(nbytes: int) -> Case:
        a = np.ones(nbytes // 8)
        return lambda: comm.Bcast(a)

    def allgatherv(nbytes: int) -> Case:
        a = uneven(nbytes, rank, size)

        def call() -> object:
            counts = comm.allgather(len(a))
            out = np.empty(sum(counts))
            comm.Allgatherv(a, [out, counts])
            return out

        return call

    def message(nbytes: int) -> Case:
        a = np.ones(nbytes // 8)

        def there_and_back() -> None:
            if rank == 0:
                comm.Send(a, 1)
                comm.Recv(a, 1)
            elif rank == 1:
                comm.Recv(a, 0)
                comm.Send(a, 0)

        return there_and_back

    points, centres = cloud(rank), cloud(0)[:K]
    sums, numbers = np.empty_like(centres), np.empty(K)

    def kmeans() -> None:
        nearest = nearest_of(points, centres)
        comm.Allreduce(nearest.T @ points, sums)
        comm.Allreduce(nearest.sum(axis=0), numbers)
        centres[:] = sums / np.maximum(numbers, 1)[:, None]

    cases = {
        "barrier": lambda _: comm.Barrier,
        "message and answer": message,
        "allreduce": allreduce,
        "bcast": bcast,
        "allgatherv, counts unknown": allgatherv,
        "gather of dicts": lambda _: lambda: comm.gather(SETTINGS),
        "k-means, a step": lambda _: kmeans,
    }
    library = " ".join(MPI.Get_library_version().replace("\0", "").splitlines()[0].split(",")[0].split())
    version = f"{library.replace('Version: ', '')}, mpi4py {mpi4py.__version__}"
    return comm, cases, lambda times: list(map(max, zip(*comm.allgather(times), strict=True))), version


def in_words(nbytes: int) -> str:
    """Return a number of bytes as the table has it."""
    unit, name = next((u, n) for u, n in ((1_000_000, "MB"), (1000, "kB"), (1, "B")) if nbytes >= u)
    return f"{nbytes // unit} {name}"


def uneven(nbytes: int, rank: int, size: int) -> np.ndarray:
    """Return the part of this rank: that of rank r is r + 1 times as large as that of rank 0."""
    return np.full(nbytes // 8 * (rank + 1) // sum(range(size + 1)), float(rank))


def cloud(rank: int) -> np.ndarray:
    """Return the points of a rank."""
    return np.random.default_rng(rank).random((POINTS, 2))


def nearest_of(points: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """Return, for every point, a row with a 1 at the centre that is nearest."""
    near: np.ndarray = np.eye(K)[((points[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)]
    return near


def main() -> None:
    """Measure all cases; without repetitions only start, meet and end."""
    library, repetitions = sys.argv[1], int(sys.argv[2])
    comm, makers, slowest, version = (with_ringcast if library == "ringcast" else with_mpi4py)()
    barrier = makers["barrier"](0)
    barrier()
    medians = {}
    for name, nbytes in ((case, nbytes) for case, sizes in CASES.items() for nbytes in sizes if repetitions):
        call, times = makers[name](nbytes), []
        for _ in range(2 + (repetitions if nbytes < LARGE else max(1, repetitions // 10))):
            barrier()
            begin = time.perf_counter()
            call()
            times.append(time.perf_counter() - begin)
        # The first two set up what later calls use again.
        medians[f"{name}, {in_words(nbytes)}" if nbytes else name] = median(slowest(times)[2:])
    if comm.rank == 0:
        print(json.dumps({"version": version, "medians": medians}))


if __name__ == "__main__":
    main()
