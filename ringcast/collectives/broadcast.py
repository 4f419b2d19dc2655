"""Broadcast: the root announces its value by a description, then sends the data in one stage."""

from __future__ import annotations

from typing import Any

from ringcast.collectives.again import Places, keep, key_of, learn
from ringcast.collectives.announce import announce
from ringcast.collectives.announced import (
    announcement,
    announcement_of_frames,
    buffer_of,
    move,
    receive_frames,
    received,
    sent,
)
from ringcast.collectives.broadcast_again import BroadcastAgain
from ringcast.collectives.stage import AUTOMATIC, OBJECTS, Choice, Data, Group, plan
from ringcast.engine.execute import Steps
from ringcast.ops import Array


def bcast(group: Group, value: Any, root: int, choice: Choice) -> Steps[Any]:
    """Return the root's value on every rank; see `Communicator.bcast`."""
    describe = plan(group, "bcast", AUTOMATIC, OBJECTS, root=root)
    if group.rank == root:
        yield from sent(group, describe, announcement(group, describe, value, root, choice))
        result = value
    else:
        buffer = buffer_of(group, value)
        record = yield from announce(group, describe, {})
        result = yield from received(group, record, buffer, root)
    key = "bcast", root
    if group.endpoint.programs is not None and key not in group.again:
        keep(group, key, BroadcastAgain(group, describe, root))
    return result


def bcast_frames(group: Group, frames: list[memoryview], root: int) -> Steps[list[memoryview]]:
    """Return the root's frames on every rank: an object that is encoded at the root, and decoded by the caller."""
    describe = plan(group, "bcast", AUTOMATIC, OBJECTS, root=root)
    if group.rank == root:
        yield from sent(group, describe, announcement_of_frames(group, describe, frames, root, AUTOMATIC))
        return frames
    record = yield from announce(group, describe, {})
    return (yield from receive_frames(group, record, root))


def bcast_into(group: Group, line: Array, root: int) -> Steps[None]:
    """Fill the bytes of all ranks with the root's; all ranks know their number, so no announcement is sent."""
    stage = plan(group, "bcast", AUTOMATIC, Data.of(line), root=root, name="bcast_into")
    slots = yield from move(group, line, stage)
    key, here = key_of("bcast_into", AUTOMATIC, line, line, root), group.rank == root
    learn(group, key, stage, slots, lambda data: Places(data) if here else Places(None, data, data))
