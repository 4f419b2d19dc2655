"""How long calls of torch.distributed take between hosts, over ringcast and over Gloo, in turns: a table of torch.md.

python docs/scripts/torch_hosts.py                   # on 8 emulated hosts of 100 Mbit/s (needs root)
python docs/scripts/torch_hosts.py --bed 4x1gbit --mb 100

Prints medians of the slowest rank's seconds. As `ringcast bench` does, it measures the constants of the links first, by
which ringcast chooses algorithms; --uncalibrated leaves that out, for the constants of 1 Gbit/s. In the uneven gather
rank i has i + 1 of 36 parts, if there are 8 ranks.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch.distributed as dist

import ringcast.torch  # noqa: F401 (registers the backend)
from ringcast.commands.bench.bed import Bed, parse
from ringcast.commands.bench.constants import calibrate

BACKENDS = "ringcast", "gloo"


def main() -> None:
    """Start a rank on each host; or be one of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bed", type=parse, default="8x100mbit", help="emulated hosts and the rate of their links")
    parser.add_argument("--mb", type=int, default=10, help="MB of each call, on all ranks together where they differ")
    parser.add_argument("--uncalibrated", action="store_true", help="choose algorithms as for 1 Gbit/s")
    parser.add_argument("--repeat", type=int, default=7, help="how often (default 7)")
    options = parser.parse_args()
    if "RANK" in os.environ:
        compare(options.mb * 250_000, options.repeat)
        return
    with Bed(*options.bed) as bed, TemporaryDirectory() as folder:
        constants = {"RINGCAST_CONFIG": ""}
        if not options.uncalibrated:
            calibrate(bed, Path(folder, "network.toml"))
            constants = {"RINGCAST_CONFIG": f"{folder}/network.toml"}
        place = {"MASTER_ADDR": bed.hosts[0].address, "MASTER_PORT": str(next(bed.ports))}
        size = {"WORLD_SIZE": str(len(bed.hosts)), "OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}
        environment = {**os.environ, **constants, **place, **size}
        command = [sys.executable, "-W", "ignore", *sys.argv]
        ranks = [
            bed.start(rank, command, env={**environment, "RANK": str(rank)}, stdin=subprocess.DEVNULL)
            for rank in range(len(bed.hosts))
        ]
        sys.exit(max([rank.wait() for rank in ranks]))


def compare(items: int, repeat: int) -> None:
    """Print a row of the table for each call; `items` are of 4 bytes."""
    torch.set_num_threads(1)
    dist.init_process_group("ringcast")
    rank, size = dist.get_rank(), dist.get_world_size()
    groups = {name: dist.new_group(backend=name) for name in BACKENDS}
    shares = [items * (each + 1) // sum(range(size + 1)) for each in range(size)]
    whole, parts = torch.ones(items), [torch.empty(share) for share in shares]
    mine = torch.ones(shares[rank])
    calls: dict[str, Callable[[dist.ProcessGroup], object]] = {
        "broadcast": lambda group: dist.broadcast(whole, 0, group=group),
        "all_reduce": lambda group: dist.all_reduce(whole, dist.ReduceOp.MAX, group=group),
        "all_gather, uneven": lambda group: dist.all_gather(parts, mine, group=group),
    }
    for name, call in calls.items():
        texts = medians(call, groups, repeat)
        if rank == 0:
            print(f"| {name} | {' | '.join(texts)} |", flush=True)
    if rank == 0:
        print(f"{', '.join(BACKENDS)}; {size} ranks, {4 * items / 1e6:g} MB, torch {torch.__version__}")
    dist.destroy_process_group()


def medians(
    call: Callable[[dist.ProcessGroup], object], groups: dict[str, dist.ProcessGroup], repeat: int
) -> list[str]:
    """Return the median of each group's seconds, or that it cannot make the call."""
    times: dict[str, list[float]] = {name: [] for name in groups}
    refuse = set()
    for number in range(repeat + 1):
        for name in [name for name in groups if name not in refuse]:
            dist.barrier()
            begun = time.perf_counter()
            try:
                call(groups[name])
            except (RuntimeError, ValueError):
                refuse.add(name)
                continue
            spent = torch.tensor(time.perf_counter() - begun, dtype=torch.float64)
            dist.all_reduce(spent, dist.ReduceOp.MAX)
            if number:  # the first one prepares
                times[name].append(spent.item())
    return ["refuses" if name in refuse else f"{statistics.median(times[name]):.3f} s" for name in groups]


if __name__ == "__main__":
    main()
