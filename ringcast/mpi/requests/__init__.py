"""Requests, and the blocking, non-blocking and persistent forms of a call."""
