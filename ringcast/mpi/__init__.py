"""MPI as mpi4py has it, on ringcast's communicators; programs import it as `ringcast.MPI`."""
