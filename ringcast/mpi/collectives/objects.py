"""Collectives of Python objects, in intracommunicators.

As in mpi4py, a rank gets copies, also of its own object and at the root of `bcast`: the program may change one and keep
the other. Unchangeable objects, as a number or a text, are returned as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ringcast.collectives.alltoall import swap_objects
from ringcast.collectives.broadcast import bcast_frames
from ringcast.collectives.reduce import combine_objects
from ringcast.collectives.rows import spread_objects
from ringcast.collectives.stage import AUTOMATIC, OBJECTS, pickled, plan
from ringcast.engine.execute import Steps
from ringcast.engine.objects import AS_IT_IS, copied, decode, encode
from ringcast.mpi.base.failing import Outcome
from ringcast.mpi.base.ranks import root_of
from ringcast.mpi.collectives.locks import note_lock
from ringcast.mpi.datatypes.op import SUM, of_objects, own, unchangeable
from ringcast.mpi.handles.comm_handle import CommHandle
from ringcast.mpi.requests.calls import blocking


class ObjectCollectives(CommHandle):
    """Collectives of Python objects."""

    def _bcast_object(self, obj: Any, root: int = 0) -> Steps[Outcome]:
        """Return copies of the root's object on all ranks."""
        group = self._group
        root = root_of(group, "bcast", root)
        pickled(group, "bcast")
        note_lock(self, "bcast")
        here = group.rank == root
        frames = yield from bcast_frames(group, encode(obj) if here else [], root)
        if here:
            return Outcome.of(lambda: obj if unchangeable(obj) else decode(copied(frames)))
        return Outcome.of(lambda: decode(frames))

    bcast = blocking(_bcast_object, "bcast")

    def _gather_objects(self, sendobj: Any, root: int = 0) -> Steps[Outcome]:
        """Return the objects of all ranks at the root, None elsewhere."""
        group = self._group
        root = root_of(group, "gather", root)
        encode, _ = pickled(group, "gather")
        here = group.rank == root
        mine = None if here else encode(sendobj)
        slots = yield from spread_objects(group, "gather", [mine], root, AUTOMATIC, codec=AS_IT_IS)
        return unpickled(slots.values(range(group.size)), {root: sendobj}) if here else Outcome(None)

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
        return Outcome.of(lambda: own(values[root]) if here else decode(slots.value(group.rank)))

    scatter = blocking(_scatter_objects, "scatter")

    def _allgather_objects(self, sendobj: Any) -> Steps[Outcome]:
        """Return the objects of all ranks."""
        group = self._group
        encode, _ = pickled(group, "allgather")
        slots = yield from spread_objects(group, "allgather", [encode(sendobj)], None, AUTOMATIC, codec=AS_IT_IS)
        return unpickled(slots.values(range(group.size)), {group.rank: sendobj})

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


def _pickled_but(values: list[Any], rank: int, encode: Callable[[Any], Any]) -> list[Any]:
    """Return objects for all ranks, encoded but for this one's."""
    return [None if k == rank else encode(value) for k, value in enumerate(values)]
