"""Broadcast: the root sends a description of its value, then the data."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ringcast._util.dataclass import dataclass
from ringcast.collectives.announce import announce
from ringcast.collectives.stage import AUTOMATIC, OBJECTS, Choice, Data, Group, StagePlan, pickled, plan, run_stage
from ringcast.engine.datatypes import (
    as_array,
    check_out,
    describe_dtype,
    described,
    dtype_name,
    flat,
    order_of,
    parse_dtype,
)
from ringcast.engine.execute import Steps
from ringcast.engine.objects import decode, encode
from ringcast.engine.slots import ArraySlots
from ringcast.errors import ArgumentError
from ringcast.ops import Array

RIDE_ALONG = 15 << 10  # bytes of a value that travel in the descriptor itself


def bcast(group: Group, value: Any, root: int, choice: Choice) -> Steps[Any]:
    """Return the root's value on every rank; see `Communicator.bcast`."""
    describe = plan(group, "bcast", AUTOMATIC, OBJECTS, root=root)
    if group.rank == root:
        data, record, stage = _describe(group, value, root, choice)
        yield from announce(group, describe, record)
        if record["kind"] == "refused":
            pickled(group, "bcast")
        if stage is not None:
            yield from _move(group, data, stage)
        return value
    buffer = _buffer(group, value)
    record = (yield from announce(group, describe, {})).values[0]
    if record["kind"] in ("object", "refused"):
        pickled(group, "bcast")
    arriving = _Arriving(record, buffer)
    if buffer is not None:
        _check_buffer(group, buffer, arriving)
    data = arriving.memory()
    if "data" in record:
        data.view(np.uint8)[...] = np.frombuffer(record["data"], np.uint8)
    else:
        announced = Choice(record["algorithm"], record["nblocks"])
        yield from _move(group, data, plan(group, "bcast", announced, Data.of(data), root=root))
    return arriving.value(data)


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
        if self.record["kind"] == "object":
            return decode(data.data)
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


def _check_buffer(group: Group, buffer: Array, arriving: _Arriving) -> None:
    theirs = f"shape {arriving.shape}, dtype {dtype_name(arriving.dtype)}"
    if arriving.record["kind"] == "object":
        theirs = "a Python object"
    elif (buffer.shape, buffer.dtype) == (arriving.shape, arriving.dtype):
        return
    mine = f"a buffer of shape {buffer.shape}, dtype {dtype_name(buffer.dtype)}"
    raise ArgumentError(
        group.endpoint.rank, "bcast", "value", f"expected room for the root's value, {theirs}, got {mine}"
    )


def _describe(group: Group, value: Any, root: int, choice: Choice) -> tuple[Array, dict[str, Any], StagePlan | None]:
    """Return the root's value as flat data, the record that announces them, and the stage that moves them.

    The stage is None if the record has the data itself.
    """
    known = described(value)
    if known is None and not group.pickle:  # which the other ranks learn from the record, too
        return np.empty(0, np.uint8), {"kind": "refused"}, None
    if known is None:
        data = np.frombuffer(encode(value), np.uint8)
        record = {"kind": "object", "dtype": describe_dtype(data.dtype), "shape": data.shape, "order": "C"}
    else:
        record, data = known[0].record, known[1]
    if data.nbytes <= RIDE_ALONG and choice.automatic:
        return data, record | {"data": data.tobytes()}, None
    stage = plan(group, "bcast", choice, Data.of(data), root=root)
    return data, record | {"algorithm": stage.algorithm, "nblocks": stage.params.nblocks}, stage


def _move(group: Group, data: Array, stage: StagePlan) -> Steps[Any]:
    """Broadcast the items."""
    return (yield from run_stage(group, stage, lambda s: ArraySlots(data, s, (data.size,))))
