"""Measure what calls that do not block hide, on emulated hosts with a rank each (needs root).

python docs/scripts/overlap.py allreduce 4x100mbit             two iallreduces in flight beside one of twice the size
python docs/scripts/overlap.py jacobi 8x100mbit --trace F.json  examples/jacobi.py: waits for edges under way

The trace has a row for each rank: what it computes and whom it waits for; chrome://tracing and ui.perfetto.dev show it.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np

import ringcast
from ringcast.commands.bench.bed import Bed, parse
from ringcast.commands.bench.workers import start_workers
from ringcast.ops import MAX

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))
from jacobi import Block, Received, Sent

Slice = tuple[float, float]  # begin and end, on the clock that all ranks of this machine share
Notes = tuple[list[Slice], list[float], list[dict[int, Slice]]]  # what a rank computed, when it sent, when it waited


def main() -> None:
    """Start the ranks; or be one of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("allreduce", "jacobi"))
    parser.add_argument("bed", type=parse, help="hosts and the rate of their links, such as 4x100mbit")
    parser.add_argument("--nbytes", type=int, default=1_000_000, help="allreduce: of each of the two (default 1000000)")
    parser.add_argument("--points", type=int, default=4000, help="jacobi: of the plate along each side (default 4000)")
    parser.add_argument("--steps", type=int, default=20, help="jacobi: of each run (default 20)")
    parser.add_argument("--repeat", type=int, default=7, help="pairs (default 7)")
    parser.add_argument(
        "--asleep", type=float, default=0, help="jacobi: ms that a rank also sleeps where it computes (default 0)"
    )
    parser.add_argument("--trace", type=Path, help="jacobi: a file for the last pair")
    options = parser.parse_args()
    if "RINGCAST_RANK" in os.environ:
        with ringcast.init(timeout=300) as comm:
            (two_at_once if options.what == "allreduce" else overlap)(comm, options)
        return
    env = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    with Bed(*options.bed) as bed:
        ranks = start_workers(bed, [sys.executable, *sys.argv], env, range(len(bed.hosts)), stdin=subprocess.DEVNULL)
        codes = [rank.wait() for rank in ranks]
    sys.exit(max(codes))


def two_at_once(comm: ringcast.Communicator, options: argparse.Namespace) -> None:
    """Take turns: two calls in flight, and one of twice the size; of each the slowest rank counts."""
    a, b, both = np.ones(options.nbytes // 8), np.ones(options.nbytes // 8), np.ones(options.nbytes // 8 * 2)

    def two() -> None:
        ringcast.wait_all([comm.iallreduce(a), comm.iallreduce(b)])

    def one() -> None:
        comm.allreduce(both)

    two(), one()
    pairs = [(slowest(comm, two), slowest(comm, one)) for _ in range(options.repeat)]
    if comm.rank == 0:
        first, second = (median(times) * 1e3 for times in zip(*pairs, strict=True))
        ratio = median(a / b for a, b in pairs)
        print(f"2 x {a.nbytes} bytes: {first:.1f} ms; {both.nbytes} bytes: {second:.1f} ms; ratio {ratio:.3f}")


def slowest(comm: ringcast.Communicator, action: Callable[[], object]) -> float:
    """Return the wall-clock seconds of a call on the rank that was slowest."""
    comm.barrier()
    start = time.perf_counter()
    action()
    return float(comm.allreduce(np.float64(time.perf_counter() - start), MAX))


class Traced(Block):
    """A block of the plate that notes when it computes, when it sends, and when it waits for which neighbour."""

    def __init__(self, grid: ringcast.Grid[ringcast.Communicator], points: int, asleep: float) -> None:
        super().__init__(grid, points)
        self.asleep = asleep  # seconds
        self.neighbours = [rank for rank, _, _ in self.sides if rank is not None]
        self.computed: list[Slice] = []
        self.sent: list[float] = []
        self.waited: list[dict[int, Slice]] = []

    def mean(self, rows: slice, columns: slice) -> None:
        begin = time.monotonic()
        super().mean(rows, columns)
        if rows.stop < 0 and columns.stop < 0:  # the inner points, or all
            time.sleep(self.asleep)
        self.computed.append((begin, time.monotonic()))

    def begin_exchange(self) -> tuple[list[Received], list[Sent]]:
        self.sent.append(time.monotonic())
        return super().begin_exchange()

    def end_exchange(self, received: list[Received], sent: list[Sent]) -> None:
        waited = {}
        for rank, one in zip(self.neighbours, received, strict=True):
            begin = time.monotonic()
            super().end_exchange([one], [])
            waited[rank] = begin, time.monotonic()
        self.waited.append(waited)
        super().end_exchange([], sent)


def overlap(comm: ringcast.Communicator, options: argparse.Namespace) -> None:
    """Take turns: edges that travel while inner points are computed, and edges that are awaited before.

    Exposed is the time in which a rank waits for an edge that its neighbour has sent: until that, it waits for the
    neighbour's computation. Emulated hosts share the processors of this machine, so that ranks that compute delay each
    other, and what they send; `asleep` stands for computing on a processor of its own.
    """
    grid = comm.cart([0, 0])
    assert grid is not None, "a grid of these dims has room for all ranks"
    hidden = []
    for _ in range(options.repeat):
        runs = {name: traced(comm, grid, options, name == "overlapped") for name in ("awaited", "overlapped")}
        if comm.rank == 0:
            awaited, overlapped = (exposed(blocks) * 1e3 / options.steps for blocks in runs.values())
            hidden.append(1 - overlapped / awaited)
            print(f"exposed per step and rank: {awaited:.2f} ms awaited, {overlapped:.2f} ms overlapped", flush=True)
    if comm.rank == 0:
        print(f"hidden: {median(hidden):.1%}, least {min(hidden):.1%}")
        if options.trace is not None:
            options.trace.write_text(json.dumps(chrome(runs)))


def traced(
    comm: ringcast.Communicator, grid: ringcast.Grid[ringcast.Communicator], options: argparse.Namespace, together: bool
) -> list[Notes]:
    """Do the steps, and return on rank 0 the notes of all ranks."""
    block = Traced(grid, options.points, options.asleep / 1000)
    comm.barrier()
    block.run(options.steps, overlap=together)
    return comm.gather((block.computed, block.sent, block.waited)) or []


def exposed(blocks: list[Notes]) -> float:
    """Return the seconds in which a rank, on the average, waits for edges that are under way."""
    total = 0.0
    for _, _, waited in blocks:
        for step, neighbours in enumerate(waited):
            for rank, (begin, end) in neighbours.items():
                total += max(0.0, end - max(begin, blocks[rank][1][step]))
    return total / len(blocks)


def chrome(runs: dict[str, list[Notes]]) -> list[dict[str, object]]:
    """Return the events of a trace: what each rank computes, and whom it waits for."""
    events: list[dict[str, object]] = []
    for name, blocks in runs.items():
        for rank, (computed, _, waited) in enumerate(blocks):
            slices = [("compute", *each) for each in computed]
            slices += [(f"wait for {source}", *each) for step in waited for source, each in step.items()]
            events += [
                {"name": what, "ph": "X", "pid": name, "tid": rank, "ts": begin * 1e6, "dur": (end - begin) * 1e6}
                for what, begin, end in slices
            ]
    return events


if __name__ == "__main__":
    main()
