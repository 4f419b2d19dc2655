"""The program of a rank of a random job: it makes the calls that its seed tells, and compares each result."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np

import ringcast
from ringcast import Communicator
from support.mixed import Program, random_items

from . import calls
from .calls import Call, Maker, random_call, same
from .draw import Draw

PATIENCE = 100.0  # seconds after which a call that hangs is an error
SKEW = 0.02  # seconds that a rank is late at most, so that the others come first
SHORT = 0.05  # seconds that a call waits for a rank that does not come


def job(comm: Communicator, seed: int) -> int:
    """Make the calls of a job; return how many there were."""
    comm.timeout = PATIENCE
    count = Random(seed).randint(1, 40)
    for number in range(count):
        comm = step(comm, f"{seed}.{number}")
    return count


def step(comm: Communicator, seed: str) -> Communicator:
    """Make one call, or several that overlap, or give the communicator up; return the communicator to go on with."""
    draw = Draw(f"step {seed}", comm.size)
    if draw.coin(0.02):
        return given_up(comm, draw.rank())
    if comm.size > 1 and draw.coin(0.02):
        return timed_out(comm, draw.rank())
    if draw.coin(0.1):
        Program(comm.size, random_items(draw.random, draw.random.randint(1, 15)), draw.random.randrange(4)).run(comm)
        comm.barrier()  # nobody leaves while another rank has a receive open
        return comm
    one_call(comm, seed)
    return comm


def one_call(comm: Communicator, seed: str, makers: Sequence[Maker] = ()) -> None:
    """Make one call, of all that there are unless some are given; some ranks are late."""
    late = Random(f"{seed}.{comm.rank}")
    if late.random() < 0.1:
        time.sleep(late.uniform(0, SKEW))
    check(comm, random_call(Draw(seed, comm.size, comm._group.hosts), makers or calls.MAKERS))


def check(comm: Communicator, call: Call) -> None:
    """Make this rank's part of a call.

    Raises:
        AssertionError: a wrong result, or an argument that was changed.
    """
    mine, want = call.given[comm.rank], call.expected[comm.rank]
    value, before = (mine or (None,))[0], None
    if isinstance(value, np.ndarray) and call.name != "bcast":
        before = value.copy()
    how: dict[str, Any] = call.how
    if call.into and type(want) is np.ndarray:
        how = how | {"out": np.empty_like(want, order="C")}
    if call.graph:
        topology = comm.graph(call.graph[comm.rank])
        got = getattr(topology, call.name)(*mine, **how)
        topology.comm.free()
    else:
        got = getattr(comm, call.name)(*mine, **how)
    text = f"rank {comm.rank} of {comm.size}: {call}"
    assert same(got, want), f"{text}: got {got!r}, numpy says {want!r}"
    assert "out" not in how or got is how["out"], f"{text}: the result is not `out`"
    assert before is None or same(value, before), f"{text}: its value was changed"


def given_up(comm: Communicator, rank: int) -> Communicator:
    """One rank revokes the communicator, when nobody is in a call any more; all go on with a new one."""
    comm.agree()
    if comm.rank == rank:
        comm.revoke()
    return shrunk(comm, comm.size)


def timed_out(comm: Communicator, rank: int) -> Communicator:
    """One rank comes to no call before the others give up; all go on with a new communicator."""
    comm.agree()  # nobody is in an earlier call any more, which would be given up as well
    try:
        while comm.rank == rank and not comm.is_revoked:
            time.sleep(0.001)
        comm.barrier(timeout=SHORT)
    except (ringcast.CollectiveTimeout, ringcast.Revoked):
        return shrunk(comm, comm.size)
    raise AssertionError(f"rank {comm.rank}: a barrier without rank {rank} ended")


def shrunk(comm: Communicator, size: int) -> Communicator:
    new = comm.shrink(timeout=PATIENCE)
    assert new.size == size, f"rank {comm.rank}: {new.size} of {size} ranks are left: {new.members}"
    return new


if __name__ == "__main__":
    with ringcast.init() as world:
        job(world, int(sys.argv[1]))
