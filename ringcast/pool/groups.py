"""Communicators of some ranks of a pool, made without a message: the master numbers them, and names their members."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TypeVar

from ringcast import collectives
from ringcast.collectives.split import derived, formed
from ringcast.communicator import Communicator
from ringcast.communicator.lifetime import expire, group_of
from ringcast.errors import FAILURES

Returned = TypeVar("Returned")
_COLOR = 1  # of these communicators, so that calls on the pool's own one derive others


def members_communicator(comm: Communicator, ranks: Sequence[int], serial: int) -> Communicator:
    """Return the communicator of these ranks of `comm` with this number; each of them calls this."""
    parent = group_of(comm)
    context = derived(parent.context, serial, _COLOR)
    return Communicator(formed(parent, map(parent.in_job, ranks), context))


def retire(comm: Communicator) -> None:
    """End the use of a communicator whose members have met at the end of its last call."""
    group = group_of(comm)
    expire(comm)
    collectives.recovery.free(group, by_all=True)


def give_up(comm: Communicator, *, forget: bool) -> None:
    """End the use of a communicator in which a call has failed, or may have, on some member: all that live call this.

    The errors that its calls have raised count as answered then. Unless `forget`, this rank remembers that messages
    were lost in it: one such communicator is enough for the end of the job, where each message has to have been taken.
    """
    with suppress(*FAILURES):
        comm.revoke()
        rest = comm.shrink()
        rest.finalize()
    expire(comm)
    if forget:
        collectives.recovery.free(group_of(comm), by_all=False)
