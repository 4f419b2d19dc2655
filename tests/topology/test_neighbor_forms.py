"""The other forms of the calls between neighbours: nonblocking and persistent ones."""

from __future__ import annotations

import inspect
import threading
from inspect import GEN_CLOSED, getgeneratorstate
from typing import Any

import numpy as np
import pytest

from ringcast import ArgumentError, Communicator, Topology, UsageError
from ringcast.collectives.memory import uses_of
from support.jobs import Job
from support.patience import patience

NAMES = ["neighbor_allgather", "neighbor_allgatherv", "neighbor_alltoall", "neighbor_alltoallv"]
BIG = 40_000


def arguments(name: str, value: np.ndarray[Any, Any]) -> tuple[Any, ...]:
    """Return the arguments with which a rank of a ring sends its row to the next one."""
    return (value, [1]) if name == "neighbor_alltoallv" else (value,)


@pytest.mark.parametrize("name", NAMES)
def test_forms_have_the_same_arguments(name: str) -> None:
    blocking = inspect.signature(getattr(Topology, name)).parameters
    wanted = {argument: parameter for argument, parameter in blocking.items() if argument != "timeout"}
    for form in f"i{name}", f"{name}_init":
        assert dict(inspect.signature(getattr(Topology, form)).parameters) == wanted


@pytest.mark.parametrize("p", [1, 2, 3, 5])
def test_each_start_takes_what_the_array_holds_then_and_meets_any_form(p: int) -> None:
    job = Job("threads", p)

    def work(comm: Communicator) -> None:
        ring = comm.graph([(comm.rank + 1) % p])
        for name in NAMES:
            row = np.zeros((1, 3))
            call = getattr(ring, f"{name}_init")(*arguments(name, row))
            for step in range(4):
                row[...] = 10 * step + comm.rank
                form = (comm.rank + step) % 3
                if form == 0:
                    got = getattr(ring, name)(*arguments(name, row))
                elif form == 1:
                    got = getattr(ring, f"i{name}")(*arguments(name, row)).wait()
                else:
                    call.start()
                    got = call.wait()
                assert got.ravel().tolist() == [10 * step + (comm.rank - 1) % p] * 3, name

    job.ask(work)
    job.close()


def test_arguments_are_checked_when_the_call_is_made() -> None:
    job = Job("threads", 1)

    def work(comm: Communicator) -> None:
        ring = comm.graph([0])
        with pytest.raises(ArgumentError, match=r"neighbor_alltoall.*1 rows"):
            ring.neighbor_alltoall_init(np.zeros((2, 3)))
        out = np.full((1, 3), 9.0)
        call = ring.neighbor_alltoall_init(np.zeros((1, 3)), out=out)
        assert (out == 9).all()
        request = comm.irecv(0, out=out)
        with pytest.raises(UsageError, match=r"neighbor_alltoall_init at \S+ writes memory that irecv"):
            call.start()
        assert request.cancel()
        call.start()
        assert call.wait() is out
        assert (out == 0).all()

    job.ask(work)
    job.close()


@pytest.mark.parametrize("strided", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_a_value_may_be_changed_at_once_where_it_is_not_in_use_any_more(name: str, strided: bool) -> None:
    """Rank 1 begins, and changes its row, before the others come."""
    job = Job("threads", 3)
    begun = threading.Event()

    def work(comm: Communicator) -> tuple[bool, bool]:
        ring = comm.graph([(comm.rank + 1) % 3])
        row = np.full((1, 2 * BIG), float(comm.rank))[:, :: 1 + strided]
        used = False
        assert comm.rank == 1 or begun.wait(patience(60))
        request = getattr(ring, f"i{name}")(*arguments(name, row))
        if comm.rank == 1:
            steps = next(iter(comm._group.endpoint.requests.values())).steps
            used = getgeneratorstate(steps) != GEN_CLOSED and any(use.later for use in uses_of(steps))
            row[...] = 77
        begun.set()
        return used, bool((request.wait() == (comm.rank - 1) % 3).all())

    (_, used, _), right = zip(*job.ask(work), strict=True)
    assert used == (not all(right))
    job.close()
