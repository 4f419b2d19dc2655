"""Broadcast: the root announces its value by a description, then sends the data in one stage."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache, partial
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ringcast._util.dataclass import dataclass
from ringcast.collectives.again import UNMADE, Again, OnItems, Places, Rest, is_first, keep, key_of, learn
from ringcast.collectives.announce import announce, announce_packed
from ringcast.collectives.stage import AUTOMATIC, OBJECTS, Choice, Data, Group, StagePlan, pickled, plan, run_stage
from ringcast.engine import direct
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
from ringcast.engine.objects import decode, encode, new_frame, pack_record, unpack_record
from ringcast.engine.pieces import BufferSlots, FrameSlots
from ringcast.engine.slots import ArraySlots
from ringcast.errors import ArgumentError
from ringcast.ops import Array
from ringcast.protocol.operations import Operation
from ringcast.wire.call import Site

RIDE_ALONG = 15 << 10  # bytes of a value that travel in the descriptor itself


def bcast(group: Group, value: Any, root: int, choice: Choice) -> Steps[Any]:
    """Return the root's value on every rank; see `Communicator.bcast`."""
    describe = plan(group, "bcast", AUTOMATIC, OBJECTS, root=root)
    if group.rank == root:
        yield from _sent(group, describe, _outgoing(group, describe, value, root, choice))
        result = value
    else:
        buffer = _buffer(group, value)
        record = yield from announce(group, describe, {})
        result = yield from _received(group, record, buffer, root)
    key = "bcast", root
    if group.endpoint.programs is not None and key not in group.again:
        keep(group, key, _Again(group, describe, root))
    return result


class _Again(Again):
    """A broadcast by the root of an earlier one: of any value, as its announcement describes that."""

    def __init__(self, group: Group, describe: StagePlan, root: int) -> None:
        super().__init__(group, describe, describe.prepared(group)[1])
        self._root = root
        self._descriptions: dict[int, tuple[bytes, Described]] = {}  # of arrays that came, by the announcement's length
        self._large: dict[object, _Large] = {}  # arrays that are not in it: by description, elsewhere by announcement

    def make(self, site: Site, value: Any, out: Any) -> Any:  # noqa: ARG002 (the buffer is the value)
        group, outgoing, buffer = self._group, None, None
        try:
            if group.rank == self._root:
                outgoing = _outgoing(group, self._stage, value, self._root, AUTOMATIC)
            elif value is not None:
                buffer = _buffer(group, value)
        except Exception:  # the general way raises it
            return UNMADE
        if outgoing is not None and not isinstance(outgoing, bytes):
            return self._sent_in_two(site, value, outgoing)
        if (op := self._begin(site)) is None:
            return UNMADE
        slots = FrameSlots(outgoing)
        end = direct.run(group.endpoint, group.endpoint.programs, self._steps, slots, op)
        if end is not None:
            return Rest(self._finished(op, slots, end, value, buffer))
        self._over(op)
        return value if outgoing is not None else self._opened(site, op, slots.frame, buffer)

    def _finished(
        self, op: Operation, slots: FrameSlots, end: direct.End, value: Any, buffer: Array | None
    ) -> Steps[Any]:
        """Return the value, when the engine has run the rest of the steps."""
        yield from self._rest(op, slots, end)
        if self._group.rank == self._root:
            return value
        return (yield from _received(self._group, unpack_record(slots.frame), buffer, self._root))

    def _sent_in_two(self, site: Site, value: Any, general: Steps[None]) -> Any:
        """Announce a value, and send it in a second stage; `general` does both too."""
        group, known = self._group, described(value)
        large = None if known is None else self._large.get(known[0]) or self._made_large(*known)
        if known is None or large is None or large.program is None:
            return Rest(_returning(value, general))
        if (op := self._begin(site)) is None:
            return UNMADE
        slots = FrameSlots(large.head)
        end = direct.run(group.endpoint, group.endpoint.programs, self._steps, slots, op)
        if end is not None:
            return Rest(self._sent_by_engine(op, slots, end, value, known[1], large))
        self._over(op)
        return self._moved(site, op, large, known[1], lambda: value)

    def _made_large(self, description: Described, data: Array) -> _Large | None:
        """Return how an array of this description is sent; None the first time."""
        if is_first(self._group, ("bcast", self._root, description)):
            return None
        stage = plan(self._group, "bcast", AUTOMATIC, Data.of(data), root=self._root)
        head = pack_record(description.record | _chosen(stage))
        return self._keep_large(description, _Large(head, description, stage, _second(self._group, stage, data)))

    def _keep_large(self, key: object, large: _Large) -> _Large:
        if len(self._large) >= KEPT:
            self._large.clear()
        self._large[key] = large
        self._group.endpoint.programs.used(self._large, key)
        return large

    def _sent_by_engine(
        self, op: Operation, slots: FrameSlots, end: direct.End, value: Any, data: Array, large: _Large
    ) -> Steps[Any]:
        """Return the value, when the engine has sent the rest of the announcement, and the data."""
        yield from self._rest(op, slots, end)
        yield from _move(self._group, data, large.stage)
        return value

    def _moved(self, site: Site, op: Operation, large: _Large, data: Array, result: Callable[[], Any]) -> Any:
        """Run the second stage of a call on the items; return the result that it has then, or the `Rest`."""
        assert large.program is not None, "there is one"
        second = large.program.begin(site, op)
        if second is None:
            return Rest(_resulting(self._then(op, _move(self._group, data, large.stage)), result))
        rest = large.program.run(second, data, None)
        return Rest(_resulting(rest.steps, result)) if type(rest) is Rest else result()

    def _opened(self, site: Site, op: Operation, frame: memoryview, buffer: Array | None) -> Any:
        """Return the value that was announced, or the `Rest`, if that is an error or the data are to come."""
        known = self._descriptions.get(len(frame))
        if known is not None and known[0] == frame[: len(known[0])] and _fits(buffer, known[1]):
            return _stored(known[1], frame[len(known[0]) :], buffer)
        large = self._large.get(bytes(frame)) if self._large else None
        if large is not None and large.program is not None and _fits(buffer, large.description):
            arriving = _Arriving(large.description, buffer)
            data = arriving.memory()
            return self._moved(site, op, large, data, lambda: arriving.value(data))
        try:
            record = unpack_record(frame)
            if "data" in record:
                value = _held(self._group, record, buffer)
                self._keep(record, frame)
                return value
        except BaseException as error:
            return Rest(self._then(op, _raising(error)))
        if record["kind"] not in ("object", "refused"):
            with suppress(Exception):  # the general way raises it
                self._expect(record, bytes(frame))
        return Rest(self._then(op, _received(self._group, record, buffer, self._root)))

    def _expect(self, record: dict[str, Any], frame: bytes) -> None:
        """Keep how an array arrives whose announcement has come twice, for the next time."""
        if is_first(self._group, ("bcast", self._root, frame)):
            return
        description = _description(record)
        data = np.empty(prod(description.shape), description.dtype)
        stage = plan(self._group, "bcast", _announced(record), Data.of(data), root=self._root)
        self._keep_large(frame, _Large(frame, description, stage, _second(self._group, stage, data)))

    def _keep(self, record: dict[str, Any], frame: memoryview) -> None:
        """Keep the description of an array that was announced, with the bytes before its items."""
        if record["kind"] != "object":
            if len(self._descriptions) >= KEPT:
                self._descriptions.clear()
            head = bytes(frame[: len(frame) - len(record["data"])])
            self._descriptions[len(frame)] = head, _description(record)


