"""ringcast-launch: starts the ranks of a job, watches them, and ends them together."""
