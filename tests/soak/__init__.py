"""Soak: random jobs against numpy, and random faults over emulated hosts, replayed from a seed.

`python -m tests.soak jobs --seed 7 --seconds 600` plays the jobs of seeds 7, 8, 9, … for that long.
"""

SECONDS = 24.0  # of jobs, and of faults, that the long tests play; as many as the time allows, always the same
SEEDS = 14_000, 15_000, 16_000  # from which they begin: each has its part of the time
