"""Measure what `ringcast.MPI` costs, and OSU's benchmarks for mpi4py on it: the tables of docs/use/mpi4py.md.

python docs/scripts/mpi4py_speed.py --write            all tables, into docs/use/mpi4py.md; beside MPICH
python docs/scripts/mpi4py_speed.py face objects       some of them, on standard output

face     calls of mpi4py's names beside ringcast's own ones, on the same communicator, in turn
objects  bcast of a dict that holds an array of 100 MB beside Bcast of that array, in turn: into memory that the
         program has used before, and into new memory, which the system has to fill with zeros first
osu      OSU's benchmarks in mpi4py's source distribution, unmodified; MPICH is installed from the package index
"""

from __future__ import annotations

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
from mpi4py_suite import DIGEST, NAME, PAGE, VERSION, fetched

from ringcast.commands.bench import peers

BEGIN, END = "<!-- {}: begin -->", "<!-- {}: end -->"
SERIES = 200  # calls that are timed together
TURNS = 31  # series of each kind
OBJECTS = 11  # broadcasts of large objects
MB = 1_000_000
LIMIT = 600  # seconds for a job
BENCHMARKS = {  # of OSU: the number of ranks, and the sizes that the table has
    "latency": (2, (8, 8192, 1 << 20)),
    "bw": (2, (8, 8192, 1 << 20)),
    "barrier": (4, (0,)),
    "bcast": (4, (8, 8192, 1 << 20)),
    "allgather": (4, (8, 8192, 1 << 20)),
    "alltoallv": (4, (8, 8192, 1 << 20)),
}
THREADS = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}  # for both libraries alike


def main() -> None:
    """Make the tables that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    makers = {"face": face_table, "objects": objects_table, "osu": osu_table}
    # argparse compares the empty list, too, with the choices.
    parser.add_argument("tables", nargs="*", choices=[*makers, []], help="which ones (default: all)")
    parser.add_argument("--write", action="store_true", help="write them into docs/use/mpi4py.md")
    options = parser.parse_args()
    print(
        f"{len(os.sched_getaffinity(0))} processors, load before {os.getloadavg()[0]:.1f}; Python"
        f" {platform.python_version()}, numpy {np.__version__}, Linux {platform.release()}"
    )
    for name in options.tables or makers:
        table = makers[name]()
        print(table, flush=True)
        if options.write:
            before, begin, rest = PAGE.read_text().partition(BEGIN.format(name))
            _, end, after = rest.partition(END.format(name))
            PAGE.write_text(f"{before}{begin}\n{table}\n{end}{after}")


def face_table() -> str:
    """Return what each call adds to ringcast's own one, in microseconds."""
    found = {n: on_ranks(n, "face") for n in (1, 2)}
    lines = ["| us | " + " | ".join(f"ringcast, n = {n} | added" for n in found) + " |", "|---" * 5 + "|"]
    for call, of_two in found[2].items():
        of_one = found[1].get(call)
        cells = [f"{pair[0]:.1f} | {pair[1] - pair[0]:+.1f}" if pair else "– | –" for pair in (of_one, of_two)]
        lines.append(f"| {call} | {' | '.join(cells)} |")
    return "\n".join(lines)


def objects_table() -> str:
    """Return how long broadcasts of 100 MB take, in milliseconds."""
    lines = ["| ms | `Bcast` | `Bcast` into new memory | `bcast` of the dict |", "|---|---|---|---|"]
    lines += [f"| n = {n} | {' | '.join(f'{ms:.1f}' for ms in on_ranks(n, 'objects'))} |" for n in (2, 4)]
    return "\n".join(lines)


def osu_table() -> str:
    """Return what OSU's benchmarks print for some sizes, with ringcast and with MPICH."""
    folder = fetched(NAME, VERSION, DIGEST) / "demo"
    venv, about = peers.install("mpich"), peers.PEERS["mpich"]
    lines = ["| benchmark | n | bytes | ringcast | MPICH |", "|---|---|---|---|---|"]
    with TemporaryDirectory() as made:
        mpich = {**peers.on_one_host("mpich", venv, Path(made)), **THREADS}
        for name, (n, sizes) in BENCHMARKS.items():
            program = str(folder / f"osu_{name}.py")
            start = [str(venv / "bin" / about.mpirun), *about.on_one_host, "-n", str(n), str(venv / "bin/python")]
            ours = printed([*launch(n), "--as-mpi4py", program], {**os.environ, **THREADS})
            theirs = printed([*start, program], mpich)
            unit = "MB/s" if name == "bw" else "us"
            for size in sizes:
                lines.append(f"| osu_{name} | {n} | {size} | {ours[size]:.4g} {unit} | {theirs[size]:.4g} {unit} |")
    return "\n".join(lines)


