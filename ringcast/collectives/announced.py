"""A value that is broadcast: how the root announces it, by a description, and how the others get it.

The announcement of a small value holds its data; the data of others follow in a second stage.
"""

from __future__ import annotations

from functools import lru_cache, partial
from math import prod
from typing import Any

import numpy as np

from ringcast._util.dataclass import dataclass
from ringcast.collectives.announce import announce, announce_packed
from ringcast.collectives.stage import Choice, Data, Group, StagePlan, note_object, pickled, plan, run_stage
from ringcast.engine.datatypes import (
    Described,
    as_array,
    check_out,
    described,
    dtype_name,
    flat,
    order_of,
    parse_dtype,
)
from ringcast.engine.execute import Steps
from ringcast.engine.objects import decode, encode, new_frame, pack_record
from ringcast.engine.pieces import BufferSlots
from ringcast.engine.slots import ArraySlots
from ringcast.errors import ArgumentError
from ringcast.ops import Array

RIDE_ALONG = 15 << 10  # bytes of a value that travel in the descriptor itself


# The root.


def announcement(group: Group, describe: StagePlan, value: Any, root: int, choice: Choice) -> bytes | Steps[Any]:
    """Return the announcement of a value as bytes, if that holds it; else the steps that send both."""
    known = described(value)
    if known is not None:
        if known[1].nbytes <= RIDE_ALONG and choice.automatic:
            return head_of(known[0]) + known[1].tobytes()
        return _send_array(group, describe, *known, root, choice)
    if group.pickle:
        return announcement_of_frames(group, describe, encode(value), root, choice)
    return _refuse(group, describe)


def announcement_of_frames(
    group: Group, describe: StagePlan, frames: list[memoryview], root: int, choice: Choice
) -> bytes | Steps[None]:
    """Return the same for the frames of an object."""
    if len(frames) == 1 and len(frames[0]) <= RIDE_ALONG and choice.automatic:
        return pack_record({"kind": "object", "data": frames[0].tobytes()})
    return _send_frames(group, describe, frames, root, choice)


def sent(group: Group, describe: StagePlan, outgoing: bytes | Steps[Any]) -> Steps[Any]:
    """Broadcast an announcement, or take the steps that do more."""
    return announce_packed(group, describe, outgoing) if isinstance(outgoing, bytes) else outgoing


@lru_cache(maxsize=256)  # programs send arrays of few kinds
def head_of(description: Described) -> bytes:
    """Return the announcement of a small array, but for its items, which are the last bytes."""
    size = prod(description.shape) * description.dtype.itemsize
    packed = pack_record(description.record | {"data": bytes(size)})
    return packed[: len(packed) - size]


def _send_array(
    group: Group, describe: StagePlan, description: Described, data: Array, root: int, choice: Choice
) -> Steps[None]:
    """Announce an array, and send its items."""
    stage = plan(group, "bcast", choice, Data.of(data), root=root)
    yield from announce(group, describe, description.record | chosen(stage))
    yield from move(group, data, stage)


def _send_frames(group: Group, describe: StagePlan, frames: list[memoryview], root: int, choice: Choice) -> Steps[None]:
    """Announce an object, and send its frames as one line of bytes."""
    sizes = [*map(len, frames)]
    stage = plan(group, "bcast", choice, _bytes(sum(sizes)), root=root)
    yield from announce(group, describe, {"kind": "object", "sizes": sizes} | chosen(stage))
    yield from run_stage(group, stage, partial(BufferSlots, frames))


def _refuse(group: Group, describe: StagePlan) -> Steps[None]:
    """Raise the error of an object in a job that takes none; the other ranks raise it, too."""
    yield from announce(group, describe, {"kind": "refused"})
    pickled(group, "bcast")


# The other ranks.


def received(group: Group, record: dict[str, Any], buffer: Array | None, root: int) -> Steps[Any]:
    """Return the value that the root has announced."""
    if "data" in record:
        return held(group, record, buffer)
    if record["kind"] in ("object", "refused"):
        _check_object(group, buffer)
        return decode((yield from receive_frames(group, record, root)))
    arriving = Arriving(_fitting(group, record, buffer), buffer)
    data = arriving.memory()
    yield from move(group, data, plan(group, "bcast", announced(record), Data.of(data), root=root))
    return arriving.value(data)


def held(group: Group, record: dict[str, Any], buffer: Array | None) -> Any:
    """Return the value that is in its announcement."""
    if record["kind"] == "object":
        _check_object(group, buffer)
        return decode([memoryview(record["data"])])
    return stored(_fitting(group, record, buffer), memoryview(record["data"]), buffer)


