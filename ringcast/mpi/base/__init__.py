"""The lowest room of the MPI layer: constants, errors, and the groups of ringcast that communicators use."""
