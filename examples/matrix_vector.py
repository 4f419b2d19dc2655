"""The largest eigenvalue of a matrix by power iteration; every rank owns some rows, not all equally many.

ringcast-launch -n 3 examples/matrix_vector.py
"""

import numpy as np

import ringcast

SIZE, STEPS = 400, 200


def main() -> None:
    with ringcast.init() as comm:
        matrix = np.add.outer(np.arange(SIZE), np.arange(SIZE)) % 7.0 if comm.rank == 0 else None
        mine = comm.scatterv(matrix)  # as even as possible
        counts = comm.allgather(len(mine))  # known from here on, so that no later call has to exchange them

        vector = np.ones(SIZE)
        for _ in range(STEPS):
            vector = comm.allgatherv(mine @ vector, counts)
            length = float(np.linalg.norm(vector))
            vector /= length

        if matrix is not None:
            print(f"{comm.size} ranks with {counts} rows: {length:.6f}")
            np.testing.assert_allclose(length, np.abs(np.linalg.eigvalsh(matrix)).max())


if __name__ == "__main__":
    main()
