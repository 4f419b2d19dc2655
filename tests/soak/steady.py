"""Many mixed calls in one job, after which it holds no more memory, objects and files than after the first of them.

`python -m tests.soak` does not play it; `tests/adversarial/test_soak.py` does, and by hand, from `tests`:
`python -m ringcast_launcher -n 3 -m soak.steady 100000`.
"""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from random import Random
from typing import NamedTuple

import ringcast
from ringcast import Communicator
from support.mixed import Program, random_items

PROGRAMS = 40  # different ones, which are repeated: caches know all of them after the first time
ITEMS = 20  # in each of them


class Held(NamedTuple):
    """The resources that a process holds."""

    bytes: int  # resident
    blocks: int  # of memory that Python has allocated: one or more for each object
    files: int


# Than after a tenth of the calls. Each of up to 3 ranks of a process remembers the numbers of 4096 freed communicators,
# and the caches of plans and steps fill for as long.
MORE = Held(6 << 20, 3 * 4096 + 1000, 0)


def held() -> Held:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return Held(pages * os.sysconf("SC_PAGE_SIZE"), sys.getallocatedblocks(), len(os.listdir("/proc/self/fd")))


def steady(comm: Communicator, calls: int) -> tuple[Held, Held]:
    """Make so many calls, all ranks together, and return what is held after a tenth of them, and in the end."""
    programs = [Program(comm.size, random_items(Random(f"steady {n}"), ITEMS), n) for n in range(PROGRAMS)]
    made, first = 0, None
    while made < calls:
        for program in programs:
            program.run(comm)
            made += len(program.events)
        if first is None and made >= calls // 10:
            first = measured(comm)
    assert first is not None
    return first, measured(comm)


def measured(comm: Communicator) -> Held:
    """Return what is held while no rank is in a call."""
    for rank in range(comm.size):  # to look for open files opens one, and ranks may be threads of one process
        comm.barrier()
        if rank == comm.rank:
            found = held()
    comm.barrier()
    return found


def check(comm: Communicator, calls: int) -> None:
    """Make so many calls.

    Raises:
        AssertionError: the process holds more than it did after a tenth of them.
    """
    first, last = steady(comm, calls)
    for name, before, after, more in zip(Held._fields, first, last, MORE, strict=True):
        assert after - before <= more, f"rank {comm.rank} holds {after - before} {name} more than {before}"


if __name__ == "__main__":
    with ringcast.init() as world:
        check(world, int(sys.argv[1]))
