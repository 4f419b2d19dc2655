"""Ranks whose calls are interrupted at random moments: `ringcast-launch -n 3 alarms.py raise 50 1`.

raise TIMES SEED: until there were so many: the handler of an alarm raises in some call of some rank; all revoke,
shrink, and go on. count TIMES: so many messages, while the handler of an alarm counts every 0.1 ms.
"""

from __future__ import annotations

import random
import signal
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import ringcast

LATEST = 4e-3  # seconds until an alarm goes off
LATER = 1e-3  # seconds; much less, and on a slow machine the next alarm comes before the handler of this one returns
LARGE = 30_000  # numbers of a message that is not sent without a grant

caught = 0  # alarms that broke off a call
expecting = False  # this rank is in a `try`


class Alarm(Exception):
    """Raised by the handler."""


def ring(*_: object) -> None:
    global caught
    if not expecting:  # between two calls, where the program would not catch it: a little later
        signal.setitimer(signal.ITIMER_REAL, LATER)
        return
    caught += 1
    raise Alarm


def attempt(verb: Callable[[], Any]) -> tuple[bool, Any]:
    """Return whether a call came to its end, and its result."""
    global expecting
    try:
        expecting = True
        result = verb()
        expecting = False
    except (Alarm, ringcast.RingcastError) as error:
        expecting = False
        if isinstance(error, ringcast.PeerFailed | ringcast.JobAborted | ringcast.CollectiveTimeout):
            raise
        return False, None
    return True, result


def again(verb: Callable[[], Any]) -> Any:
    """Call a verb until it is not broken off; return its result."""
    while True:
        done, result = attempt(verb)
        if done:
            return result


def work(comm: ringcast.Communicator, kind: int) -> None:
    """Make a call, the same on all ranks, and check what it gives."""
    p, me = comm.size, comm.rank
    if kind == 0:
        assert comm.allreduce(np.array([me, 1])).tolist() == [p * (p - 1) // 2, p]
    elif kind == 1:
        assert comm.allgather(np.full(LARGE, me))[:, -1].tolist() == list(range(p))
    elif kind == 2:
        assert comm.bcast({"size": p} if me == p - 1 else None, p - 1) == {"size": p}
    elif kind == 3:
        assert comm.sendrecv(me, (me + 1) % p, (me - 1) % p) == (me - 1) % p
    elif kind == 4:
        comm.barrier()
    else:  # which meets the shrink of a rank that was interrupted before
        assert comm.agree(~(1 << me)) == ~((1 << p) - 1)


def recover(comm: ringcast.Communicator, times: int, seed: str) -> None:
    """Be interrupted so many times, and find all ranks afterwards."""
    signal.signal(signal.SIGALRM, ring)
    plan, chance, all_caught, size = random.Random(seed), random.Random(f"{seed} {comm.rank}"), 0, comm.size
    while all_caught < times:
        before = caught
        victim = plan.randrange(size)
        if victim == comm.rank:
            signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-5, LATEST))
        for kind in [plan.randrange(6) for _ in range(plan.randrange(8))]:
            if not attempt(lambda: work(comm, kind))[0]:  # noqa: B023 (called at once)
                again(comm.revoke)
                break
        comm = again(comm.shrink)
        signal.setitimer(signal.ITIMER_REAL, 0)
        assert comm.size == size, f"{comm.size} of {size} ranks are left"
        all_caught += comm.agree(caught == before) == 0  # not an allreduce: another rank may be in its next round
    if comm.rank == 0:
        print(f"{all_caught} alarms, {comm.size} ranks")


def count(comm: ringcast.Communicator, times: int) -> None:
    """Send so many messages around, and be interrupted all the time."""
    rings = 0

    def heard(*_: object) -> None:
        nonlocal rings
        rings += 1

    signal.signal(signal.SIGALRM, heard)
    signal.setitimer(signal.ITIMER_REAL, 1e-4, 1e-4)
    for number in range(times):
        work(comm, 3 if number % 100 else 1)
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert rings > 10
    comm.barrier()
    if comm.rank == 0:
        print(f"{times} messages, {comm.size} ranks")


def main() -> None:
    comm = ringcast.init()
    if sys.argv[1] == "raise":
        recover(comm, int(sys.argv[2]), sys.argv[3])
    else:
        count(comm, int(sys.argv[2]))


if __name__ == "__main__":
    main()
