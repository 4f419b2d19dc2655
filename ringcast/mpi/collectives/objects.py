"""Collectives of Python objects, in intracommunicators.

As in mpi4py, a rank gets copies, also of its own object and at the root of `bcast`: the program may change one and keep
the other. Unchangeable objects, as a number or a text, are returned as they are.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ringcast import collectives
from ringcast.collectives.alltoall import swap_objects
from ringcast.collectives.broadcast import bcast_into
from ringcast.collectives.reduce import combine_objects
from ringcast.collectives.rows import spread_objects
from ringcast.collectives.stage import AUTOMATIC, OBJECTS, Group, pickled, plan
from ringcast.engine.execute import Steps
from ringcast.engine.objects import AS_IT_IS, decode, decode_apart, encode_apart
from ringcast.mpi.base.failing import Outcome
from ringcast.mpi.base.ranks import root_of
from ringcast.mpi.collectives.locks import note_lock
from ringcast.mpi.datatypes.op import SUM, of_objects, own, unchangeable
from ringcast.mpi.handles.comm_handle import CommHandle
from ringcast.mpi.requests.calls import blocking

APART = 1 << 20  # a buffer of so many bytes in an object, or more, is broadcast by a stage of its own, without a copy


class ObjectCollectives(CommHandle):
    """Collectives of Python objects."""

    def _bcast_object(self, obj: Any, root: int = 0) -> Steps[Outcome]:
        """Return copies of the root's object on all ranks."""
        group = self._group
        root = root_of(group, "bcast", root)
        pickled(group, "bcast")
        note_lock(self, "bcast")
        if group.rank == root:
            parts = encode_apart(obj, APART)
            yield from _send_parts(group, parts, root)
            return Outcome.of(lambda: obj if unchangeable(obj) else decode_apart([parts[0], *map(_copy, parts[1:])]))
        return (yield from _receive_object(group, root))

    bcast = blocking(_bcast_object, "bcast")

    def _gather_objects(self, sendobj: Any, root: int = 0) -> Steps[Outcome]:
        """Return the objects of all ranks at the root, None elsewhere."""
        group = self._group
        root = root_of(group, "gather", root)
        encode, _ = pickled(group, "gather")
        here = group.rank == root
        mine = None if here else encode(sendobj)
        slots = yield from spread_objects(group, "gather", [mine], root, AUTOMATIC, codec=AS_IT_IS)
        return unpickled(slots.values, {root: sendobj}) if here else Outcome(None)

    gather = blocking(_gather_objects, "gather")

    def _scatter_objects(self, sendobj: Sequence[Any] | None, root: int = 0) -> Steps[Outcome]:
        """Return the root's object r on rank r."""
        group = self._group
        root = root_of(group, "scatter", root)
        encode, _ = pickled(group, "scatter")
        here = group.rank == root
        values = one_for_each(sendobj, group.size) if here else []
        packed = _pickled_but(values, root, encode) if here else [None] * group.size
        slots = yield from spread_objects(group, "scatter", packed, root, AUTOMATIC, codec=AS_IT_IS)
        return Outcome.of(lambda: own(values[root]) if here else decode(slots.values[group.rank]))

    scatter = blocking(_scatter_objects, "scatter")

    def _allgather_objects(self, sendobj: Any) -> Steps[Outcome]:
        """Return the objects of all ranks."""
        group = self._group
        encode, _ = pickled(group, "allgather")
        slots = yield from spread_objects(group, "allgather", [encode(sendobj)], None, AUTOMATIC, codec=AS_IT_IS)
        return unpickled(slots.values, {group.rank: sendobj})

    allgather = blocking(_allgather_objects, "allgather")

    def _alltoall_objects(self, sendobj: Sequence[Any]) -> Steps[Outcome]:
        """Return the objects that all ranks have for this one."""
        group = self._group
        encode, _ = pickled(group, "alltoall")
        values = one_for_each(sendobj, group.size)
        stage = plan(group, "alltoall", AUTOMATIC, OBJECTS)
        theirs = yield from swap_objects(group, stage, _pickled_but(values, group.rank, encode), AS_IT_IS)
        return unpickled(theirs, {group.rank: values[group.rank]})

    alltoall = blocking(_alltoall_objects, "alltoall")

    def _reduce_objects(self, sendobj: Any, op: Any = SUM, root: int = 0) -> Steps[Outcome]:
        """Return the combination of the objects of all ranks, in rank order, at the root; None elsewhere."""
        root = root_of(self._group, "reduce", root)
        here = self._group.rank == root
        mine = own(sendobj) if here else sendobj
        result = yield from combine_objects(self._group, "reduce", mine, of_objects(op), root, AUTOMATIC)
        return Outcome(result if here else None)

    reduce = blocking(_reduce_objects, "reduce")

    def _allreduce_objects(self, sendobj: Any, op: Any = SUM) -> Steps[Outcome]:
        """Return the combination of the objects of all ranks, in rank order."""
        result = yield from combine_objects(self._group, "allreduce", own(sendobj), of_objects(op), None, AUTOMATIC)
        return Outcome(result)

    allreduce = blocking(_allreduce_objects, "allreduce")


