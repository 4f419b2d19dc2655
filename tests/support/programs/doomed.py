"""One rank of a job in which one rank comes to a bad end: `python doomed.py SEED FOLDER`, on all ranks alike.

The ranks call collectives without end. Who lives writes into FOLDER what error it got, and when; the victim writes when
it ended. Which rank ends, how, and where in its calls follows from SEED.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import random
import re
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np

import ringcast

SIZE = 4
WAYS = (
    "kill",
    "stop",
    "raise",
    "exit 3",
    "exit 0",
    "hard exit 0",
    "hard exit 3",
    "abort",
    "segfault",
    "memory",
    "spin",
)
LOUD = ("raise", "exit 3", "exit 0", "memory")  # they end the thread that calls, so that no timer can do it
SIZES = (8, 100, 3000, 70_000, 1_000_000)  # bytes


@dataclass(frozen=True, slots=True)
class End:
    """The end of a rank: before a call, inside of one (after so many waits), or whenever a timer is over."""

    victim: int
    way: str
    place: str
    call: int
    wait: int
    after: float  # seconds


def end_of(seed: int) -> End:
    rng = random.Random(seed)
    way = WAYS[seed % len(WAYS)]
    place = rng.choice(("before", "inside") if way in LOUD else ("before", "inside", "timer"))
    return End(rng.randrange(SIZE), way, place, rng.randrange(1, 30), rng.randrange(1, 12), rng.uniform(0.0, 0.2))


def doom(way: str) -> None:
    """End this process; returns only if that takes a moment."""
    match way:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "raise":
            raise KeyError("doomed")
        case "exit 3":
            sys.exit(3)
        case "exit 0":
            sys.exit(0)
        case "hard exit 0":
            os._exit(0)
        case "hard exit 3":
            os._exit(3)
        case "abort":
            os.abort()
        case "segfault":
            ctypes.string_at(8)
        case "memory":
            starve()
        case "spin":
            re.match("(a+)+$", "a" * 100 + "b")  # holds the interpreter for longer than anybody lives


def starve() -> NoReturn:
    """Take more memory than is allowed."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    allowed = pages * resource.getpagesize() + (64 << 20)
    resource.setrlimit(resource.RLIMIT_AS, (allowed, allowed))
    taken = []
    while True:
        taken.append(bytearray(1 << 20))


def lay(comm: ringcast.Communicator, end: End, folder: Path) -> Callable[[int], None]:
    """Prepare the victim's end; returns what it calls with the number of each call."""
    number = waits = 0
    progress = comm._group.endpoint.progress

    def now() -> None:
        (folder / "end").write_text(repr(time.monotonic()))
        doom(end.way)

    def before(call: int) -> None:
        nonlocal number
        number = call
        if end.place == "before" and call == end.call:
            now()

    def counted(deadline: float | None) -> bool:
        nonlocal waits
        waits += number >= end.call
        if end.place == "inside" and waits == end.wait:
            now()
        return progress(deadline)

    comm._group.endpoint.progress = counted
    if end.place == "timer":
        timer = threading.Timer(end.after, now)
        timer.daemon = True
        timer.start()
    return before


def call(comm: ringcast.Communicator, rng: random.Random) -> None:
    """Make a call of any sort and size, the same on all ranks, and check what it gives."""
    kind, n, root = rng.randrange(4), rng.choice(SIZES) // 8, rng.randrange(SIZE)
    if kind == 0:
        data = np.full(n, root + 1.0) if comm.rank == root else None
        assert (comm.bcast(data, root) == root + 1).all()
    elif kind == 1:
        counts = [n * i // SIZE for i in range(SIZE)]
        gathered = comm.allgatherv(np.full(counts[comm.rank], comm.rank))
        assert (gathered == np.repeat(np.arange(SIZE), counts)).all()
    elif kind == 2:
        assert (comm.allreduce(np.full(n, comm.rank + 1)) == SIZE * (SIZE + 1) // 2).all()
    else:
        comm.barrier()


def note(folder: Path, rank: int, error: BaseException) -> None:
    """Write down what this rank got, all at once."""
    facts = {
        "time": time.monotonic(),
        "type": type(error).__name__,
        "text": str(error),
        "peer": getattr(error, "peer", None),
        "nonce": os.environ["RINGCAST_NONCE"],
    }
    (folder / f".rank-{rank}").write_text(json.dumps(facts))
    (folder / f".rank-{rank}").rename(folder / f"rank-{rank}")


def main() -> None:
    seed, folder = int(sys.argv[1]), Path(sys.argv[2])
    end, rng = end_of(seed), random.Random(seed)
    doomed = int(os.environ["RINGCAST_RANK"]) == end.victim
    if doomed and end.place == "inside":
        os.environ["RINGCAST_DIRECT"] = "0"  # messages that are predicted are awaited elsewhere
    comm = ringcast.init()
    before = lay(comm, end, folder) if doomed else None
    try:
        for number in itertools.count():
            if before is not None:
                before(number)
            call(comm, rng)
    except BaseException as error:
        if not doomed:
            note(folder, comm.rank, error)
        raise


if __name__ == "__main__":
    main()
