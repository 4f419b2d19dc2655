"""Utilities beside MPI, as in mpi4py."""
