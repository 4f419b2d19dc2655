"""Scale the limits of waits by how fast this machine is now.

A limit ends a wait for something that never comes. It is written for a machine that does little else, and must not end
a wait that is only slow. Where a test checks a bound of the product, as those of docs/operate/failures.md, `patience`
scales it too: such a bound is one for processes that get a processor when they need one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

from support.places import SUPPORT

WORK = [sys.executable, "-c", "import numpy"]  # what each rank of a job begins with
CALM = 0.2  # seconds that it takes at most on two calm processors; on the slowest of ours 0.12
FRESH = 20.0  # seconds for which a measurement holds

_slowest, _measured = 1.0, float("-inf")


def patience(limit: float) -> float:
    """Return `limit` seconds, times the slowness of this machine; never less than `limit`."""
    return limit * slowness()


def of_patient_launcher() -> dict[str, str]:
    """Return variables by which a launcher gives the ranks time for their ends when a job has failed."""
    path = [str(SUPPORT / "patient"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(path), "GRACE": str(patience(1.0))}


def slowness() -> float:
    """Return how many times slower than a calm machine this one was at the worst of times since the tests began.

    A new measurement is taken when the last one is `FRESH` seconds old, so under the load that there is.
    """
    global _slowest, _measured
    if time.monotonic() - _measured > FRESH:
        begin = time.monotonic()
        subprocess.run(WORK, check=True)
        _measured = time.monotonic()
        _slowest = max(_slowest, (_measured - begin) / CALM)
    return _slowest
