"""Communicators of some ranks of another one, which only the members make, by a name: nothing is communicated.

A host library tells members alone that there is a new group, and gives it a name. The context follows from the parent,
the members, the name, and how often this rank has made that group: the same on all members.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b
from weakref import WeakKeyDictionary

from ringcast.adapters.background import background_of
from ringcast.collectives.split import derived, formed
from ringcast.communicator import Communicator
from ringcast.communicator.lifetime import group_of

_NAMED = (
    1 << 62
)  # call numbers from here on are those of names; real calls have lower ones, the layer of MPI higher ones
_made: WeakKeyDictionary[Communicator, Counter[int]] = WeakKeyDictionary()


def subgroup(parent: Communicator, ranks: Sequence[int], name: str) -> Communicator:
    """Return a communicator of some ranks of `parent`, in this order; only these ranks call this, equally often.

    Args:
        parent: to which all members belong; it stays in use.
        ranks: different ranks of `parent`, this one among them.
        name: the same on all members.

    >>> subgroup(comm, [0], "mine").members
    (0,)
    """
    group = group_of(parent)
    facts = repr((name, tuple(ranks))).encode()
    number = _NAMED | int.from_bytes(blake2b(facts, digest_size=8).digest()) >> 2
    counts = _made.setdefault(parent, Counter())
    context = derived(group.context, number, counts[number])
    counts[number] += 1
    with background_of(parent).call(), group.endpoint.gate:
        return Communicator(formed(group, map(group.in_job, ranks), context), parent.timeout)
