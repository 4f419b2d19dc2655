"""Measure collectives by several algorithms where ranks share hosts, and so links: on emulated hosts (needs root).

python docs/scripts/shared_hosts.py 4x100mbit --each 4 --nbytes 2000000
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median

import numpy as np

import ringcast
from ringcast.commands.bench.bed import Bed, parse
from ringcast.commands.bench.workers import start_workers
from ringcast.ops import MAX

WAYS = {
    "bcast": ("circulant", "linear_pipeline", "full_lane"),
    "reduce": ("circulant", "linear_pipeline", "full_lane"),
    "allgather": ("circulant", "pipelined_ring", "full_lane"),
    "reduce_scatter": ("circulant", "pipelined_ring", "full_lane"),
    "allreduce": ("circulant", "pipelined_ring", "full_lane"),
}


def main() -> None:
    """Start the ranks; or be one of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bed", type=parse, help="hosts and the rate of their links, such as 4x100mbit")
    parser.add_argument("--each", type=int, default=4, help="ranks on each host (default 4)")
    parser.add_argument("--nbytes", type=int, default=2_000_000, help="of the whole buffer (default 2000000)")
    parser.add_argument("--repeat", type=int, default=5, help="how often (default 5)")
    options = parser.parse_args()
    if "RINGCAST_RANK" in os.environ:
        compare(options.nbytes, options.repeat)
        return
    env = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    with Bed(*options.bed) as bed:
        hosts = [rank // options.each for rank in range(len(bed.hosts) * options.each)]
        ranks = start_workers(bed, [sys.executable, *sys.argv], env, hosts, stdin=subprocess.DEVNULL)
        codes = [rank.wait() for rank in ranks]
    sys.exit(max(codes))


def compare(nbytes: int, repeat: int) -> None:
    """Take turns between the algorithms of each collective; of each repetition the slowest rank counts."""
    with ringcast.init(timeout=100) as comm:
        p, root = comm.size, comm.rank == 0
        vector, part = np.ones(nbytes // 8 // p * p), np.ones(nbytes // 8 // p)
        calls: dict[str, Callable[[str], object]] = {
            "bcast": lambda way: comm.bcast(vector, algorithm=way),
            "reduce": lambda way: comm.reduce(vector, algorithm=way),
            "allgather": lambda way: comm.allgather(part, algorithm=way),
            "reduce_scatter": lambda way: comm.reduce_scatter(vector, algorithm=way),
            "allreduce": lambda way: comm.allreduce(vector, algorithm=way),
        }
        for collective, ways in WAYS.items():
            seconds: dict[str, list[float]] = {way: [] for way in ways}
            for _ in range(repeat):
                for way in ways:
                    comm.barrier()
                    start = time.perf_counter()
                    calls[collective](way)
                    seconds[way].append(float(comm.allreduce(np.float64(time.perf_counter() - start), MAX)))
            chosen = comm.explain(collective, nbytes=vector.nbytes).chosen.algorithm
            if root:
                times = ", ".join(f"{way} {median(of) * 1e3:.0f} ms" for way, of in seconds.items())
                print(f"{collective}: {times}; chosen by itself: {chosen}", flush=True)


if __name__ == "__main__":
    main()
