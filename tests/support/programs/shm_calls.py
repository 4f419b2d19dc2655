"""A rank that makes all calls, and compares the results with numpy's: `python shm_calls.py [NUMBER]`.

With a NUMBER, of an error, it may not read the memory of other processes.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np

import ringcast
from ringcast.procs.libc import reason_not_read
from support.calls import CASES, assert_same
from support.seccomp import PROCESS_VM_READV, deny

SMALL, LARGE = (0, 1, 1000), (40_000, 300_000)  # elements


def main() -> None:
    if sys.argv[1:]:
        deny(PROCESS_VM_READV, int(sys.argv[1]))
    comm = ringcast.init()
    assert bool(reason_not_read()) == bool(sys.argv[1:])
    for seed, size in enumerate((*SMALL, *LARGE)):
        for name, case in CASES.items():
            arguments, expected = case(comm, size, seed)
            assert_same(getattr(comm, name)(*arguments), expected, f"{name} of {size}")
    between_two(comm)
    if comm.rank == 0:
        print("right over", type(comm._group.endpoint.transport).__name__)


def between_two(comm: ringcast.Communicator) -> None:
    """Send around arrays, objects with some inside, and nothing; at once, and one after the other."""
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for n in (0, 1, 10_000, 500_000):
        mine, theirs = ({"a": np.full(n, rank), "b": [np.full(n, -rank), None]} for rank in (comm.rank, left))
        request = comm.isend(mine, right)
        got = comm.recv(left)
        request.wait()
        np.testing.assert_array_equal(got["a"], theirs["a"])
        np.testing.assert_array_equal(got["b"][0], theirs["b"][0])
        several = [comm.isend(np.full(n, comm.rank + tag), right, tag) for tag in range(3)]
        for tag in 2, 0, 1:  # not in the order in which they come
            np.testing.assert_array_equal(comm.recv(left, tag), np.full(n, left + tag))
        for one in several:
            one.wait()


if __name__ == "__main__":
    main()
