"""Run a job: the main loop of a launcher, and its steps: start, status, end."""
