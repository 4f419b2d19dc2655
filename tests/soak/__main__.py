"""`python -m tests.soak jobs|faults --seed S --seconds N`: any length, from any seed."""

from __future__ import annotations

import argparse
import sys

from . import SECONDS, SEEDS, jobs
from .driver import soak


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("kind", choices=["jobs"])
    parser.add_argument("--seed", type=int, default=SEEDS[0], help="of the first job; the next one has the next seed")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="0: the job of that seed alone")
    chosen = parser.parse_args()
    return bool(soak(chosen.kind, jobs.play, chosen.seed, chosen.seconds))


if __name__ == "__main__":
    sys.exit(main())
