"""Count the names that the authors of Python's standard library use most, on any number of ranks.

    ringcast-launch -n 4 examples/identifiers.py
    python examples/identifiers.py                 # the same program as a world of one rank

The ranks share the source files. Each counts the identifiers in its own files, and the tables of names and counts,
which differ in length from rank to rank, are merged by an irregular allgatherv. At the end rank 0 counts all files
once more by itself, and all ranks compare the results.
"""

import argparse
import builtins
import heapq
import io
import keyword
import sys
import sysconfig
import time
import tokenize
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich import box
from rich.console import Console
from rich.progress import track
from rich.table import Table

import ringcast

INSTALLED = {"site-packages", "dist-packages"}  # other people's packages


@dataclass(frozen=True)
class Source:
    """A file to count in."""

    path: str
    size: int  # bytes


@dataclass(frozen=True)
class Count:
    """How often each name occurs, and [files, bytes, identifiers, files that do not tokenize]."""

    names: Counter[str]
    figures: NDArray[np.int64]


def main() -> None:
    options = parse_arguments()
    with ringcast.init() as comm:
        equal = count_together(comm, options)
    sys.exit(0 if equal else 1)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Count the identifiers in a tree of Python sources.")
    parser.add_argument("--top", type=int, default=20, metavar="N", help="how many names to print (default 20)")
    parser.add_argument("--path", default=sysconfig.get_path("stdlib"), metavar="DIR", help="default: the library")
    parser.add_argument("--limit", type=int, metavar="N", help="count in N files only")
    return parser.parse_args()


def count_together(comm: ringcast.Communicator, options: argparse.Namespace) -> bool:
    """Run the program on one rank; return whether all ranks have the result of a one-process count."""
    console = Console(quiet=comm.rank != 0, highlight=False, markup=False)
    root = comm.rank == 0

    stop = comm.bcast(stop_words() if root else None)
    sources: list[Source] = comm.bcast(find_sources(options.path, options.limit) if root else None)
    if not sources:
        sys.exit(f"no Python sources in {options.path}" if root else 1)
    ranks = f"{comm.size} rank{'s' * (comm.size > 1)}"
    console.print(f"{len(sources)} files in {options.path}, shared by {ranks}", soft_wrap=True)

    start = time.perf_counter()
    mine = count(share(sources, comm.size)[comm.rank], stop)
    seconds = time.perf_counter() - start
    names = merge(comm, mine.names)
    total = comm.allreduce(mine.figures)
    together = time.perf_counter() - start

    rows, times = comm.gather(mine.figures), comm.gather(seconds)
    if rows is not None and times is not None:  # at the root
        console.print(table_of_names(names, options.top), table_of_figures(rows, times, total, together))
    return same_alone(comm, console, sources, stop, Count(names, total))


def stop_words() -> frozenset[str]:
    """Return names that are not worth counting."""
    return frozenset([*keyword.kwlist, *dir(builtins), "self", "cls"])


def find_sources(folder: str, limit: int | None) -> list[Source]:
    """Return the Python files below `folder`, except installed packages, in order of their names."""
    root = Path(folder)
    paths = sorted(path for path in root.rglob("*.py") if INSTALLED.isdisjoint(path.relative_to(root).parts))
    return [Source(str(path), path.stat().st_size) for path in paths[:limit]]


def share(sources: Sequence[Source], size: int) -> list[list[Source]]:
    """Return the files of each rank: the largest first, each to the rank that has the fewest bytes so far."""
    shares: list[list[Source]] = [[] for _ in range(size)]
    loads = [(0, rank) for rank in range(size)]
    for source in sorted(sources, key=lambda source: source.size, reverse=True):
        load, rank = loads[0]
        shares[rank].append(source)
        heapq.heapreplace(loads, (load + source.size, rank))
    return shares


def count(sources: Sequence[Source], stop: frozenset[str]) -> Count:
    """Count in some files."""
    names: Counter[str] = Counter()
    figures = np.zeros(4, np.int64)
    for source in with_progress(sources):
        text = Path(source.path).read_bytes()
        try:
            found = identifiers(text, stop)
        except (SyntaxError, UnicodeDecodeError, tokenize.TokenError):
            figures += 1, len(text), 0, 1
        else:
            names.update(found)
            figures += 1, len(text), found.total(), 0
    return Count(names, figures)


def with_progress(sources: Sequence[Source]) -> Iterator[Source]:
    """Go through the files, with a progress bar on rank 0 if the job was started on a terminal."""
    with ringcast.terminal() or nullcontext() as terminal:
        if terminal is None:
            yield from sources
        else:
            console = Console(file=terminal, force_terminal=True)
            yield from track(sources, "counting on rank 0", console=console, transient=True)


def identifiers(text: bytes, stop: frozenset[str]) -> Counter[str]:
    """Count the names in one file. Raises what `tokenize` raises for text that is not Python."""
    tokens = tokenize.tokenize(io.BytesIO(text).readline)
    return Counter(t.string for t in tokens if t.type == tokenize.NAME and t.string not in stop)


def merge(comm: ringcast.Communicator, mine: Counter[str]) -> Counter[str]:
    """Return the sum of the tables of all ranks: the names travel as lines of text, the counts beside them."""
    lines = "".join(f"{name}\n" for name in mine).encode()
    names = comm.allgatherv(np.frombuffer(lines, np.uint8)).tobytes().decode().splitlines()
    counts = comm.allgatherv(np.fromiter(mine.values(), np.int64, len(mine))).tolist()
    merged: Counter[str] = Counter()
    for name, number in zip(names, counts, strict=True):
        merged[name] += number
    return merged


def same_alone(
    comm: ringcast.Communicator, console: Console, sources: Sequence[Source], stop: frozenset[str], result: Count
) -> bool:
    """Count everything once more on rank 0 alone, and return whether every rank has the same."""
    start = time.perf_counter()
    alone = count(sources, stop) if comm.rank == 0 else None
    console.print(f"one process alone took {time.perf_counter() - start:.1f} s")
    alone = comm.bcast(alone)
    equal = alone.names == result.names and np.array_equal(alone.figures, result.figures)
    wrong = [rank for rank, right in enumerate(comm.allgather(equal)) if not right]
    if wrong:
        console.print(f"rank {', '.join(map(str, wrong))}: not the one-process count")
        console.print(f"figures on rank 0: {result.figures}, alone {alone.figures}; names that differ on rank 0:")
        console.print({name for name in alone.names | result.names if alone.names[name] != result.names[name]})
    else:
        console.print("equal to the one-process count")
    return not wrong


def table_of_names(names: Counter[str], top: int) -> Table:
    table = Table("identifier", box=box.SIMPLE_HEAD)
    table.add_column("times", justify="right")
    for name, number in sorted(names.items(), key=lambda item: (-item[1], item[0]))[:top]:
        table.add_row(name, f"{number:,}")
    return table


def table_of_figures(
    rows: NDArray[np.int64], times: Sequence[float], total: NDArray[np.int64], together: float
) -> Table:
    table = Table("rank", box=box.SIMPLE_HEAD)
    for heading in "files", "bytes", "identifiers", "not Python", "seconds":
        table.add_column(heading, justify="right")
    for rank, (row, seconds) in enumerate(zip(rows, times, strict=True)):
        table.add_row(
            str(rank), *(f"{number:,}" for number in row), f"{seconds:.1f}", end_section=rank == len(rows) - 1
        )
    table.add_row("all", *(f"{number:,}" for number in total), f"{together:.1f}")
    return table


if __name__ == "__main__":
    main()
