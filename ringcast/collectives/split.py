"""Communicators of a part of the ranks: split, create, dup. The context follows from the call on the parent."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from math import prod
from typing import Any

import numpy as np

from ringcast._util.safe_text import safe_text
from ringcast.collectives.stage import AUTOMATIC, NO_DATA, Data, Group, part, plan, run_stage
from ringcast.engine.execute import Steps
from ringcast.engine.slots import ArraySlots
from ringcast.errors import ArgumentError
from ringcast.ops import SUM
from ringcast.procs.colocation import host
from ringcast.schedules.placement import hosts_of
from ringcast.wire.control_messages import Made
from ringcast.wire.header import DERIVED
from ringcast.wire.votes import FLAG_LIMIT


def split(group: Group, color: int | None, key: int, name: str = "split") -> Steps[Group | None]:
    """Return the group of the ranks with this colour; see `Communicator.split`. Errors call it `name`."""
    same = yield from same_color(group, color, key, name)
    return None if color is None else made(group, same, int(color))


def same_color(group: Group, color: int | None, key: int, name: str) -> Steps[list[int]]:
    """Return the ranks that give the colour of this rank, ordered by their keys; all call this."""
    for argument, value in ("color", 0 if color is None else color), ("key", key):
        if not (isinstance(value, int | np.integer) and -FLAG_LIMIT <= value < FLAG_LIMIT):
            raise ArgumentError(
                group.endpoint.rank, name, argument, f"expected a whole number of 64 bits, got {safe_text(value)}"
            )
    table = np.zeros((group.size, 3), np.int64)  # whether it takes part, colour, key
    table[group.rank] = color is not None, color or 0, key
    stage = plan(group, "allgather", AUTOMATIC, Data("int64", (3,), table.nbytes), name=name)
    yield from run_stage(group, stage, lambda s: ArraySlots(table.reshape(-1), s, (3,) * group.size))
    same = [rank for rank in range(group.size) if table[rank, 0] and table[rank, 1] == (color or 0)]
    return sorted(same, key=lambda rank: int(table[rank, 2]))


def split_by_host(group: Group) -> Steps[Group | None]:
    """Return the group of the ranks on this host; see `Communicator.split_by_host`."""
    return split(group, color_of_host(), 0, "split_by_host")


@lru_cache(maxsize=1)  # a rank stays on its host, also where it can open no files any more
def color_of_host() -> int:
    """Return the colour that the ranks on this host have in common."""
    return int.from_bytes(_digest(host().encode())) >> 1


def create(group: Group, ranks: Sequence[int]) -> Steps[Group | None]:
    """Return the group of these ranks; see `Communicator.create`."""
    wanted = _checked(group, ranks)
    yield from meet(group, "create", Data("", wanted))
    return made(group, wanted, 0) if group.rank in wanted else None


def cart(group: Group, dims: tuple[int, ...], periods: tuple[bool, ...]) -> Steps[Group | None]:
    """Return the group of the first ranks, as many as a grid has; see `Communicator.cart`."""
    yield from meet(group, "cart", Data("", (*dims, *map(int, periods))))
    size = prod(dims)
    return made(group, range(size), 0) if group.rank < size else None


def dup(group: Group) -> Steps[Group]:
    """Return a group of the same ranks; see `Communicator.dup`."""
    yield from meet(group, "dup", NO_DATA)
    return made(group, range(group.size), 0)


def free(group: Group) -> Steps[None]:
    """Wait until all ranks free the group; see `Communicator.free`."""
    yield from meet(group, "free", NO_DATA)


def end_of_run(group: Group) -> Steps[None]:
    """Wait until the function that a cluster runs has returned on all ranks of the group."""
    yield from meet(group, "end of the run", NO_DATA)


def _checked(group: Group, ranks: Sequence[int]) -> tuple[int, ...]:
    wanted = tuple(ranks) if isinstance(ranks, Iterable) else ()
    right = all(isinstance(rank, int | np.integer) and 0 <= rank < group.size for rank in wanted)
    if not wanted or not right or len(set(wanted)) < len(wanted):
        expected = f"expected different ranks in 0..{group.size - 1}, one at least, got {safe_text(ranks)}"
        raise ArgumentError(group.endpoint.rank, "create", "ranks", expected)
    return tuple(map(int, wanted))


def meet(group: Group, operation: str, data: Data) -> Steps[Any]:
    """Wait for all ranks, which must make the same call."""
    stage = plan(group, "barrier", AUTOMATIC, data, name=operation)
    nothing = np.empty(0, np.uint8)
    return run_stage(group, stage, lambda s: ArraySlots(nothing, s, (0,), SUM))


def made(group: Group, ranks: Sequence[int], color: int) -> Group:
    """Return the group of some ranks of `group`, made by the call that runs now; all of them know its context."""
    return formed(group, map(group.in_job, ranks), derived(group.context, group.endpoint.number_of_call(), color))


def formed(group: Group, ranks: Iterable[int], context: int, *, strict: bool = False) -> Group:
    """Return the group of some ranks of the job, which all know its context; it counts as made from `group`.

    In a `strict` one messages are parts of calls of all ranks: the failure of a rank ends them all.
    """
    endpoint, members = group.endpoint, tuple(ranks)
    endpoint.protocol.enrol(context, frozenset(members), strict=strict)
    endpoint.control.send(Made(endpoint.rank, context, members))
    endpoint.tell_found()  # of a member that only this rank has lost
    endpoint.unanswered.made(context, group.context)
    everyone = members == tuple(range(endpoint.size))
    known = group.hosts and {group.in_job(rank): host for rank, host in enumerate(group.hosts)}
    hosts = hosts_of([known[rank] for rank in members]) if known and known.keys() >= {*members} else ()
    return part(group, context, () if everyone else members, hosts)


def derived(parent: int, call: int, color: int) -> int:
    """Return the context of the communicator that a call on its parent makes for a colour: the same on all ranks.

    >>> derived(7, 1, 0) == derived(7, 1, 0) != derived(7, 1, 1)
    True
    """
    return DERIVED | int.from_bytes(_digest(struct.pack("<QQq", parent, call, color))) >> 1


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=8).digest()
