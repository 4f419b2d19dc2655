"""The largest eigenvalue of a matrix by power iteration; every rank owns some rows, not all equally many.

This is the product by rows of the textbooks (Grama et al., "Introduction to Parallel Computing", 2003): an all-to-all
broadcast gives every rank the whole vector, which it multiplies with its rows.

ringcast-launch -n 3 examples/matrix_vector.py
"""

import numpy as np

import ringcast

SIZE, STEPS = 400, 200


def main() -> None:
    with ringcast.init() as comm:
        # The last ranks get more rows than the first ones, as if their hosts were faster.
        bounds = SIZE * np.cumsum(np.arange(comm.size + 1)) // sum(range(comm.size + 1))
        counts = np.diff(bounds).tolist()
        matrix = np.add.outer(np.arange(SIZE), np.arange(SIZE)) % 7.0 if comm.rank == 0 else None
        mine = comm.scatterv(matrix, counts)

        vector, length = np.ones(SIZE), 0.0
        for _ in range(STEPS):
            vector = comm.allgatherv(mine @ vector, counts)  # as the counts are known, nothing else is sent
            length = float(np.linalg.norm(vector))
            vector /= length

        if matrix is not None:
            print(f"rows of the ranks: {counts}, largest eigenvalue: {length:.6f}")
            np.testing.assert_allclose(length, np.abs(np.linalg.eigvalsh(matrix)).max())


if __name__ == "__main__":
    main()
