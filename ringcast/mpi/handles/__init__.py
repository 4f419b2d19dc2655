"""Handles of MPI and what they carry: attributes, Info, error handlers, statuses."""
