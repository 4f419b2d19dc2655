"""What the MPI layer stands on: constants, errors with MPI's classes, and groups of ringcast beneath communicators."""
