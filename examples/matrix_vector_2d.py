"""The largest eigenvalue of a matrix by power iteration; every rank owns a block of the matrix.

This is the product by blocks of the textbooks (Grama et al., "Introduction to Parallel Computing", 2003). The ranks of
the largest square that fits are a grid of s x s; the others idle. A vector is in p pieces, one on each rank; the pieces
of a row of the grid are side by side. Column j needs the pieces of row j: they are spread along the columns. After the
local product the sums along the rows are formed on the ranks of their pieces. Both steps are a total exchange in which
a rank exchanges data with 2 s ranks at most: it sends O(n / s) numbers instead of the O(n) of a product by rows.

ringcast-launch -n 4 examples/matrix_vector_2d.py
"""

from math import isqrt

import numpy as np
from numpy.typing import NDArray

import ringcast

Numbers = NDArray[np.float64]
SIZE, STEPS = 400, 200


class Grid:
    """The grid of s x s ranks, seen from one of them; rank i is in row i // s and column i % s."""

    def __init__(self, comm: ringcast.Communicator) -> None:
        self.comm = comm
        s = isqrt(comm.size)
        self.side = s
        self.bounds = [SIZE * i // (s * s) for i in range(s * s + 1)]  # of the pieces of a vector
        self.pieces = np.zeros(comm.size, dtype=int)  # their lengths; those that idle have none
        self.pieces[: s * s] = np.diff(self.bounds)
        # Nobody that works is in the row or the column of one that does not.
        self.rows, self.columns = np.where(np.arange(comm.size) < s * s, np.divmod(np.arange(comm.size), s), s)
        self.row, self.column = int(self.rows[comm.rank]), int(self.columns[comm.rank])

    def part(self, i: int) -> Numbers:
        """Return the numbers of the rows of the matrix, or of its columns, that row or column i of the grid has."""
        s = self.side
        return np.arange(self.bounds[i * s], self.bounds[(i + 1) * s], dtype=float) if i < s else np.empty(0)

    def spread(self, piece: Numbers) -> Numbers:
        """Return the part of the vector that this column of the grid needs; every rank has a piece of the vector."""
        counts = np.where(self.columns == self.row, len(piece), 0)
        recvcounts = np.where(self.rows == self.column, self.pieces, 0)
        part: Numbers = self.comm.alltoallv(np.tile(piece, self.side), counts.tolist(), recvcounts.tolist())
        return part

    def sum(self, part: Numbers) -> Numbers:
        """Return this rank's piece of the sum of the parts of all ranks in this row of the grid."""
        mine = self.pieces[self.comm.rank]
        counts = np.where(self.rows == self.row, self.pieces, 0)
        recvcounts = np.where(self.rows == self.row, mine, 0)
        pieces: Numbers = self.comm.alltoallv(part, counts.tolist(), recvcounts.tolist())
        total: Numbers = pieces.reshape(-1, mine).sum(axis=0) if mine else pieces
        return total


def main() -> None:
    with ringcast.init() as comm:
        grid = Grid(comm)
        block = np.add.outer(grid.part(grid.row), grid.part(grid.column)) % 7.0
        piece = np.ones(grid.pieces[comm.rank])
        length = 0.0
        for _ in range(STEPS):
            piece = grid.sum(block @ grid.spread(piece))
            length = float(np.sqrt(comm.allreduce(piece @ piece)))
            piece /= length

        if comm.rank == 0:
            idle = comm.size - grid.side**2
            print(f"{grid.side} x {grid.side} ranks, {idle} idle, largest eigenvalue: {length:.6f}")
            matrix = np.add.outer(np.arange(SIZE), np.arange(SIZE)) % 7.0
            np.testing.assert_allclose(length, np.abs(np.linalg.eigvalsh(matrix)).max())


if __name__ == "__main__":
    main()
