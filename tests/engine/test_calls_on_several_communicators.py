"""A call may use several communicators, and messages: on each the ranks count its stages alike."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ringcast import collectives
from ringcast.collectives import point_to_point
from ringcast.collectives.stage import AUTOMATIC, Group
from ringcast.communicator import Communicator
from ringcast.communicator.lifetime import group_of
from ringcast.engine.drive import drive
from ringcast.engine.execute import Steps
from ringcast.errors import RingcastError
from support.jobs import Job


@pytest.fixture(scope="module", params=[2, 3, 5])
def job(request: pytest.FixtureRequest) -> Iterator[Job]:
    made = Job("threads", request.param)
    yield made
    made.close()


def mixed(one: Group, other: Group, bad: bool = False) -> Steps[list[Any]]:
    """Collectives on two communicators, with messages of two ranks between them, unknown to the others."""
    found = [(yield from collectives.gather.allgather(one, one.rank, None, AUTOMATIC))]
    if one.rank == 0:
        yield from point_to_point.send(other, "hello", 1, 3)
    elif one.rank == 1:
        found.append((yield from point_to_point.recv(other, 0, 3, None, None)))
    found.append((yield from collectives.gather.allgather(other, -other.rank, None, AUTOMATIC)))
    if bad:
        raise ZeroDivisionError("of one rank, in the middle of a call")
    found.append((yield from collectives.gather.allgather(one, one.rank, None, AUTOMATIC)))
    return found


def test_other_calls_between_the_stages_do_not_matter(job: Job) -> None:
    def fn(comm: Communicator) -> None:
        other = comm.dup()
        ranks = [*range(job.size)]
        for _ in range(3):
            all_ranks, *came, negative, again = drive(comm._group.endpoint, mixed(group_of(comm), group_of(other)))
            assert (all_ranks, again, negative) == (ranks, ranks, [-rank for rank in ranks])
            assert came == (["hello"] if comm.rank == 1 else [])
            assert comm.allgather(comm.rank) == other.allgather(other.rank) == ranks

    job.ask(fn)
    assert not job.left_over()


def test_an_error_gives_up_all_communicators_of_the_call(job: Job) -> None:
    def fn(comm: Communicator) -> bool:
        other = comm.dup()
        with pytest.raises((RingcastError, ZeroDivisionError)):
            drive(comm._group.endpoint, mixed(group_of(comm), group_of(other), bad=comm.rank == 0))
        for used in (comm, other):
            with pytest.raises(RingcastError):
                _ = [used.barrier() for _ in range(100)]
        return True

    assert job.ask(fn) == [True] * job.size
