"""ringcast-launch: starts the ranks of a job, watches them, and ends them together."""

try:
    import ringcast as ringcast
except ImportError as refused:  # on a system where it does not run, which it names
    raise SystemExit(f"ringcast-launch: {refused}") from None