KEPT = 64  # descriptions of arrays that came from a root lately


class _Large(NamedTuple):
    """An array that is not in its announcement: that is `head`."""

    head: bytes
    description: Described
    stage: StagePlan  # which moves it
    program: OnItems | None  # that does so; None: the engine does


def _second(group: Group, stage: StagePlan, data: Array) -> OnItems | None:
    """Return the program of a stage that moves these items, if there is one that does so where they are."""
    programs, (schedule, todo) = group.endpoint.programs, stage.prepared(group)
    if schedule.concurrent or not programs.offers:
        return None
    slots = ArraySlots(data, schedule, (data.size,))
    program = programs.find(todo, slots, granted=stage.granted, own=False)
    return None if program is None else OnItems(group, stage, todo, program, slots)


def _resulting(steps: Steps[Any], result: Callable[[], Any]) -> Steps[Any]:
    yield from steps
    return result()


def _returning(value: Any, steps: Steps[Any]) -> Steps[Any]:
    yield from steps
    return value


def _raising(error: BaseException) -> Steps[Any]:
    raise error
    yield


def bcast_frames(group: Group, frames: list[memoryview], root: int) -> Steps[list[memoryview]]:
    """Return the root's frames on every rank: an object that is encoded at the root, and decoded by the caller."""
    describe = plan(group, "bcast", AUTOMATIC, OBJECTS, root=root)
    if group.rank == root:
        yield from _sent(group, describe, _outgoing_frames(group, describe, frames, root, AUTOMATIC))
        return frames
    record = yield from announce(group, describe, {})
    return (yield from _receive_frames(group, record, root))


