"""ringcast-launch: starts the ranks of a job, watches them, and ends them together."""

try:
    import ringcast as ringcast
except ImportError as refused:  # on a system where ringcast does not run; the error names the system
    raise SystemExit(f"ringcast-launch: {refused}") from None
