"""Communicators of some ranks of a pool, made without a message: the master numbers them, and names their members."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TypeVar

from ringcast import collectives
from ringcast.collectives.split import derived, end_of_run, formed
from ringcast.communicator import Communicator
from ringcast.communicator.lifetime import check_requests, expire, group_of
from ringcast.engine.drive import drive
from ringcast.errors import RingcastError

Returned = TypeVar("Returned")
_COLOR = 1  # of these communicators, so that calls on the pool's own one derive others


def members_communicator(comm: Communicator, ranks: Sequence[int], serial: int) -> Communicator:
    """Return the communicator of these ranks of `comm` with this number; each of them calls this."""
    parent = group_of(comm)
    context = derived(parent.context, serial, _COLOR)
    return Communicator(formed(parent, map(parent.in_job, ranks), context))


def meet(comm: Communicator) -> None:
    """Wait until all members have come to this; not in a communicator that the function has freed.

    Raises:
        UsageError: the function has not waited for a request.
    """
    check_requests(comm)
    if not comm.closed:
        drive(group_of(comm).endpoint, end_of_run(group_of(comm)))


def retire(comm: Communicator) -> None:
    """End the use of a communicator whose members have met at the end of its last call; nothing if it was freed."""
    if not comm.closed:
        expire(comm)
        collectives.recovery.free(group_of(comm), by_all=True)


def give_up(comm: Communicator, *, forget: bool) -> None:
    """End the use of a communicator in which a call has failed, or may have; the calls of other members end too.

    No member waits for another, which may have ended its use well. The errors that calls of this rank have raised count
    as answered then. Unless `forget`, this rank remembers that messages were lost in it: one such communicator is
    enough for the end of the job, where each message has to have been taken.
    """
    group = group_of(comm)
    with suppress(RingcastError):  # as of a job that ends
        collectives.recovery.revoke(group)
    expire(comm)
    group.endpoint.unanswered.answered(group.context)
    if forget:
        collectives.recovery.free(group, by_all=False)
