"""A rank that changes its memory as soon as a call has returned, and looks what the others have got."""

from __future__ import annotations

import sys

import numpy as np

import ringcast

ROUNDS = 100


def main() -> None:
    comm = ringcast.init()
    ring = np.random.default_rng(comm.rank)
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for n in range(ROUNDS):
        size = (1, 1000, 20_000, 300_000)[n % 4]
        root = n % comm.size
        memory = np.full(size, n if comm.rank == root else -1)
        got = comm.bcast(memory, root)
        if comm.rank == root:
            memory[:] = -2
        else:
            assert (got == n).all(), f"bcast {n}"
        memory = np.full(size, n + comm.rank)
        request = comm.irecv(left)
        comm.send(memory, right)
        memory[:] = ring.integers(0, 1 << 30, size)
        assert (request.wait() == n + left).all(), f"send {n}"
        memory[:] = comm.rank + n
        total = comm.allreduce(memory)
        memory[:] = -3
        assert (total == sum(range(comm.size)) + n * comm.size).all(), f"allreduce {n}"
        memory[:] = comm.rank * n
        rows = comm.allgather(memory)
        memory[:] = -4
        assert all((rows[rank] == rank * n).all() for rank in range(comm.size)), f"allgather {n}"
    print(f"{comm.rank} right", file=sys.stdout, flush=True)


if __name__ == "__main__":
    main()