def launch(n: int) -> list[str]:
    """Return the command that starts this many ranks."""
    return [sys.executable, "-m", "ringcast_launcher", "-n", str(n), "--output", "none"]


def on_ranks(n: int, what: str) -> Any:
    """Return what rank 0 of a job has measured."""
    done = subprocess.run([*launch(n), __file__, "rank", what], capture_output=True, text=True, timeout=LIMIT)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)


def printed(command: list[str], env: dict[str, str]) -> dict[int, float]:
    """Return the lines of a benchmark: the size of messages, and time or speed."""
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=LIMIT)
    if done.returncode:
        raise SystemExit(done.stderr)
    pairs = [line.split() for line in done.stdout.splitlines() if line.strip() and not line.startswith("#")]
    return {int(size): float(figure) for size, figure in pairs}


def rank_main(what: str) -> None:
    """Measure in this rank, and print what rank 0 found."""
    from ringcast import MPI

    found = {"face": face, "objects": objects}[what](MPI.COMM_WORLD)
    if MPI.COMM_WORLD.rank == 0:
        print(json.dumps(found))


def face(comm: Any) -> dict[str, tuple[float, float]]:
    """Return, per call, the median time of ringcast's own one and of mpi4py's name in microseconds."""
    own = comm._caller  # the communicator of ringcast beneath
    x, y = np.zeros(1), np.zeros(1)
    all_ = np.zeros((comm.size, 1))
    other = comm.size - 1 - comm.rank

    def ping() -> None:
        if comm.rank == 0:
            own.send(x, other)
            own.recv(other, out=y)
        else:
            own.recv(other, out=y)
            own.send(x, other)

    def mpi_ping() -> None:
        if comm.rank == 0:
            comm.Send(x, other)
            comm.Recv(y, other)
        else:
            comm.Recv(y, other)
            comm.Send(x, other)

    calls: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
        "Barrier": (own.barrier, comm.Barrier),
        "Bcast, 8 bytes": (lambda: own.bcast(x), lambda: comm.Bcast(x)),
        "bcast, an int": (lambda: own.bcast(7), lambda: comm.bcast(7)),
        "Allreduce, 8 bytes": (lambda: own.allreduce(x, out=y), lambda: comm.Allreduce(x, y)),
        "Allgather, 8 bytes": (lambda: own.allgather(x, out=all_), lambda: comm.Allgather(x, all_)),
    }
    if comm.size == 2:
        calls["Send, Recv, 8 bytes, there and back"] = (ping, mpi_ping)
    found = {}
    for name, pair in calls.items():
        times: tuple[list[float], list[float]] = ([], [])
        for _ in range(TURNS):
            for call, of_call in zip(pair, times, strict=True):
                own.barrier()
                begin = time.perf_counter()
                for _ in range(SERIES):
                    call()
                of_call.append((time.perf_counter() - begin) / SERIES * 1e6)
        found[name] = (median(times[0]), median(times[1]))
    return found


def objects(comm: Any) -> list[float]:
    """Return the median times of three broadcasts in milliseconds, each until all ranks have the data."""
    array = np.full(100 * MB // 8, float(comm.rank))
    root = comm.rank == 0
    kinds: tuple[Callable[[], Any], ...] = (
        lambda: comm.Bcast(array),
        lambda: comm.Bcast(array if root else np.empty_like(array)),  # as bcast has to
        lambda: comm.bcast({"step": 1, "array": array} if root else None),
    )
    times: list[list[float]] = [[] for _ in kinds]
    for _ in range(OBJECTS):
        for call, of_call in zip(kinds, times, strict=True):
            comm.Barrier()
            begin = time.perf_counter()
            call()
            comm.Barrier()
            of_call.append((time.perf_counter() - begin) * 1e3)
    return [median(of_call) for of_call in times]


if __name__ == "__main__":
    if sys.argv[1:2] == ["rank"]:
        rank_main(sys.argv[2])
    else:
        main()
