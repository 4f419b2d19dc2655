"""Implement ringcast-launch: start the ranks of a job, watch them, and end them together."""

try:
    import ringcast as ringcast
except ImportError as refused:  # on a system where ringcast does not run; the error names the system
    raise SystemExit(f"ringcast-launch: {refused}") from None