class ObjectScans(CommHandle):
    """Prefix sums of Python objects, which only intracommunicators have."""

    def _scan_objects(self, sendobj: Any, op: Any = SUM) -> Steps[Outcome]:
        """Return the combination of the objects of ranks 0 to this one."""
        result = yield from combine_objects(self._group, "scan", own(sendobj), of_objects(op), None, AUTOMATIC)
        return Outcome(result)

    scan = blocking(_scan_objects, "scan")

    def _exscan_objects(self, sendobj: Any, op: Any = SUM) -> Steps[Outcome]:
        """Return the combination of the objects of all ranks before this one; None on rank 0."""
        result = yield from combine_objects(self._group, "exscan", sendobj, of_objects(op), None, AUTOMATIC)
        return Outcome(result if self._group.rank else None)

    exscan = blocking(_exscan_objects, "exscan")


def _send_parts(group: Group, parts: list[memoryview], root: int) -> Steps[None]:
    """Broadcast an object as its root: the pickle, then large buffers in it one by one, straight from the object."""
    body, *large = parts
    head = struct.pack(f"<I{len(large)}Q", len(large), *map(len, large))
    yield from collectives.broadcast.bcast(group, np.frombuffer(head + body, np.uint8), root, AUTOMATIC)
    for buffer in large:
        yield from bcast_into(group, np.frombuffer(buffer, np.uint8), root)


def _copy(buffer: memoryview) -> memoryview:
    return np.frombuffer(buffer, np.uint8).copy().data


def _receive_object(group: Group, root: int) -> Steps[Outcome]:
    """Return the object that the root broadcasts; an error of its pickle does not concern the other ranks."""
    message = (yield from collectives.broadcast.bcast(group, None, root, AUTOMATIC)).data
    (count,) = struct.unpack_from("<I", message)
    sizes = struct.unpack_from(f"<{count}Q", message, 4)
    large = [np.empty(size, np.uint8) for size in sizes]
    for buffer in large:
        yield from bcast_into(group, buffer, root)
    return Outcome.of(lambda: decode_apart([message[4 + 8 * count :], *(buffer.data for buffer in large)]))


def one_for_each(objects: Sequence[Any] | None, size: int) -> list[Any]:
    """Return one object for each rank.

    Raises:
        ValueError: there are more or less, as mpi4py says it.
    """
    values = [None] * size if objects is None else list(objects)
    if len(values) != size:
        raise ValueError(f"expecting {size} items, got {len(values)}")
    return values


def unpickled(packed: list[Any], mine: Mapping[int, Any]) -> Outcome:
    """Return the received objects, None where none has come, and copies of this rank's own among them."""
    return Outcome.of(lambda: [own(mine[k]) if k in mine else data and decode(data) for k, data in enumerate(packed)])


def _pickled_but(values: list[Any], rank: int, encode: Callable[[Any], bytes]) -> list[bytes | None]:
    """Return objects for all ranks as bytes, but for this one."""
    return [None if k == rank else encode(value) for k, value in enumerate(values)]
