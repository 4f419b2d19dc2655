"""A program for mpi4py, which runs on ringcast as it is: heat in a plate, by the method of conjugate gradients.

    ringcast-launch -n 4 --as-mpi4py examples/mpi4py_program.py

The plate is a square with cold edges, heated in one place. Each rank has some of its rows, and with every product of
the matrix and a vector it exchanges the rows at its borders with its neighbours (Sendrecv). The scalar products are
sums over all ranks (Allreduce). At the end rank 0 has the whole plate (Gatherv), and computes how well it solves the
equations.
"""

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

Floats = npt.NDArray[np.float64]

N = 96  # rows and columns of the plate
TOLERANCE = 1e-9

comm = MPI.COMM_WORLD
rank, size = comm.Get_rank(), comm.Get_size()
first, last = N * rank // size, N * (rank + 1) // size
above = rank - 1 if rank > 0 else MPI.PROC_NULL
below = rank + 1 if rank < size - 1 else MPI.PROC_NULL


def dot(a: Floats, b: Floats) -> float:
    """Return the scalar product of two vectors; each rank has a part of both."""
    total = np.array(np.vdot(a, b))
    comm.Allreduce(MPI.IN_PLACE, total, op=MPI.SUM)
    return float(total)


def laplace(rows: Floats) -> Floats:
    """Return, for each point of a plate with cold edges, four times its heat minus the heat of its neighbours."""
    return 4 * rows[1:-1, 1:-1] - rows[:-2, 1:-1] - rows[2:, 1:-1] - rows[1:-1, :-2] - rows[1:-1, 2:]


def product(mine: Floats) -> Floats:
    """Return this rank's rows of the product of the matrix and a vector."""
    padded = np.zeros((len(mine) + 2, N + 2))
    padded[1:-1, 1:-1] = mine
    comm.Sendrecv(padded[1], dest=above, recvbuf=padded[-1], source=below)
    comm.Sendrecv(padded[-2], dest=below, recvbuf=padded[0], source=above)
    return laplace(padded)


heating = comm.bcast({"row": 30, "column": 60, "power": 5.0} if rank == 0 else None)
source = np.zeros((last - first, N))
if first <= heating["row"] < last:
    source[heating["row"] - first, heating["column"]] = heating["power"]

heat = np.zeros_like(source)
residual, direction = source.copy(), source.copy()
error = dot(residual, residual)
while error > TOLERANCE**2:
    image = product(direction)
    step = error / dot(direction, image)
    heat += step * direction
    residual -= step * image
    before, error = error, dot(residual, residual)
    direction = residual + error / before * direction

counts = comm.gather(heat.size)
whole = np.empty((N, N)) if rank == 0 else None
comm.Gatherv(heat, [whole, counts] if rank == 0 else None)
if whole is not None:
    left = laplace(np.pad(whole, 1))
    left[heating["row"], heating["column"]] -= heating["power"]
    print(f"residual below 1e-8: {np.linalg.norm(left) < 1e-8}, hottest {whole.max():.6f}")
