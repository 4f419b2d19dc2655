"""The main loop of a launcher, and its steps: start, status, end."""
