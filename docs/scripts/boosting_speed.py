"""Measure how long LightGBM trains over its own sockets and over ringcast, in turn, in the same job.

python docs/scripts/boosting_speed.py --ranks 2 3 5                      # on one host
python docs/scripts/boosting_speed.py --bed 8x100mbit --sizes 8000x200   # on emulated hosts (needs root)
"""

import argparse
import contextlib
import os
import random
import socket
import subprocess
import sys
import time
from statistics import median
from typing import Any

import lightgbm
import numpy as np

import ringcast
import ringcast.lightgbm
from ringcast.commands.bench.bed import Bed, parse
from ringcast.commands.bench.workers import start_workers
from ringcast.ops import MAX, Array

SIZES = ("2000x10", "100000x10", "100000x100")  # rows of all ranks, and columns
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def main() -> None:
    """Start the ranks; or be one of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 3, 5], help="on one host (default 2 3 5)")
    parser.add_argument("--bed", type=parse, help="emulated hosts and the rate of their links, such as 8x100mbit")
    parser.add_argument("--sizes", nargs="+", default=SIZES, help="rows x columns (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=20, help="trees of 31 leaves (default 20)")
    parser.add_argument("--repeat", type=int, default=5, help="how often (default 5)")
    options = parser.parse_args()
    if "RINGCAST_RANK" in os.environ:
        compare(options.sizes, options.rounds, options.repeat)
        return
    print(
        "| ranks | rows x columns | gradients | its sockets, s | ringcast, s | ratio |\n|---|---|---|---|---|---|",
        flush=True,
    )
    command = [sys.executable, *sys.argv]
    if options.bed:
        with Bed(*options.bed) as bed:
            ranks = start_workers(bed, command, ENVIRONMENT, (), stdin=subprocess.DEVNULL)
            codes = [rank.wait() for rank in ranks]
        sys.exit(max(codes))
    for n in options.ranks:
        launch = [sys.executable, "-m", "ringcast_launcher", "-q", "-n", str(n), "--output", "none"]
        subprocess.run([*launch, *sys.argv], env=ENVIRONMENT, check=True)


def compare(sizes: list[str], rounds: int, repeat: int) -> None:
    """Print a row of the table for each size, with floats and with quantized gradients."""
    comm = ringcast.init()
    for size in sizes:
        rows, columns = map(int, size.split("x"))
        x, y = data(rows, columns, comm.rank, comm.size)
        for gradients in "floats", "quantized":
            parameters = {"verbose": -1, "num_threads": 1, "use_quantized_grad": gradients == "quantized"}
            seconds: dict[str, list[float]] = {"sockets": [], "ringcast": []}
            for turn in range(repeat):
                for way in sorted(seconds, reverse=bool(turn % 2)):
                    took = WAYS[way](comm, x, y, rounds, parameters)
                    seconds[way].append(float(comm.allreduce(np.float64(took), MAX)))
            own, ours = (median(seconds[way]) for way in ("sockets", "ringcast"))
            if comm.rank == 0:
                print(f"| {comm.size} | {size} | {gradients} | {own:.3f} | {ours:.3f} | {ours / own:.2f} |", flush=True)


def data(rows: int, columns: int, rank: int, size: int) -> tuple[Array, Array]:
    """Return this rank's rows, and their targets."""
    rng = np.random.default_rng(rank)
    x = rng.normal(size=(rows // size, columns))
    return x, x[:, 0] + np.sin(3 * x[:, 1]) + x[:, 2] * x[:, 3] + rng.normal(size=len(x)) / 3


def train(x: Array, y: Array, rounds: int, parameters: dict[str, Any]) -> lightgbm.Booster:
    """Train from the data on."""
    return lightgbm.train(parameters, lightgbm.Dataset(x, y, params=parameters), rounds)


def by_sockets(comm: ringcast.Communicator, x: Array, y: Array, rounds: int, parameters: dict[str, Any]) -> float:
    """Train over LightGBM's own network; return the seconds from when its machines have met."""
    places = comm.allgather((socket.gethostbyname(socket.gethostname()), free_port()))
    machines = ",".join(f"{address}:{port}" for address, port in places)
    library = lightgbm.basic._LIB
    library.LGBM_NetworkInit(machines.encode(), places[comm.rank][1], 2, comm.size)
    try:
        return timed(comm, x, y, rounds, {**parameters, "num_machines": comm.size, "tree_learner": "data"})
    finally:
        library.LGBM_NetworkFree()


def by_ringcast(comm: ringcast.Communicator, x: Array, y: Array, rounds: int, parameters: dict[str, Any]) -> float:
    """Train over the communicator; return the seconds."""
    with ringcast.lightgbm.network(comm) as network:
        return timed(comm, x, y, rounds, {**parameters, **network})


def timed(comm: ringcast.Communicator, x: Array, y: Array, rounds: int, parameters: dict[str, Any]) -> float:
    """Return the seconds from the data to the model, from when all ranks are ready."""
    comm.barrier()
    begin = time.perf_counter()
    train(x, y, rounds, parameters)
    took = time.perf_counter() - begin
    comm.barrier()
    return took


def free_port() -> int:
    """Return a port that is free now, and that Linux gives to no connection."""
    while True:
        port = random.SystemRandom().randrange(10_000, 32_000)
        with contextlib.suppress(OSError), socket.create_server(("", port)):
            return port


WAYS = {"sockets": by_sockets, "ringcast": by_ringcast}

if __name__ == "__main__":
    main()
