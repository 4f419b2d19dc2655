"""Broadcast: the root announces its value by a description, then sends the data in one stage."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

import numpy as np

from ringcast._util.dataclass import dataclass
from ringcast.collectives.announce import announce
from ringcast.collectives.stage import AUTOMATIC, OBJECTS, Choice, Data, Group, StagePlan, pickled, plan, run_stage
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
from ringcast.engine.objects import decode, encode, new_frame
from ringcast.engine.pieces import BufferSlots
from ringcast.engine.slots import ArraySlots
from ringcast.errors import ArgumentError
from ringcast.ops import Array

RIDE_ALONG = 15 << 10  # bytes of a value that travel in the descriptor itself


def bcast(group: Group, value: Any, root: int, choice: Choice) -> Steps[Any]:
    """Return the root's value on every rank; see `Communicator.bcast`."""
    describe = plan(group, "bcast", AUTOMATIC, OBJECTS, root=root)
    if group.rank == root:
        known = described(value)
        if known is not None:
            record, stage = _described(group, *known, root, choice)
            yield from announce(group, describe, record)
            if stage is not None:
                yield from _move(group, known[1], stage)
        elif group.pickle:
            yield from _send_frames(group, describe, encode(value), root, choice)
        else:
            yield from announce(group, describe, {"kind": "refused"})  # so that the other ranks raise, too
            pickled(group, "bcast")
        return value
    buffer = _buffer(group, value)
    record = yield from announce(group, describe, {})
    if record["kind"] in ("object", "refused"):
        pickled(group, "bcast")
        if buffer is not None:
            raise _unfit(group, buffer, "a Python object")
        return decode((yield from _receive_frames(group, record, root)))
    arriving = _Arriving(record, buffer)
    if buffer is not None and (buffer.shape, buffer.dtype) != (arriving.shape, arriving.dtype):
        raise _unfit(group, buffer, f"shape {arriving.shape}, dtype {dtype_name(arriving.dtype)}")
    data = arriving.memory()
    if "data" in record:
        data.view(np.uint8)[...] = np.frombuffer(record["data"], np.uint8)
    else:
        yield from _move(group, data, plan(group, "bcast", _announced(record), Data.of(data), root=root))
    return arriving.value(data)


def bcast_frames(group: Group, frames: list[memoryview], root: int) -> Steps[list[memoryview]]:
    """Return the root's frames on every rank: an object that is encoded at the root, and decoded by the caller."""
    describe = plan(group, "bcast", AUTOMATIC, OBJECTS, root=root)
    if group.rank == root:
        yield from _send_frames(group, describe, frames, root, AUTOMATIC)
        return frames
    record = yield from announce(group, describe, {})
    return (yield from _receive_frames(group, record, root))


def bcast_into(group: Group, line: Array, root: int) -> Steps[None]:
    """Fill the bytes of all ranks with the root's; all ranks know their number, so no announcement is sent."""
    yield from _move(group, line, plan(group, "bcast", AUTOMATIC, Data.of(line), root=root, name="bcast_into"))


@dataclass(frozen=True)
class _Arriving:
    """The root's announcement, and the array that the data go into, if this rank has given one."""

    record: dict[str, Any]
    buffer: Array | None

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.record["shape"])

    @property
    def dtype(self) -> np.dtype[Any]:
        return parse_dtype(self.record["dtype"])

    @property
    def direct(self) -> bool:
        """Whether the items lie in the buffer in the order in which they travel."""
        return self.buffer is not None and order_of(self.buffer) == self.record["order"]

    def memory(self) -> Array:
        """Return the memory for the items, in one dimension."""
        if self.buffer is not None and self.direct:
            return flat(self.buffer)
        return np.empty(prod(self.shape), self.dtype)

    def value(self, data: Array) -> Any:
        """Return the value; all its items are in `data`."""
        if self.buffer is not None and self.direct:
            return self.buffer
        result = data.reshape(self.shape, order=self.record["order"])
        if self.buffer is not None:
            self.buffer[...] = result
            return self.buffer
        return result[()] if self.record["kind"] == "scalar" else result


def _buffer(group: Group, value: Any) -> Array | None:
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


def _described(
    group: Group, description: Described, data: Array, root: int, choice: Choice
) -> tuple[dict[str, Any], StagePlan | None]:
    """Return the record that announces an array, and the stage that moves it; None if the record has the items."""
    if data.nbytes <= RIDE_ALONG and choice.automatic:
        return description.record | {"data": data.tobytes()}, None
    stage = plan(group, "bcast", choice, Data.of(data), root=root)
    return description.record | _chosen(stage), stage


def _send_frames(group: Group, describe: StagePlan, frames: list[memoryview], root: int, choice: Choice) -> Steps[None]:
    """Announce an object, and send its frames as one line of bytes; a small one is in the announcement itself."""
    sizes = [*map(len, frames)]
    if len(sizes) == 1 and sizes[0] <= RIDE_ALONG and choice.automatic:
        yield from announce(group, describe, {"kind": "object", "data": frames[0].tobytes()})
        return
    stage = plan(group, "bcast", choice, _bytes(sum(sizes)), root=root)
    yield from announce(group, describe, {"kind": "object", "sizes": sizes} | _chosen(stage))
    yield from run_stage(group, stage, partial(BufferSlots, frames))


def _receive_frames(group: Group, record: dict[str, Any], root: int) -> Steps[list[memoryview]]:
    """Return the frames of the object that the root announced."""
    if "data" in record:
        return [memoryview(record["data"])]
    sizes = record["sizes"]
    frames = [new_frame(size) for size in sizes]
    stage = plan(group, "bcast", _announced(record), _bytes(sum(sizes)), root=root)
    yield from run_stage(group, stage, partial(BufferSlots, frames))
    return frames


def _bytes(number: int) -> Data:
    return Data("uint8", (number,), number)


def _chosen(stage: StagePlan) -> dict[str, Any]:
    """Return the part of an announcement that tells the choice, which the other ranks cannot make themselves."""
    return {"algorithm": stage.algorithm, "nblocks": stage.params.nblocks}


def _announced(record: dict[str, Any]) -> Choice:
    return Choice(record["algorithm"], record["nblocks"])


def _move(group: Group, data: Array, stage: StagePlan) -> Steps[Any]:
    """Broadcast the items."""
    return (yield from run_stage(group, stage, lambda s: ArraySlots(data, s, (data.size,))))
