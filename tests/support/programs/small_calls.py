"""One rank of a job of calls, in which one rank dies: `python small_calls.py SEED CALLS FOLDER`, on all alike.

The victim dies of a timer, at any instruction, soon after a call that follows from SEED, of so many at most; the others
write into FOLDER what error they got, and how many messages had come.
"""

from __future__ import annotations

import json
import random
import signal
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

import ringcast

SOON = 2e-3  # seconds from that call to the end, at most


def calls(comm: ringcast.Communicator) -> list[tuple[Callable[[Any], Any], Any, Any]]:
    """Return calls, each with its value and its result."""
    rank, p = comm.rank, comm.size
    total = p * (p + 1) // 2
    return [
        (comm.allreduce, np.full(1, rank + 1), total),
        (comm.allreduce, np.full(100, rank + 1.0), total),
        (comm.allgather, np.full(3, rank), np.arange(p)[:, None]),
        (comm.reduce_scatter, np.arange(2 * p) * (rank + 1), np.arange(2 * rank, 2 * rank + 2) * total),
        (lambda value: comm.bcast(value, p - 1), np.full(5, p) if rank == p - 1 else None, p),
        (lambda value: comm.bcast(value, 0), "text" if rank == 0 else None, None),
        (comm.allgatherv, np.full(rank + 1, 7), 7),
        (lambda value: comm.reduce_scatter(value, counts=[2] * p), np.full(2 * p, rank + 1), total),
        (comm.scan, np.full(2, 1.0), rank + 1),
        (lambda value: comm.reduce(value, root=p - 1), np.full(3, rank + 1), total if rank == p - 1 else None),
        (comm.alltoall, np.full((p, 4), rank), np.arange(p)[:, None]),
        (lambda _: comm.barrier(), None, None),
        (lambda value: comm.sendrecv(value, (rank + 1) % p, (rank - 1) % p), np.full(2, rank), (rank - 1) % p),
        (lambda value: around(comm, value), np.full(4, rank), (rank - 1) % p),
        (lambda value: comm.sendrecv(value, (rank + 1) % p, (rank - 1) % p), np.full(20_000, rank), (rank - 1) % p),
        (lambda value: around(comm, value), np.full(20_000, rank), (rank - 1) % p),
    ]


def around(comm: ringcast.Communicator, value: Any) -> Any:
    """Send a value to the next rank, after the one before has done so; rank 0 begins."""
    following, before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    if comm.rank == 0:
        comm.send(value, following, 3)
    result = comm.recv(before, 3)
    if comm.rank:
        comm.send(value, following, 3)
    return result


def play(comm: ringcast.Communicator, victim: int, last: int) -> None:
    """Make calls without end; the victim sets its timer before one of them."""
    every = calls(comm)
    for number in count():
        if number == last and comm.rank == victim:
            signal.setitimer(signal.ITIMER_REAL, random.random() * SOON + 1e-6)
        call, value, right = every[number % len(every)]
        result = call(value)
        assert right is None or (result == right).all(), (number, result)


def main() -> None:
    seed, most, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    comm = ringcast.init()
    rng = random.Random(seed)
    victim, last = rng.randrange(comm.size), rng.randrange(most // 2, most)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    try:
        play(comm, victim, last)
    except BaseException as error:
        endpoint = comm._group.endpoint
        facts = {
            "victim": victim,
            "type": type(error).__name__,
            "text": str(error),
            "messages": sum(endpoint.protocol.seen),
            "not predicted": endpoint.arrivals,
        }
        (folder / f"{comm.rank}.json").write_text(json.dumps(facts))
        raise


if __name__ == "__main__":
    main()
