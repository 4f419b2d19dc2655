"""Collective communication for numpy programs over ZeroMQ, without MPI."""
