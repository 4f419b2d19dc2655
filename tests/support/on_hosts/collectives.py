"""Every collective of the Communicator against numpy, for buffers of the sizes (in bytes) that the arguments name.

All sums are of bytes, modulo 256, so that they are exact in every order.
"""

import sys

import numpy as np
from numpy.typing import NDArray

import ringcast

Bytes = NDArray[np.uint8]


def everybodys(p: int, size: int) -> list[Bytes]:
    """Return what each rank contributes; every rank can tell for all of them."""
    return [np.random.default_rng([p, size, rank]).integers(0, 256, size, dtype=np.uint8) for rank in range(p)]


def total(arrays: list[Bytes]) -> Bytes:
    return np.add.reduce(arrays, axis=0, dtype=np.uint8)


def check_rooted(comm: ringcast.Communicator, size: int, root: int) -> None:
    p, r = comm.size, comm.rank
    all_of = everybodys(p, size)
    uneven = [a[: size * i // p] for i, a in enumerate(all_of)]  # nothing from rank 0
    counts = [len(a) for a in uneven]
    here = r == root

    def same(got: object, expected: object) -> None:
        if here:
            np.testing.assert_array_equal(got, expected)
        else:
            assert got is None

    np.testing.assert_array_equal(comm.bcast(all_of[root] if here else None, root), all_of[root])
    same(comm.reduce(all_of[r], root=root), total(all_of))
    same(comm.gather(all_of[r], root), np.stack(all_of))
    same(comm.gatherv(uneven[r], root=root), np.concatenate(uneven))
    same(comm.gatherv(uneven[r], counts, root), np.concatenate(uneven))
    np.testing.assert_array_equal(comm.scatter(np.stack(all_of) if here else None, root), all_of[r])
    whole = np.concatenate(uneven) if here else None
    np.testing.assert_array_equal(comm.scatterv(whole, counts, root), uneven[r])


def check_symmetric(comm: ringcast.Communicator, size: int) -> None:
    p, r = comm.size, comm.rank
    all_of = everybodys(p, size)
    uneven = [a[: size * (i % 3) // 2] for i, a in enumerate(all_of)]
    bounds = np.cumsum([0] + [size * i // p - size * (i - 1) // p for i in range(1, p + 1)])
    np.testing.assert_array_equal(comm.allreduce(all_of[r]), total(all_of))
    np.testing.assert_array_equal(comm.allreduce(all_of[r], ringcast.MAX), np.maximum.reduce(all_of, axis=0))
    np.testing.assert_array_equal(comm.allgather(all_of[r]), np.stack(all_of))
    np.testing.assert_array_equal(comm.allgatherv(uneven[r]), np.concatenate(uneven))
    np.testing.assert_array_equal(comm.allgatherv(uneven[r], [len(a) for a in uneven]), np.concatenate(uneven))
    part = comm.reduce_scatter(all_of[r], counts=[int(n) for n in np.diff(bounds)])
    np.testing.assert_array_equal(part, total(all_of)[bounds[r] : bounds[r + 1]])
    np.testing.assert_array_equal(comm.sendrecv(all_of[r], (r + 1) % p, (r - 1) % p), all_of[r - 1])
    comm.barrier()


def main() -> None:
    with ringcast.init() as comm:
        for size in map(int, sys.argv[1:]):
            check_symmetric(comm, size)
            for root in {0, comm.size - 1, comm.size // 2}:
                check_rooted(comm, size, root)
        assert comm.bcast({"root": 1} if comm.rank == 1 else None, 1) == {"root": 1}


if __name__ == "__main__":
    main()
