"""Measure `comm.read_file` on emulated hosts: the table of docs/use/read-once.md (needs root).

python docs/scripts/read_once.py                          all cases
python docs/scripts/read_once.py --case store --repeat 1  one of them

A server outside of the hosts sends each connection so many bytes in a second. The limit is the longer of two times: the
file by all connections together, and the file over a host's link. Each repetition also passes the same bytes on by one
allgatherv, without a source; the first one also has each host read the whole file by itself, and then rank 0 alone read
it, by as many connections, and broadcast it: so all ways meet the same machine. `disk` is one host: a file in memory,
beside cat. After a run of all cases: the table into the page, then python docs/figures/make_read_once.py
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from math import inf
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import ringcast
from ringcast.commands.bench.bed import Bed
from ringcast.commands.bench.limits import payload

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
from support.beds import ENVIRONMENT, on, outputs, start_workers

STORE = Path(__file__).resolve().parents[2] / "tests/support/store.py"
HOSTS, RATE, SIZE, CONNECTIONS = 8, 100_000_000, 10_000_000, 4  # two processors carry no more for eight hosts
PER_CONNECTION = 250_000  # bytes in a second: 2 Mbit/s
HEAD = (
    "| case | limit, s | `read_file`, s | of the limit | `allgatherv`, s | rank 0 and a broadcast, s "
    "| each by itself, s |"
)
CLEAN = {name: text for name, text in ENVIRONMENT.items() if not name.startswith("PYTHON")}


def main() -> None:
    """Run the cases that are asked for, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", nargs="+", choices=[*CASES], default=[*CASES])
    parser.add_argument("--repeat", type=int, default=3, help="how often each (default 3)")
    parser.add_argument("--rank", metavar="SOURCE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        rank(options.rank, options.repeat)
        return
    print(f"{HEAD}\n|---|---|---|---|---|---|---|")
    for case in options.case:
        print(CASES[case](options.repeat), flush=True)


def rank(source: str, repeat: int) -> None:
    """Take the times of a rank's part of each way, in turn; rank 0 prints them."""
    comm = ringcast.init()
    mine = comm.split(comm.rank)
    found: dict[str, list[float]] = {"read": [], "wire": [], "alone": [], "each": [], "cat": []}

    def timed(name: str, work: Callable[[], Any]) -> Any:
        comm.barrier()
        began = time.monotonic()
        made = work()
        comm.barrier()
        found[name].append(time.monotonic() - began)
        return made

    comm.read_file(source, connections=CONNECTIONS)  # loads modules
    for turn in range(repeat):
        data = timed("read", lambda: comm.read_file(source, connections=CONNECTIONS))
        if source.startswith("/"):
            del data  # 1 GB
            copy = f"cat {source} >{source}.copy"
            timed("cat", lambda copy=copy: comm.rank == 0 and subprocess.run(copy, shell=True, check=True))
            continue
        counts = [len(data) // comm.size] * comm.size
        part, whole = np.zeros(counts[0], np.uint8), np.empty(sum(counts), np.uint8)
        timed("wire", lambda part=part, counts=counts, whole=whole: comm.allgatherv(part, counts, out=whole))
        if not turn:
            if not comm.allreduce(timed("each", lambda: read_alone(mine, source)), ringcast.LAND):
                found["each"] = [inf]
            alone = comm.rank == 0
            timed("alone", lambda alone=alone: comm.bcast(mine.read_file(source) if alone else None))
    if comm.rank == 0:
        print(json.dumps({name: median(times) for name, times in found.items() if times}), flush=True)


def read_alone(one: ringcast.Communicator, source: str) -> bool:
    """Return whether a rank can read the file while the others do so: a server may refuse some of them for too long."""
    try:
        return len(one.read_file(source, connections=CONNECTIONS)) > 0
    except ringcast.SourceError:
        return False


def by_hosts(name: str, repeat: int, limit: float, bed: Bed, source: str) -> str:
    """Return the line of a case whose ranks are on all hosts but the last."""
    command = [sys.executable, __file__, "--rank", source, "--repeat", str(repeat)]
    printed = outputs(
        start_workers(bed, command, CLEAN, range(HOSTS), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True),
        600,
    )
    return row(name, limit, json.loads(printed[0]))


def row(name: str, limit: float, found: dict[str, float]) -> str:
    """Return a line of the table."""
    cells = {way: f"{seconds:.2f}" if seconds < inf else "fails" for way, seconds in found.items()}
    others = " | ".join(cells.get(way, "–") for way in ("wire", "alone", "each"))
    return f"| {name} | {limit:.2f} | {found['read']:.2f} | {found['read'] / limit:.2f} | {others} |"


@contextmanager
def server(bed: Bed, per_connection: float, most: int) -> Any:
    """Serve zeros on the last host of a bed; return their URL."""
    command = [sys.executable, str(STORE), "8000", str(SIZE), str(per_connection), str(most)]
    process = bed.start(len(bed.hosts) - 1, command, stdout=subprocess.PIPE, env=CLEAN)
    try:
        process.stdout.readline()
        yield f"http://{bed.hosts[-1].address}:8000/zeros"
    finally:
        process.kill()
        process.wait()


def store(repeat: int, most: int = 0) -> str:
    """Read from a server that limits each connection, and, with `most`, answers 429 beyond so many."""
    connections = min(most or HOSTS * CONNECTIONS, HOSTS * CONNECTIONS)
    limit = max(SIZE / (connections * PER_CONNECTION), SIZE / payload(RATE))
    with Bed(HOSTS + 1, RATE) as bed, server(bed, PER_CONNECTION, most) as url:
        words = f", HTTP 429 beyond {most}" if most else ""
        return by_hosts(f"2 Mbit/s for each connection{words}", repeat, limit, bed, url)


def slow_server(repeat: int) -> str:
    """Read from a host whose link has half of the others' rate."""
    rate = RATE // 2
    with Bed(HOSTS + 1, RATE) as bed, server(bed, 0, 0) as url:
        shape = f"qdisc replace dev e0 root tbf rate {rate}bit burst 64kb limit 4mb"
        on(bed, HOSTS, "tc", *shape.split())
        return by_hosts("one link of 50 Mbit/s for all", repeat, SIZE / payload(rate), bed, url)


def disk(repeat: int) -> str:
    """Read 1 GB on one host with eight ranks, beside cat of the same into a file in memory."""
    with TemporaryDirectory(dir="/dev/shm") as folder:
        source = Path(folder, "source")
        source.write_bytes(os.urandom(1 << 20) * 1000)
        launch = [f"{Path(sys.executable).parent}/ringcast-launch", "-n", "8", "--output", "none"]
        command = [*launch, __file__, "--rank", str(source), "--repeat", str(repeat)]
        done = subprocess.run(command, env=CLEAN, check=True, capture_output=True, text=True)
    found = json.loads(done.stdout)
    return row("1.05 GB of a file in memory, one host, 8 ranks; limit: cat", found["cat"], found)


CASES: dict[str, Callable[[int], str]] = {
    "store": store,
    "refusing": lambda repeat: store(repeat, 16),
    "slow": slow_server,
    "disk": disk,
}

if __name__ == "__main__":
    main()
