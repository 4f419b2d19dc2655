"""Whether this job knows its hosts, which the arguments number; and collectives that depend on them, against numpy."""

import sys
from collections import Counter

import numpy as np

import ringcast


def main() -> None:
    hosts = tuple(map(int, sys.argv[1:]))
    with ringcast.init() as comm:
        assert comm._group.hosts == hosts, comm._group.hosts
        p, r = comm.size, comm.rank
        even = len(set(Counter(hosts).values())) == 1
        for size in (0, 1, 1000, 60_000):
            every = [np.random.default_rng([size, rank]).integers(0, 99, size) for rank in range(p)]
            for way in (None, "full_lane") if even else (None,):
                got = comm.bcast(every[p - 1] if r == p - 1 else None, p - 1, algorithm=way)
                np.testing.assert_array_equal(got, every[p - 1])
                total = comm.reduce(every[r], root=1, algorithm=way)
                assert (total is None) == (r != 1)
                np.testing.assert_array_equal(comm.allreduce(every[r], algorithm=way), sum(every))
            for way in (None, "full_lane", "pipelined_ring") if even else (None, "pipelined_ring"):
                np.testing.assert_array_equal(comm.allgather(every[r], algorithm=way), np.stack(every))
                uneven = [a[: size * i // p] for i, a in enumerate(every)]
                np.testing.assert_array_equal(comm.allgatherv(uneven[r], algorithm=way), np.concatenate(uneven))
                part = comm.reduce_scatter(np.tile(every[r], p), algorithm=way)
                np.testing.assert_array_equal(part, sum(every))
    print("ok")


if __name__ == "__main__":
    main()
