"""One collective again and again, with results that are checked, until an error or for so many calls.

`without_end.py COLLECTIVE BYTES CALLS` says "running" after the third call, and at the end, as JSON, what error it got
and when (null for none); CALLS 0 means without end.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Callable

import numpy as np

import ringcast


def calls(comm: ringcast.Communicator, n: int) -> dict[str, Callable[[], bool]]:
    """Return by name what makes a call and tells whether its result was right."""
    p, r = comm.size, comm.rank
    mine, sum_of_all = np.full(n, r + 1), p * (p + 1) // 2
    counts = [n // p] * p
    rows = np.arange(p).repeat(n // p).reshape(p, -1)
    return {
        "bcast": lambda: bool((comm.bcast(mine if r == 1 else None, 1) == 2).all()),
        "allgatherv": lambda: bool(
            (comm.allgatherv(mine[: n // p], counts) == np.arange(1, p + 1).repeat(n // p)).all()
        ),
        "allreduce": lambda: bool((comm.allreduce(mine) == sum_of_all).all()),
        "reduce_scatter": lambda: bool((comm.reduce_scatter(mine[: n // p * p], counts=counts) == sum_of_all).all()),
        "alltoall": lambda: bool((comm.alltoall(rows) == r).all()),
        "barrier": lambda: comm.barrier() is None,
    }


def main() -> None:
    name, size, most = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    comm = ringcast.init()
    call = calls(comm, size // 8)[name]
    found = None
    try:
        for number in range(most) if most else itertools.count():
            assert call(), f"call {number} of {name} gave a wrong result"
            if number == 2:
                print("running", flush=True)
    except ringcast.RingcastError as error:
        peer = getattr(error, "peer", None)
        found = {"time": time.monotonic(), "type": type(error).__name__, "text": str(error), "peer": peer}
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
