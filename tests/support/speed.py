"""Print how fast an empty call is on this machine now, and how long `make test` takes at that speed.

The call is timed by the clock, so that other programs on the processors count too.
"""

from __future__ import annotations

import os
from timeit import timeit

WORK = 335.0  # seconds of processor time that `make test` takes where an empty call takes ...
CALM = 17.0  # nanoseconds, on processors that do nothing else
CALLS = 5_000_000


def main() -> None:
    nanoseconds = timeit("empty()", "def empty(): pass", number=CALLS) / CALLS * 1e9
    processors = len(os.sched_getaffinity(0))
    minutes = WORK * nanoseconds / CALM / processors / 60
    print(f"an empty call takes {nanoseconds:.0f} ns here now, and {CALM:.0f} ns on a calm machine of ours: ", end="")
    print(f"all of make test takes about {minutes:.0f} min on {processors} processors", flush=True)


if __name__ == "__main__":
    main()