def bcast_into(group: Group, line: Array, root: int) -> Steps[None]:
    """Fill the bytes of all ranks with the root's; all ranks know their number, so no announcement is sent."""
    stage = plan(group, "bcast", AUTOMATIC, Data.of(line), root=root, name="bcast_into")
    slots = yield from _move(group, line, stage)
    key, here = key_of("bcast_into", AUTOMATIC, line, line, root), group.rank == root
    learn(group, key, stage, slots, lambda data: Places(data) if here else Places(None, data, data))


# The root.


def _outgoing(group: Group, describe: StagePlan, value: Any, root: int, choice: Choice) -> bytes | Steps[Any]:
    """Return the announcement of a value as bytes, if that holds it; else the steps that send both."""
    known = described(value)
    if known is not None:
        if known[1].nbytes <= RIDE_ALONG and choice.automatic:
            return _head(known[0]) + known[1].tobytes()
        return _send_array(group, describe, *known, root, choice)
    if group.pickle:
        return _outgoing_frames(group, describe, encode(value), root, choice)
    return _refuse(group, describe)


def _outgoing_frames(
    group: Group, describe: StagePlan, frames: list[memoryview], root: int, choice: Choice
) -> bytes | Steps[None]:
    """Return the same for the frames of an object."""
    if len(frames) == 1 and len(frames[0]) <= RIDE_ALONG and choice.automatic:
        return pack_record({"kind": "object", "data": frames[0].tobytes()})
    return _send_frames(group, describe, frames, root, choice)


def _sent(group: Group, describe: StagePlan, outgoing: bytes | Steps[Any]) -> Steps[Any]:
    """Broadcast an announcement, or take the steps that do more."""
    return announce_packed(group, describe, outgoing) if isinstance(outgoing, bytes) else outgoing


@lru_cache(maxsize=256)  # programs send arrays of few kinds
def _head(description: Described) -> bytes:
    """Return the announcement of a small array, but for its items, which are the last bytes."""
    size = prod(description.shape) * description.dtype.itemsize
    packed = pack_record(description.record | {"data": bytes(size)})
    return packed[: len(packed) - size]


def _send_array(
    group: Group, describe: StagePlan, description: Described, data: Array, root: int, choice: Choice
) -> Steps[None]:
    """Announce an array, and send its items."""
    stage = plan(group, "bcast", choice, Data.of(data), root=root)
    yield from announce(group, describe, description.record | _chosen(stage))
    yield from _move(group, data, stage)


def _send_frames(group: Group, describe: StagePlan, frames: list[memoryview], root: int, choice: Choice) -> Steps[None]:
    """Announce an object, and send its frames as one line of bytes."""
    sizes = [*map(len, frames)]
    stage = plan(group, "bcast", choice, _bytes(sum(sizes)), root=root)
    yield from announce(group, describe, {"kind": "object", "sizes": sizes} | _chosen(stage))
    yield from run_stage(group, stage, partial(BufferSlots, frames))


def _refuse(group: Group, describe: StagePlan) -> Steps[None]:
    """Raise the error of an object in a job that takes none; the other ranks raise it, too."""
    yield from announce(group, describe, {"kind": "refused"})
    pickled(group, "bcast")


# The other ranks.


def _received(group: Group, record: dict[str, Any], buffer: Array | None, root: int) -> Steps[Any]:
    """Return the value that the root has announced."""
    if "data" in record:
        return _held(group, record, buffer)
    if record["kind"] in ("object", "refused"):
        _check_object(group, buffer)
        return decode((yield from _receive_frames(group, record, root)))
    arriving = _Arriving(_fitting(group, record, buffer), buffer)
    data = arriving.memory()
    yield from _move(group, data, plan(group, "bcast", _announced(record), Data.of(data), root=root))
    return arriving.value(data)


def _held(group: Group, record: dict[str, Any], buffer: Array | None) -> Any:
    """Return the value that is in its announcement."""
    if record["kind"] == "object":
        _check_object(group, buffer)
        return decode([memoryview(record["data"])])
    return _stored(_fitting(group, record, buffer), memoryview(record["data"]), buffer)


def _stored(description: Described, items: memoryview, buffer: Array | None) -> Any:
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


def _description(record: dict[str, Any]) -> Described:
    """Return the description of an array from its announcement."""
    return Described(record["kind"], parse_dtype(record["dtype"]), tuple(record["shape"]), record["order"])


def _fitting(group: Group, record: dict[str, Any], buffer: Array | None) -> Described:
    """Return the description of an array that goes into the buffer, if there is one."""
    description = _description(record)
    if not _fits(buffer, description):
        assert buffer is not None
        raise _unfit(group, buffer, f"shape {description.shape}, dtype {dtype_name(description.dtype)}")
    return description


def _fits(buffer: Array | None, description: Described) -> bool:
    return buffer is None or (buffer.shape == description.shape and buffer.dtype == description.dtype)


@dataclass(frozen=True)
class _Arriving:
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