def stored(description: Described, items: memoryview, buffer: Array | None) -> Any:
    """Return the array, or scalar, of these items: in the buffer, or in memory of its own."""
    line = np.frombuffer(items, description.dtype)
    if buffer is not None:
        buffer[...] = line.reshape(description.shape, order=description.order)
        return buffer
    return _shaped(description, line.copy())


def _check_object(group: Group, buffer: Array | None) -> None:
    """Raise an error unless this rank takes an object."""
    pickled(group, "bcast")
    if buffer is not None:
        raise _unfit(group, buffer, "a Python object")
    note_object(group)


def description_of(record: dict[str, Any]) -> Described:
    """Return the description of an array from its announcement."""
    return Described(record["kind"], parse_dtype(record["dtype"]), tuple(record["shape"]), record["order"])


def _fitting(group: Group, record: dict[str, Any], buffer: Array | None) -> Described:
    """Return the description of an array that goes into the buffer, if there is one."""
    description = description_of(record)
    if not fits(buffer, description):
        assert buffer is not None
        raise _unfit(group, buffer, f"shape {description.shape}, dtype {dtype_name(description.dtype)}")
    return description


def fits(buffer: Array | None, description: Described) -> bool:
    """Return whether an array of this description goes into the buffer, if there is one."""
    return buffer is None or (buffer.shape == description.shape and buffer.dtype == description.dtype)


@dataclass(frozen=True)
class Arriving:
    """An array that comes, and the one that its items go into, if this rank has given one."""

    description: Described
    buffer: Array | None

    @property
    def direct(self) -> bool:
        """Whether the items lie in the buffer in the order in which they travel."""
        return self.buffer is not None and order_of(self.buffer) == self.description.order

    def memory(self) -> Array:
        """Return the memory for the items, in one dimension."""
        if self.buffer is not None and self.direct:
            return flat(self.buffer)
        return np.empty(prod(self.description.shape), self.description.dtype)

    def value(self, data: Array) -> Any:
        """Return the value; all its items are in `data`."""
        if self.buffer is not None and self.direct:
            return self.buffer
        result = _shaped(self.description, data)
        if self.buffer is not None:
            self.buffer[...] = result
            return self.buffer
        return result


def _shaped(description: Described, data: Array) -> Any:
    """Return the array, or scalar, whose items these are."""
    result = data.reshape(description.shape, order=description.order)
    return result[()] if description.kind == "scalar" else result


def buffer_of(group: Group, value: Any) -> Array | None:
    """Return the array to fill on a rank other than the root; None without one."""
    # A numpy scalar is no buffer, as it cannot be changed; ranks may also pass other objects, which are ignored.
    if isinstance(value, np.generic) or as_array(value) is None:
        return None
    line = flat(value) if order_of(value) else value
    check_out(group.endpoint.rank, "bcast", line, line.shape, value.dtype, "value")
    buffer: Array = value
    return buffer


def _unfit(group: Group, buffer: Array, theirs: str) -> ArgumentError:
    """Return the error of a buffer for another value than the root's."""
    mine = f"a buffer of shape {buffer.shape}, dtype {dtype_name(buffer.dtype)}"
    expected = f"expected room for the root's value, {theirs}, got {mine}"
    return ArgumentError(group.endpoint.rank, "bcast", "value", expected)


def receive_frames(group: Group, record: dict[str, Any], root: int) -> Steps[list[memoryview]]:
    """Return the frames of the object that the root announced."""
    if "data" in record:
        return [memoryview(record["data"])]
    sizes = record["sizes"]
    frames = [new_frame(size) for size in sizes]
    stage = plan(group, "bcast", announced(record), _bytes(sum(sizes)), root=root)
    yield from run_stage(group, stage, partial(BufferSlots, frames))
    return frames


def _bytes(number: int) -> Data:
    return Data("uint8", (number,), number)


def chosen(stage: StagePlan) -> dict[str, Any]:
    """Return the part of an announcement that tells the choice, which the other ranks cannot make themselves."""
    return {"algorithm": stage.algorithm, "nblocks": stage.params.nblocks}


def announced(record: dict[str, Any]) -> Choice:
    """Return the choice that the root has announced."""
    return Choice(record["algorithm"], record["nblocks"])


def move(group: Group, data: Array, stage: StagePlan) -> Steps[Any]:
    """Broadcast the items."""
    return (yield from run_stage(group, stage, lambda s: ArraySlots(data, s, (data.size,))))
