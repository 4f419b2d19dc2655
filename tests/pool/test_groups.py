"""Communicators of some ranks of a pool: no member waits for another to end its use."""

from __future__ import annotations

import ringcast
from ringcast.pool import groups
from support.patience import patience


def test_a_member_gives_up_a_communicator_whose_use_others_have_ended_well() -> None:
    def work(world: ringcast.Communicator) -> int:
        comm = groups.members_communicator(world, (0, 1, 2), 7)
        groups.meet(comm)
        if comm.rank < 2:
            groups.retire(comm)
        world.barrier()
        if comm.rank == 2:  # as one that hears of a death before it hears from the others
            groups.give_up(comm, forget=True)
        return world.allreduce(1)

    assert ringcast.run(work, 3, backend="threads", timeout=patience(20)) == [3, 3, 3]


def test_a_member_that_gives_up_ends_the_calls_of_the_others() -> None:
    def work(world: ringcast.Communicator) -> int:
        comm = groups.members_communicator(world, (0, 1, 2), 7)
        try:
            if comm.rank:
                comm.recv(0)
        except ringcast.Revoked:
            pass
        groups.give_up(comm, forget=False)
        return world.allreduce(1)

    assert ringcast.run(work, 3, backend="threads", timeout=patience(20)) == [3, 3, 3]
