"""Calls that do not block: each returns a request, which the program waits for."""
