"""Handles of MPI with their attributes, Info objects, error handlers and statuses."""
