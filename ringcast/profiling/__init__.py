"""Profiles of jobs: where the time of each rank went, by call site, and the page that shows it."""
