"""Measure the price of a deterministic job: its reductions beside the ones chosen for the network, in pairs.

ringcast-launch -n 4 docs/scripts/deterministic_price.py
ringcast-launch -n 4 --transport sockets docs/scripts/deterministic_price.py
python docs/scripts/deterministic_price.py --bed 4x100mbit          (emulated hosts: needs root)
python docs/scripts/deterministic_price.py --bed 2x1gbit --each 2

Both are the same job: a communicator, and one of the same ranks that chooses as a deterministic job does. Where both
choose the same there is nothing to measure.
"""

import argparse
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from statistics import geometric_mean, median

import numpy as np

import ringcast
from ringcast.commands.bench.bed import Bed, parse
from ringcast.commands.bench.workers import start_workers
from ringcast.ops import MAX

CALLS = "allreduce", "reduce", "reduce_scatter", "scan"
SIZES = [8 * 8**k for k in range(8)]  # bytes: 8 to 16 MB
SERIES = 0.05  # seconds that the calls of a series are to take together, about


def main() -> None:
    """Be a rank, or start the ranks on emulated hosts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bed", type=parse, help="emulated hosts and the rate of their links, such as 4x100mbit")
    parser.add_argument("--each", type=int, default=1, help="ranks on each host (default 1)")
    parser.add_argument("--repeat", type=int, default=15, help="pairs of series (default 15)")
    options = parser.parse_args()
    if "RINGCAST_RANK" in os.environ:
        compare(options.repeat)
        return
    env = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    with Bed(*options.bed) as bed:
        hosts = [rank // options.each for rank in range(len(bed.hosts) * options.each)]
        ranks = start_workers(bed, [sys.executable, *sys.argv], env, hosts, stdin=subprocess.DEVNULL)
        codes = [rank.wait() for rank in ranks]
    sys.exit(max(codes))


def compare(repeat: int) -> None:
    """Print a line for each call and size; of each series the slowest rank counts."""
    with ringcast.init(timeout=300) as comm:
        fixed = ringcast.Communicator(replace(comm._group, deterministic=True, plans={}), 300)
        say = print if comm.rank == 0 else lambda *_, **__: None
        say("| call | bytes | chosen | deterministic | ratio |\n|---|---|---|---|---|")
        ratios = []
        for name, nbytes in itertools.product(CALLS, SIZES):
            value = np.ones(nbytes // 8)
            ways = [one.explain(name, value).chosen for one in (comm, fixed)]
            if len({(way.algorithm, way.nblocks) for way in ways}) == 1:
                ratios.append(1.0)
                continue
            both = [getattr(one, name) for one in (comm, fixed)]
            calls = int(max(1, min(200, SERIES / max(seconds(comm, call, value, 2) for call in both))))
            pairs = [[seconds(comm, call, value, calls) for call in both] for _ in range(repeat)]
            ratios.append(median(b / a for a, b in pairs))
            took = [median(times) * 1e3 for times in zip(*pairs, strict=True)]
            words = [f"{way.algorithm} {way.nblocks}: {ms:.2f} ms" for way, ms in zip(ways, took, strict=True)]
            say(f"| {name} | {nbytes} | {words[0]} | {words[1]} | {ratios[-1]:.2f} |", flush=True)
        alike = f"{ratios.count(1.0)} of {len(ratios)} calls are chosen alike"
        say(f"\n{alike}; all: {geometric_mean(ratios):.2f}, at most {max(ratios):.2f}")


def seconds(comm: ringcast.Communicator, call: Callable[[np.ndarray], object], value: np.ndarray, calls: int) -> float:
    """Return what a call takes, of so many in a row."""
    comm.barrier()
    start = time.perf_counter()
    for _ in range(calls):
        call(value)
    return float(comm.allreduce(np.float64(time.perf_counter() - start), MAX)) / calls


if __name__ == "__main__":
    main()
