"""The temperature of a plate with a hot edge, by Jacobi's method: each point becomes the mean of its neighbours.

    ringcast-launch -n 4 examples/jacobi.py --points 200

The plate lies in blocks on a Cartesian grid of ranks. In each step a rank exchanges the edges of its block with its
four neighbours, and while they are on their way it computes all points that need none of them. Now and then all ranks
add up by how much the points still change. At the end each row of the grid joins its blocks, and the first column joins
the rows; rank 0 compares the plate with what one process computes.
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np
import numpy.typing as npt

import ringcast

Floats = npt.NDArray[np.float64]
Place = tuple[int | slice, int | slice]
Received = tuple[Place, ringcast.Request[Floats]]
Sent = ringcast.Request[None]

HOT, COLD = 100.0, 0.0  # the edge above, and the other three
CHECKED = 50  # steps after which the change is looked at


def main() -> None:
    parser = argparse.ArgumentParser(description="Jacobi's method on a plate")
    parser.add_argument("--points", type=int, default=200, help="points of the plate along each side")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--plain", action="store_true", help="wait for the edges before any point is computed")
    options = parser.parse_args()
    comm = ringcast.init()
    grid = comm.cart([0, 0])
    assert grid is not None, "a grid of these dims has room for all ranks"
    block = Block(grid, options.points)
    comm.barrier()
    begin = time.perf_counter()
    change = block.run(options.steps, overlap=not options.plain)
    seconds = time.perf_counter() - begin
    plate = block.join()
    if plate is not None:
        if not np.array_equal(plate, alone(options.points, options.steps)):
            sys.exit("this is not the plate that one process computes")
        print(f"{options.steps} steps on {' x '.join(map(str, grid.dims))} ranks, the last change {change:.3g}")
        print(f"{seconds / options.steps * 1e3:.3f} ms per step", file=sys.stderr)


class Block:
    """The points of this rank, with a border of one point, which belongs to the neighbours."""

    def __init__(self, grid: ringcast.Grid[ringcast.Communicator], points: int) -> None:
        self.grid = grid
        self.height, self.width = (cut(points, dim, at) for dim, at in zip(grid.dims, grid.coords, strict=True))
        self.now = plate(self.height, self.width, hot=grid.coords[0] == 0)
        self.next = self.now.copy()
        # Of the four borders: where it is, who fills it, and what this rank sends there.
        up, down = grid.shift(0)
        left, right = grid.shift(1)
        inner, first, last = slice(1, -1), 1, -2
        self.sides: list[tuple[int | None, Place, Place]] = [
            (up, (0, inner), (first, inner)),
            (down, (-1, inner), (last, inner)),
            (left, (inner, 0), (inner, first)),
            (right, (inner, -1), (inner, last)),
        ]

    def run(self, steps: int, *, overlap: bool) -> float:
        """Do so many steps; return by how much all points changed in the last one that was looked at."""
        total = 0.0
        for step in range(1, steps + 1):
            received, sent = self.begin_exchange()
            if overlap:
                self.mean(slice(2, -2), slice(2, -2))
            self.end_exchange(received, sent)
            self.finish(overlap=overlap)
            if step % CHECKED == 0:
                change = float(np.abs(self.next - self.now)[1:-1, 1:-1].sum())
                total = self.grid.comm.allreduce(np.float64(change))
            self.now, self.next = self.next, self.now
        return float(total)

    def begin_exchange(self) -> tuple[list[Received], list[Sent]]:
        """Begin to receive the border from all neighbours, and to send them the edges."""
        comm = self.grid.comm
        received = [(border, comm.irecv(rank)) for rank, border, _ in self.sides if rank is not None]
        return received, [comm.isend(self.now[edge], rank) for rank, _, edge in self.sides if rank is not None]

    def end_exchange(self, received: list[Received], sent: list[Sent]) -> None:
        """Wait for the border, and until all edges are sent."""
        for border, request in received:
            self.now[border] = request.wait()
        ringcast.wait_all(sent)

    def finish(self, *, overlap: bool) -> None:
        """Compute the points beside the borders; or all, if nothing has been computed yet."""
        if not overlap:
            self.mean(slice(1, -1), slice(1, -1))
            return
        for row in {1, self.height}:
            self.mean(slice(row, row + 1), slice(1, -1))
        for column in {1, self.width}:
            self.mean(slice(1, -1), slice(column, column + 1))

    def mean(self, rows: slice, columns: slice) -> None:
        """Set these points to the mean of their neighbours."""
        means(self.now, self.next, rows, columns)

    def join(self) -> Floats | None:
        """Return the whole plate on rank 0; None on the others."""
        row, column = self.grid.sub([1]).comm, self.grid.sub([0]).comm
        turned = np.ascontiguousarray(self.now[1:-1, 1:-1].T)  # `gatherv` joins along the first axis
        joined = row.gatherv(turned)
        if joined is None:
            return None
        whole: Floats | None = column.gatherv(np.ascontiguousarray(joined.T))
        return whole


def cut(points: int, parts: int, at: int) -> int:
    """Return how many points the part `at` has, if they are divided as evenly as possible."""
    return points * (at + 1) // parts - points * at // parts


def plate(height: int, width: int, *, hot: bool) -> Floats:
    """Return a plate at the beginning, with its border."""
    points = np.full((height + 2, width + 2), COLD)
    if hot:
        points[0] = HOT
    return points


def means(now: Floats, after: Floats, rows: slice, columns: slice) -> None:
    """Set some points of `after` to the means of their neighbours in `now`."""
    height, width = now.shape
    top, bottom, _ = rows.indices(height)
    left, right, _ = columns.indices(width)
    if top >= bottom or left >= right:
        return
    above, below = now[top - 1 : bottom - 1, left:right], now[top + 1 : bottom + 1, left:right]
    before, behind = now[top:bottom, left - 1 : right - 1], now[top:bottom, left + 1 : right + 1]
    after[top:bottom, left:right] = ((above + below) + (before + behind)) / 4


def alone(points: int, steps: int) -> Floats:
    """Return the plate that one process computes."""
    now = plate(points, points, hot=True)
    after = now.copy()
    for _ in range(steps):
        means(now, after, slice(1, -1), slice(1, -1))
        now, after = after, now
    return now[1:-1, 1:-1]


if __name__ == "__main__":
    main()
