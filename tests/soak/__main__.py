"""`python -m tests.soak jobs|faults --seed S --seconds N`: any length, from any seed."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # for what tests share

from support.fleets import fleet

from . import SECONDS, SEEDS, jobs
from .driver import soak
from .fault import HOSTS
from .faults import Faults


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("kind", choices=["jobs", "faults"])
    parser.add_argument("--seed", type=int, default=SEEDS[0], help="of the first job; the next one has the next seed")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="0: the job of that seed alone")
    chosen = parser.parse_args()
    if chosen.kind == "jobs":
        return bool(soak("jobs", jobs.play, chosen.seed, chosen.seconds))
    with tempfile.TemporaryDirectory(prefix="rc-soak-") as folder, fleet(str(HOSTS), Path(folder)) as hosts:
        return bool(soak("faults", Faults(hosts).play, chosen.seed, chosen.seconds))


if __name__ == "__main__":
    sys.exit(main())
