"""`python -m mpi4py.futures program.py`: rank 0 runs the program, the others the tasks of its executors."""

from mpi4py.run import need_program, run_command_line

if __name__ == "__main__":
    need_program("mpi4py.futures")

    from mpi4py import MPI
    from mpi4py.futures.pool import share_pool

    share_pool(MPI.COMM_WORLD, run_command_line)
