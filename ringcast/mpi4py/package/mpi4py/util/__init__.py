"""What goes with MPI."""
