"""A matrix is transposed by total exchange: every rank owns some rows before, and as many columns after.

ringcast-launch -n 4 examples/transpose.py
"""

import numpy as np
from numpy.typing import NDArray

import ringcast

Matrix = NDArray[np.int64]
ROWS = 300  # of each rank


def transpose(comm: ringcast.Communicator, mine: Matrix) -> Matrix:
    """Return this rank's rows of the transposed matrix; `mine` are its rows of the matrix, as many on each rank."""
    rows = len(mine)
    blocks = mine.reshape(rows, comm.size, rows)  # [row, rank of the columns, column]
    # Block j, turned round, is for rank j, where it lies in the columns of this rank.
    blocks = comm.alltoall(blocks.transpose(1, 2, 0))
    columns: Matrix = blocks.transpose(1, 0, 2).reshape(rows, comm.size * rows)
    return columns


def main() -> None:
    with ringcast.init() as comm:
        size = comm.size * ROWS
        first = comm.rank * ROWS
        mine = np.arange(first * size, (first + ROWS) * size).reshape(ROWS, size)  # of 0, 1, 2, … row by row
        columns = transpose(comm, mine)
        assert (columns == np.arange(first, first + ROWS)[:, None] + size * np.arange(size)).all()
        assert (transpose(comm, columns) == mine).all()
        comm.barrier()
        if comm.rank == 0:
            print(f"{size} x {size} numbers on {comm.size} ranks: transposed, and back again")


if __name__ == "__main__":
    main()
