"""Measure one numpy program with ringcast and with mpi4py on this host: the table of docs/measure/one-host.md.

python docs/scripts/one_host_mpi4py.py                 4 ranks, beside MPICH and Open MPI
python docs/scripts/one_host_mpi4py.py --peers         ringcast alone

The libraries run in turn, several rounds of each. A peer is installed from the package index when it is first named,
where `ringcast bench --peers` has it too.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from ringcast.commands.bench import peers

PROGRAM = Path(__file__).with_name("one_host_program.py")
THREADS = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}  # for all libraries alike
LIMIT = 600  # seconds for a job

Job = Callable[[int], tuple[float, dict[str, Any]]]  # given repetitions: how long it took, and what it found


def main() -> None:
    """Run all libraries in turn, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=4, help="ranks (default 4)")
    parser.add_argument("--peers", nargs="*", choices=("mpich", "openmpi", "impi"), default=["mpich", "openmpi"])
    parser.add_argument("--rounds", type=int, default=5, help="jobs of each library (default 5)")
    parser.add_argument(
        "--repeat", type=int, default=100, help="repetitions in a job; a tenth of large data (default 100)"
    )
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        jobs = {"ringcast": ours(options.n)}
        jobs |= {name: peer(name, options.n, folder) for name in options.peers}
        load = os.getloadavg()[0]
        found = [{name: job(options.repeat)[1] for name, job in jobs.items()} for _ in range(options.rounds)]
        starts = [{name: job(0)[0] for name, job in jobs.items()} for _ in range(options.rounds)]
    last = found[-1]
    versions = "; ".join(f"{name}: {last[name]['version']}" for name in jobs)
    print(
        f"{options.n} ranks, {len(os.sched_getaffinity(0))} processors, load before {load:.1f}, {options.rounds} rounds"
    )
    print(f"{versions}; Python {platform.python_version()}, numpy {np.__version__}, Linux {platform.release()}\n")
    print("| ms | " + " | ".join(jobs) + " |\n|---|" + "---|" * len(jobs))
    for case in last["ringcast"]["medians"]:
        print(row(case, [median(turn[name]["medians"][case] for turn in found) for name in jobs]))
    print(row("a job that makes a barrier", [median(turn[name] for turn in starts) for name in jobs]))


def row(case: str, seconds: list[float]) -> str:
    """Return a line of the table, the fastest in bold."""
    cells = [f"{s * 1e3:.3g}" if s < 1 else f"{s * 1e3:.0f}" for s in seconds]
    best = min(seconds)
    return (
        f"| {case} | " + " | ".join(f"**{c}**" if s == best else c for c, s in zip(cells, seconds, strict=True)) + " |"
    )


def ours(n: int) -> Job:
    """Return what runs the program with ringcast."""
    command = [sys.executable, "-P", "-m", "ringcast_launcher", "-n", str(n), "--output", "none", str(PROGRAM)]
    return lambda repeat: timed([*command, "ringcast", str(repeat)], {**os.environ, **THREADS})


def peer(name: str, n: int, folder: str) -> Job:
    """Return what runs it with mpi4py and one of the MPI libraries, each as it is by default."""
    venv, about = peers.install(name), peers.PEERS[name]
    start = [str(venv / "bin" / about.mpirun), *about.on_one_host, "-n", str(n)]
    command = [*start, str(venv / "bin/python"), "-m", "mpi4py", str(PROGRAM), "mpi4py"]
    return lambda repeat: timed([*command, str(repeat)], {**peers.on_one_host(name, venv, Path(folder)), **THREADS})


def timed(command: list[str], env: dict[str, str]) -> tuple[float, dict[str, Any]]:
    """Return how long a job took, and what its rank 0 printed."""
    begin = time.perf_counter()
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, timeout=LIMIT, check=True)
    return time.perf_counter() - begin, json.loads(done.stdout)


if __name__ == "__main__":
    main()
