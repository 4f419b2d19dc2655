"""Measure what shared memory within hosts brings in a job over hosts, emulated, by a real ssh (needs root, sshd).

python docs/scripts/mixed_hosts.py 2 --each 4
python docs/scripts/mixed_hosts.py 2x1gbit --each 4 --nbytes 1000 1000000

Two jobs live at the same time, one with --transport sockets and one with auto, and take turns.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np

import ringcast
from ringcast.commands.bench.bed import Bed
from ringcast.ops import MAX
from ringcast_launcher.plan.job import THREAD_VARIABLES

COLLECTIVES = "allreduce", "allgatherv", "bcast"
SIZES = 1_000, 10_000, 100_000, 1_000_000, 10_000_000
SERIES = 0.2  # seconds that the calls of a series are to take together, about


def main() -> None:
    """Start the jobs, and let them measure in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bed", help="hosts, and the rate of their links if it is to be limited, such as 2 or 2x1gbit")
    parser.add_argument("--each", type=int, default=4, help="ranks on each host (default 4)")
    parser.add_argument(
        "--nbytes", type=int, nargs="+", default=SIZES, help="of the whole buffer (default 1 kB to 10 MB)"
    )
    parser.add_argument("--repeat", type=int, default=11, help="pairs of series (default 11)")
    options = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
    from support.sshd import ssh_bed

    with ssh_bed(options.bed) as bed, TemporaryDirectory() as folder, ExitStack() as stack:
        jobs = [stack.enter_context(Job(bed, way, options.each, Path(folder, way))) for way in ("sockets", "auto")]
        print("| collective | bytes | sockets | auto | auto / sockets |\n|---|---|---|---|---|", flush=True)
        for collective in COLLECTIVES:
            for nbytes in options.nbytes:
                print(compared(*jobs, collective, nbytes, options.repeat), flush=True)


class Job:
    """A job over all hosts that measures the cases it gets; a context manager."""

    def __init__(self, bed: Bed, transport: str, each: int, orders: Path) -> None:
        hosts = ",".join(f"{host.name}:{each}" for host in bed.hosts)
        os.mkfifo(orders)
        options = ["--transport", transport, "-H", hosts, "--output", "none"]
        command = [sys.executable, "-m", "ringcast_launcher", *options, __file__, str(orders)]
        files = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "text": True}
        self._launcher = bed.start(0, command, env={**os.environ, **dict.fromkeys(THREAD_VARIABLES, "1")}, **files)
        self._orders = os.open(orders, os.O_RDWR)  # not only for writing, which would wait for the reader

    def seconds(self, collective: str, nbytes: int, calls: int) -> float:
        """Return what a call takes, of so many in a row."""
        os.write(self._orders, f"{collective} {nbytes} {calls}\n".encode())
        return float(self._launcher.stdout.readline())

    def __enter__(self) -> "Job":
        return self

    def __exit__(self, *_: object) -> None:
        os.write(self._orders, b"\n")
        self._launcher.communicate()
        os.close(self._orders)


def compared(sockets: Job, auto: Job, collective: str, nbytes: int, repeat: int) -> str:
    """Return a line of the table."""
    once = max(job.seconds(collective, nbytes, 2) for job in (sockets, auto))
    calls = max(1, min(200, round(SERIES / once)))
    pairs = [tuple(job.seconds(collective, nbytes, calls) for job in (sockets, auto)) for _ in range(repeat)]
    times = " | ".join(f"{median(pair[i] for pair in pairs) * 1e3:.2f} ms" for i in (0, 1))
    return f"| {collective} | {nbytes} | {times} | {median(b / a for a, b in pairs):.2f} |"


def serve(orders: Path) -> None:
    """Be a rank: measure the cases that rank 0 gets, until it gets none; the slowest rank's time counts."""
    with ringcast.init() as comm:
        file = orders.open() if comm.rank == 0 else None
        while order := comm.bcast(file.readline().split() if file is not None else None):
            nbytes, calls = map(int, order[1:])
            call = prepared(comm, order[0], nbytes)
            comm.barrier()
            start = time.perf_counter()
            for _ in range(calls):
                call()
            took = float(comm.allreduce(np.float64(time.perf_counter() - start), MAX))
            if file is not None:
                print(took / calls, flush=True)
        if file is not None:
            file.close()


def prepared(comm: ringcast.Communicator, collective: str, nbytes: int) -> Callable[[], object]:
    """Return a call; in allgatherv rank r has r + 1 shares of the whole."""
    if collective == "allgatherv":
        share = nbytes // 8 / (comm.size * (comm.size + 1) / 2)
        counts = [round((rank + 1) * share) for rank in range(comm.size)]
        part = np.ones(counts[comm.rank])
        return lambda: comm.allgatherv(part, counts=counts)
    vector = np.ones(nbytes // 8)
    return lambda: comm.bcast(vector) if collective == "bcast" else comm.allreduce(vector)


if __name__ == "__main__":
    if "RINGCAST_RANK" in os.environ:  # a rank of one of these jobs, with the file of its orders
        serve(Path(sys.argv[1]))
    else:
        main()
