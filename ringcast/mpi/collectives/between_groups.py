"""Collectives of intercommunicators: each side gets the data of the other one.

Ranks of the side that has the root take part only if they are the root, so nothing is known to all: the root and single
ranks of the other side send each other messages, and the other side goes on by collectives of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ringcast import collectives
from ringcast._util.safe_text import safe_text
from ringcast.collectives import point_to_point
from ringcast.collectives.alltoall import swap_objects, swap_pieces
from ringcast.collectives.reduce import combine_objects
from ringcast.collectives.stage import AUTOMATIC, OBJECTS, Group, pickled, plan
from ringcast.engine.execute import Steps
from ringcast.engine.objects import AS_IT_IS, apart, decode, in_one
from ringcast.mpi.base.constants import PROC_NULL, ROOT
from ringcast.mpi.base.error_classes import ERR_BUFFER, ERR_ROOT, ERR_TRUNCATE
from ringcast.mpi.base.exceptions import Exception
from ringcast.mpi.base.failing import Outcome
from ringcast.mpi.collectives.buffers import all_filled, stored
from ringcast.mpi.collectives.objects import one_for_each, unpickled
from ringcast.mpi.data.layout import Bytes
from ringcast.mpi.datatypes.buffers import Part, block, message, vector
from ringcast.mpi.datatypes.op import SUM, check_alike, of_buffers, of_objects
from ringcast.mpi.handles.comm_handle import CommHandle
from ringcast.ops import Array, Op

_NOTHING = memoryview(bytearray())


class InterCollectives(CommHandle):
    """Steps of collectives that differ from the ones of an intracommunicator."""

    def _barrier(self) -> Steps[None]:
        """Wait for all ranks of both sides."""
        return collectives.reduce.barrier(self._shared.inner)

    def _bcast(self, buf: Any, root: int = 0) -> Steps[Exception | None]:
        """Send the root's buffer to all ranks of the other side."""
        self._check_root(root)
        part = None if root == PROC_NULL else message(buf, writes=root != ROOT)
        messages = self._messages()
        if part is None:
            return None
        if root == ROOT:
            yield from messages.send(part.packed(), 0)
            return None
        came = (yield from messages.receive(root)) if self._group.rank == 0 else None
        return _stored(part, (yield from self._told(came)))

    def _gather(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Steps[Exception | None]:
        """Put the buffers of the other side into the root's."""
        parts = block(recvbuf, self._peers.size, writes=True).split(self._peers.size) if root == ROOT else []
        return self._gathered(sendbuf, parts, root)

    def _gatherv(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Steps[Exception | None]:
        """Put the buffers of the other side, of any lengths, into places of the root's."""
        return self._gathered(sendbuf, vector(recvbuf, self._peers.size, writes=True) if root == ROOT else [], root)

    def _gathered(self, sendbuf: Any, parts: list[Part], root: int) -> Steps[Exception | None]:
        self._check_root(root)
        given = None if root in (ROOT, PROC_NULL) else message(sendbuf, writes=False)
        messages, error = self._messages(), None
        for peer, part in enumerate(parts):
            error = _stored(part, (yield from messages.receive(peer))) or error
        if given is not None:
            yield from messages.send(given.packed(), root)
        return error

    def _scatter(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Steps[Exception | None]:
        """Send block r of the root's buffer to rank r of the other side."""
        parts = block(sendbuf, self._peers.size, writes=False).split(self._peers.size) if root == ROOT else []
        return self._scattered(parts, recvbuf, root)

    def _scatterv(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Steps[Exception | None]:
        """Send part r of the root's buffer to rank r of the other side."""
        return self._scattered(vector(sendbuf, self._peers.size, writes=False) if root == ROOT else [], recvbuf, root)

    def _scattered(self, parts: list[Part], recvbuf: Any, root: int) -> Steps[Exception | None]:
        self._check_root(root)
        mine = None if root in (ROOT, PROC_NULL) else message(recvbuf, writes=True)
        messages = self._messages()
        for peer, part in enumerate(parts):
            yield from messages.send(part.packed(), peer)
        return None if mine is None else _stored(mine, (yield from messages.receive(root)))

    def _allgather(self, sendbuf: Any, recvbuf: Any) -> Steps[None]:
        """Put the buffers of the other side into each rank's."""
        size = self._peers.size
        given = message(sendbuf, writes=False)
        return self._swapped([given] * size, block(recvbuf, size, writes=True).split(size))

    def _allgatherv(self, sendbuf: Any, recvbuf: Any) -> Steps[None]:
        """Put the buffers of the other side, of any lengths, into places of each rank's."""
        size = self._peers.size
        return self._swapped([message(sendbuf, writes=False)] * size, vector(recvbuf, size, writes=True))

    def _alltoall(self, sendbuf: Any, recvbuf: Any) -> Steps[None]:
        """Exchange a block with each rank of the other side."""
        size = self._peers.size
        given = block(sendbuf, size, writes=False).split(size)
        return self._swapped(given, block(recvbuf, size, writes=True).split(size))

    def _swapped(self, given: list[Part] | None, parts: list[Part]) -> Steps[None]:
        """Exchange parts with the ranks of the other side: in a call of all ranks, with no data for ranks here."""
        if given is None:
            raise Exception(ERR_BUFFER, "expected data in sendbuf: between two groups they cannot be in place")
        outgoing = [part.packed() for part in given]
        rooms = [part.room() for part in parts]
        pieces, places = [piece.data for piece in outgoing], [room.data for room in rooms]
        here = [_NOTHING] * self._group.size
        steps = swap_pieces(self._shared.inner, self._in_order(pieces, here), self._in_order(places, here))
        return all_filled(parts, rooms, steps)

    def _reduce(self, sendbuf: Any, recvbuf: Any, op: Any = SUM, root: int = 0) -> Steps[Exception | None]:
        """Put the combination of the buffers of the other side into the root's."""
        self._check_root(root)
        if root == ROOT:
            part = message(recvbuf, writes=True)
            return _stored(part, (yield from self._messages().receive(0)))
        operands = None if root == PROC_NULL else of_buffers(op, message(sendbuf, writes=False))
        messages = self._messages()
        total = None if operands is None else (yield from self._reduced(*operands))
        if total is not None:
            yield from messages.send(total, root)
        return None

    def _allreduce(self, sendbuf: Any, recvbuf: Any, op: Any = SUM) -> Steps[Exception | None]:
        """Put the combination of the buffers of the other side into each rank's."""
        given, part = message(sendbuf, writes=False), message(recvbuf, writes=True)
        check_alike(given, part)
        return _stored(part, (yield from self._reduced_there(*of_buffers(op, given))))

    def _reduce_scatter_block(self, sendbuf: Any, recvbuf: Any, op: Any = SUM) -> Steps[Exception | None]:
        """Put each rank's own block of the combination of the buffers of the other side into its buffer."""
        size, given, part = self._group.size, message(sendbuf, writes=False), message(recvbuf, writes=True)
        check_alike(given, part, size)
        return self._reduced_parts(given, part, (part.count,) * size, op)

    def _reduced_parts(self, given: Part, part: Part, counts: tuple[int, ...], op: Any) -> Steps[Exception | None]:
        """Give the ranks of each side so many elements of the combination of the buffers of the other one."""
        whole = yield from self._reduced_there(*of_buffers(op, given))
        if whole.nbytes != given.nbytes:
            return Exception(ERR_TRUNCATE, f"expected {given.nbytes} bytes from the other side, got {whole.nbytes}")
        each = given.nbytes // given.count if given.count else 0
        begin, length = (each * n for n in (sum(counts[: self._group.rank]), counts[self._group.rank]))
        return _stored(part, whole[begin : begin + length])

    def _reduced(self, combine: Op, items: Array) -> Steps[Bytes | None]:
        """Return the combination of the items of this side to its first rank."""
        total = yield from collectives.reduce.reduce(self._group, items, combine, 0, None, AUTOMATIC)
        return None if total is None else total.view(np.uint8)

    def _reduced_there(self, combine: Op, items: Array) -> Steps[Bytes]:
        """Return the combination of the items of the other side."""
        messages = self._messages()
        total = yield from self._reduced(combine, items)
        return (yield from self._told(None if total is None else (yield from messages.exchange(total))))

    def _told(self, data: Bytes | None) -> Steps[Bytes]:
        """Return the first rank's data on all ranks of this side; only the first one knows their length."""
        came: Bytes = yield from collectives.broadcast.bcast(self._group, data, 0, AUTOMATIC)
        return came

    def _bcast_object(self, obj: Any, root: int = 0) -> Steps[Outcome]:
        """Return the root's object on all ranks of the other side."""
        self._check_root(root)
        data = self._packed(obj) if root == ROOT else None
        messages = self._messages()
        if root == ROOT:
            yield from messages.send(data, 0)
        if root in (ROOT, PROC_NULL):
            return Outcome(None)
        if self._group.rank == 0:
            data = yield from messages.receive(root)
        return _read((yield from self._told(data)))

    def _gather_objects(self, sendobj: Any, root: int = 0) -> Steps[Outcome]:
        """Return the objects of the other side at the root, None elsewhere."""
        self._check_root(root)
        data = None if root in (ROOT, PROC_NULL) else self._packed(sendobj)
        messages, came = self._messages(), []
        for peer in range(self._peers.size if root == ROOT else 0):
            came.append((yield from messages.receive(peer)))
        if data is not None:
            yield from messages.send(data, root)
        return unpickled([apart(one.data) for one in came], {}) if root == ROOT else Outcome(None)

    def _scatter_objects(self, sendobj: Sequence[Any] | None, root: int = 0) -> Steps[Outcome]:
        """Return the root's object r on rank r of the other side."""
        self._check_root(root)
        values = [self._packed(obj) for obj in one_for_each(sendobj, self._peers.size)] if root == ROOT else []
        messages = self._messages()
        for peer, value in enumerate(values):
            yield from messages.send(value, peer)
        return Outcome(None) if root in (ROOT, PROC_NULL) else _read((yield from messages.receive(root)))

    def _allgather_objects(self, sendobj: Any) -> Steps[Outcome]:
        """Return the objects of the other side."""
        return self._alltoall_objects([sendobj] * self._peers.size)

    def _alltoall_objects(self, sendobj: Sequence[Any]) -> Steps[Outcome]:
        """Return the objects that the ranks of the other side have for this one."""
        inner, first, size = self._shared.inner, self._peers.first, self._peers.size
        encode, _ = pickled(inner, "alltoall")
        packed = [encode(value) for value in one_for_each(sendobj, size)]
        values = self._in_order(packed, [[_NOTHING]] * self._group.size)
        theirs = yield from swap_objects(inner, plan(inner, "alltoall", AUTOMATIC, OBJECTS), values, AS_IT_IS)
        return unpickled(theirs[first : first + size], {})

    def _reduce_objects(self, sendobj: Any, op: Any = SUM, root: int = 0) -> Steps[Outcome]:
        """Return the combination of the objects of the other side at the root; None elsewhere."""
        self._check_root(root)
        combine, messages = of_objects(op), self._messages()
        if root == ROOT:
            return _read((yield from messages.receive(0)))
        if root != PROC_NULL:
            total = yield from combine_objects(self._group, "reduce", sendobj, combine, 0, AUTOMATIC)
            if self._group.rank == 0:
                yield from messages.send(self._packed(total), root)
        return Outcome(None)

    def _allreduce_objects(self, sendobj: Any, op: Any = SUM) -> Steps[Outcome]:
        """Return the combination of the objects of the other side."""
        combine, messages, theirs = of_objects(op), self._messages(), None
        total = yield from combine_objects(self._group, "reduce", sendobj, combine, 0, AUTOMATIC)
        if self._group.rank == 0:
            theirs = yield from messages.exchange(self._packed(total))
        return _read((yield from self._told(theirs)))

    def _packed(self, obj: Any) -> Bytes:
        """Return an object as bytes: the receiver can then tell an error of the pickle from one of the message."""
        encode, _ = pickled(self._shared.inner, "send")
        return np.frombuffer(in_one(encode(obj)), np.uint8)

    def _check_root(self, root: int) -> None:
        """Check the root.

        Raises:
            Exception: it is no rank of the other side, nor ROOT or PROC_NULL.
        """
        size = self._peers.size
        if root not in (ROOT, PROC_NULL) and not 0 <= root < size:
            raise Exception(ERR_ROOT, f"expected a rank in 0..{size - 1}, ROOT or PROC_NULL, got {safe_text(root)}")

    def _messages(self) -> _Messages:
        """Return the messages of a call of all ranks; it counts, so that its arguments are checked before."""
        return _Messages(self._shared.inner, self._peers.first, next(self._shared.calls))

    def _in_order(self, there: list[Any], here: list[Any]) -> list[Any]:
        """Return the items for the other side and the items for this one, in the order of all ranks."""
        return there + here if self._peers.first == 0 else here + there


class _Messages:
    """The messages of one call between the sides, which have a tag of their own."""

    def __init__(self, group: Group, first: int, number: int) -> None:
        self._group, self._first, self._tag = group, first, number % (1 << 32)

    def send(self, value: Bytes | None, peer: int) -> Steps[None]:
        """Send bytes to a rank of the other side."""
        return point_to_point.send(self._group, value, self._first + peer, self._tag)

    def receive(self, peer: int) -> Steps[Bytes]:
        """Return the bytes that come from a rank of the other side."""
        return point_to_point.recv(self._group, self._first + peer, self._tag, None, None)

    def exchange(self, value: Bytes) -> Steps[Bytes]:
        """Send bytes to the first rank of the other side, and return its bytes."""
        return point_to_point.sendrecv(self._group, value, self._first, self._first, self._tag, None)


def _read(data: Bytes) -> Outcome:
    """Return the object from its bytes."""
    return Outcome.of(lambda: decode(apart(data.data)))


def _stored(part: Part, came: Bytes) -> Exception | None:
    """Put the received data into a buffer; return an error if there is no room for them."""
    return stored([part], came, (came.nbytes,))
