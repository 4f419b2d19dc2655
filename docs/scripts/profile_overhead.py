"""Measure how long a call takes longer when it is profiled: blocks of calls with and without, by turns, in one job.

    ringcast-launch -n 2 docs/scripts/profile_overhead.py

Prints the medians of the differences, of a small allreduce and of one of 1 MB. A rank keeps the begin and the end of
up to 16,384 calls: of all calls at first, then of one in 2, 4, 8, … So the small call is measured at the beginning and
after 70,000 calls.
"""

import time
from collections.abc import Callable
from statistics import median

import numpy as np

import ringcast

PAIRS = 31
FEW, MANY = 12, 70_000  # calls before: the first ones of a call site are observed round by round


def timed(comm: ringcast.Communicator, call: Callable[[], object], times: int) -> float:
    """Return the seconds of one call."""
    comm.barrier()
    begin = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - begin) / times


def main() -> None:
    """Measure, and print."""
    comm = ringcast.init()
    for nbytes, times, before in ((8, 3000, FEW), (8, 3000, MANY), (1_000_000, 100, FEW)):
        data, out = np.ones(nbytes // 8), np.empty(nbytes // 8)

        def call(data: np.ndarray = data, out: np.ndarray = out) -> object:
            return comm.allreduce(data, out=out)

        timed(comm, call, times)
        plain, differences = [], []
        for _ in range(PAIRS):
            plain.append(timed(comm, call, times))
            with ringcast.profile():
                timed(comm, call, before)
                differences.append(timed(comm, call, times) - plain[-1])
        if comm.rank == 0:
            more, base = median(differences), median(plain)
            case = f"{nbytes} bytes on {comm.size} ranks, after {before:,} calls"
            print(f"{case}: {base * 1e6:.2f} us, {more * 1e6:+.2f} us ({more / base:+.1%})")


main()
