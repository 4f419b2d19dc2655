"""The figures of pools.md.

python docs/scripts/pool_figures.py                             on this host: tasks, latency, a killed worker
PYTHONPATH=tests python docs/scripts/pool_figures.py --mb 100   on 8 emulated hosts of 100 Mbit/s: a large closure
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np

import ringcast

TASKS = 10_000
PAIRS = 3  # of a map and a broadcast
PLACES = ",".join(f"h{host}:1" for host in range(8))


def main() -> None:
    """Measure what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, help="size of the closure, in MB")
    parser.add_argument("--within", action="store_true", help="this is one of the hosts already")
    options = parser.parse_args()
    if options.mb is None:
        here()
    elif options.within:
        on_hosts(options.mb)
    else:
        from support.beds import ENVIRONMENT  # type: ignore[import-not-found]  # of the tests
        from support.sshd import ssh_bed  # type: ignore[import-not-found]

        command = [sys.executable, os.path.abspath(__file__), "--within", "--mb", str(options.mb)]
        with ssh_bed("8x100mbit") as bed:
            subprocess.run(bed.argv(0, command), env=dict(ENVIRONMENT), check=True)


def here() -> None:
    """Print the figures of pools of two workers."""
    for made in ringcast.Pool, ProcessPoolExecutor:
        with made(2) as pool:
            wait([pool.submit(abs, n) for n in range(100)])
            print(made.__name__)
            print(f"  submit one by one: {TASKS / best(lambda: wait(submitted(pool))):.0f} tasks/s")
            print(f"  map: {TASKS / best(lambda: list(pool.map(abs, range(TASKS)))):.0f} tasks/s")
            times = [timed(lambda: pool.submit(abs, 1).result()) for _ in range(1000)]
            print(f"  submit and result of one: {statistics.median(times) * 1e6:.0f} µs")
    with ringcast.Pool(3) as pool:
        wait([pool.submit(time.sleep, 0.01) for _ in range(30)])
        spent = timed(lambda: pool.submit(os.kill, pool.submit(os.getpid).result(), signal.SIGKILL).exception())
        print(f"a worker is killed, and its task runs again: {spent:.3f} s")


def submitted(pool: Any) -> list[Any]:
    """Return the futures of empty tasks."""
    return [pool.submit(abs, n) for n in range(TASKS)]


def wait(futures: list[Any]) -> None:
    """Wait for results."""
    for future in futures:
        future.result()


def best(call: Callable[[], object]) -> float:
    """Return the least time of three calls."""
    return min(timed(call) for _ in range(3))


def timed(call: Callable[[], object]) -> float:
    """Return the time of a call."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def on_hosts(megabytes: int) -> None:
    """Print the times of 1000 tasks with a closure, and of one broadcast, in a pool of one worker on each host."""
    pairs = []
    with ringcast.Pool(hosts=PLACES) as pool:
        list(pool.map(abs, range(100)))
        for seed in range(PAIRS):
            data = np.random.default_rng(seed).integers(0, 255, megabytes * 1_000_000, dtype=np.uint8)
            spent = timed(lambda data=data: list(pool.map(lambda n: data[n], range(1000))))
            pairs.append((spent, max(pool.submit_ranks(8, broadcast, megabytes).result())))
    for spent, once in pairs:
        print(f"{megabytes} MB to 8 hosts: 1000 tasks {spent:.2f} s, one bcast {once:.2f} s, {spent / once:.2f} times")
    print(f"median: {statistics.median(spent / once for spent, once in pairs):.2f} times")


def broadcast(comm: ringcast.Communicator, megabytes: int) -> float:
    """Return the time of a broadcast."""
    array = np.zeros(megabytes * 1_000_000, np.uint8) if comm.rank == 0 else None
    comm.barrier()
    return timed(lambda: comm.bcast(array))


if __name__ == "__main__":
    main()
