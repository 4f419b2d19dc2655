"""The program by which users see that their ranks work: `python -m mpi4py.bench helloworld`."""

import sys

from mpi4py import MPI


def helloworld() -> None:
    """Print a line of each rank, in the order of the ranks."""
    comm = MPI.COMM_WORLD
    if comm.rank:
        comm.recv(source=comm.rank - 1)
    print(f"Hello, World! I am process {comm.rank} of {comm.size} on {MPI.Get_processor_name()}.", flush=True)
    if comm.rank + 1 < comm.size:
        comm.send(None, dest=comm.rank + 1)


if __name__ == "__main__":
    if sys.argv[1:] != ["helloworld"]:
        sys.exit("usage: python -m mpi4py.bench helloworld (for its other benchmarks: pip install mpi4py)")
    helloworld()
