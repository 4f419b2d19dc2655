"""Collectives of buffers, in intracommunicators."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import index
from typing import Any

import numpy as np

from ringcast import collectives
from ringcast.collectives.alltoall import swap_pieces
from ringcast.collectives.announce import announce
from ringcast.collectives.broadcast import bcast_into
from ringcast.collectives.gather import exchange_counts
from ringcast.collectives.scatter import hand_out
from ringcast.collectives.stage import AUTOMATIC, OBJECTS, Group, StagePlan, plan
from ringcast.engine.execute import Steps
from ringcast.mpi.base.exceptions import ERR_COUNT, ERR_TRUNCATE, Exception
from ringcast.mpi.base.failing import Outcome
from ringcast.mpi.base.ranks import root_of
from ringcast.mpi.base.sentinels import IN_PLACE
from ringcast.mpi.collectives import again
from ringcast.mpi.data.layout import Bytes
from ringcast.mpi.datatypes.buffers import Part, block, joined, message, vector, wide
from ringcast.mpi.datatypes.op import SUM, check_alike, check_datatypes, of_buffers
from ringcast.mpi.handles.comm_handle import CommHandle
from ringcast.mpi.requests.calls import blocking, nonblocking, persistent
from ringcast.ops import Array, Op

_BYTE = np.dtype(np.uint8)


def forms(steps: Any, name: str, arguments: Any = None) -> tuple[Any, Any, Any]:
    """Return the forms of a call: `Name`, `Iname` and `Name_init`; for `arguments` see `blocking`."""
    begins = f"I{name[0].lower()}{name[1:]}"
    return (
        blocking(steps, name, arguments),
        nonblocking(steps, begins, arguments),
        persistent(steps, f"{name}_init", arguments),
    )


class Collectives(CommHandle):
    """Calls of all ranks of a communicator. A `sendbuf` of None means IN_PLACE, as in mpi4py."""

    def _barrier(self) -> Steps[None]:
        """Wait for all ranks."""
        return collectives.reduce.barrier(self._group)

    Barrier, Ibarrier, Barrier_init = forms(_barrier, "Barrier", again.Barrier)
    barrier = blocking(_barrier, "barrier", again.Barrier)

    def _bcast(self, buf: Any, root: int = 0) -> Steps[Exception | None]:
        """Send the root's buffer to all ranks."""
        group = self._group
        root = root_of(group, "bcast", root)
        here = group.rank == root
        part = message(buf, writes=not here)
        line = part.packed() if here else part.room()
        return _filled(None if here else part, line, bcast_into(group, line, root))

    Bcast, Ibcast, Bcast_init = forms(_bcast, "Bcast", again.Bcast)

    def _gather(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Steps[Exception | None]:
        """Put the buffers of all ranks into the root's, in rank order."""
        group = self._group
        root = root_of(group, "gather", root)
        if group.rank != root:
            return collectives.gather.gather(group, message(sendbuf, writes=False).packed(), root, None, AUTOMATIC)
        part = block(recvbuf, group.size, writes=True)
        room = part.room()
        rows = _rows(room, group.size)
        mine = _mine(sendbuf, part, group.rank, group.size)
        check_length(mine, rows.shape[1])
        return _filled(part, room, collectives.gather.gather(group, mine, root, rows, AUTOMATIC))

    Gather, Igather, Gather_init = forms(_gather, "Gather", again.Gather)

    def _gatherv(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Steps[Exception | None]:
        """Put the buffers of all ranks, of any lengths, into places of the root's."""
        group = self._group
        root = root_of(group, "gatherv", root)
        here = group.rank == root
        parts = vector(recvbuf, group.size, writes=True) if here else []
        mine = parts[root].packed() if here and in_place(sendbuf) else message(sendbuf, writes=False).packed()
        return _gather_parts(group, mine, parts, root)

    Gatherv, Igatherv, Gatherv_init = forms(_gatherv, "Gatherv")

    def _scatter(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Steps[Exception | None]:
        """Send block r of the root's buffer to rank r."""
        group, ones = self._group, (1,) * self._group.size
        root = root_of(group, "scatter", root)
        here = group.rank == root
        part = None if here and in_place(recvbuf) else message(recvbuf, writes=True)
        whole = None
        if here:
            whole = _rows(block(sendbuf, group.size, writes=False).packed(), group.size)
            if part is not None:
                check_length(whole[0], part.nbytes)
        row = (part.nbytes,) if part is not None else whole.shape[1:]  # type: ignore[union-attr]  # one is there
        return _put_first(part, hand_out(group, "scatter", whole, _BYTE, ones, row, root, AUTOMATIC))

    Scatter, Iscatter, Scatter_init = forms(_scatter, "Scatter")

    def _scatterv(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Steps[Exception | None]:
        """Send part r of the root's buffer to rank r; parts have any lengths."""
        group = self._group
        root = root_of(group, "scatterv", root)
        describe = plan(group, "bcast", AUTOMATIC, OBJECTS, root=root, name="scatterv")
        here = group.rank == root
        parts = vector(sendbuf, group.size, writes=False) if here else []
        part = None if here and in_place(recvbuf) else message(recvbuf, writes=True)
        return _scatter_parts(group, describe, parts, part, root)

    Scatterv, Iscatterv, Scatterv_init = forms(_scatterv, "Scatterv")

    def _allgather(self, sendbuf: Any, recvbuf: Any) -> Steps[None]:
        """Put the buffers of all ranks into each rank's, in rank order."""
        group = self._group
        part = block(recvbuf, group.size, writes=True)
        room = part.room()
        rows = _rows(room, group.size)
        mine = _mine(sendbuf, part, group.rank, group.size)
        check_length(mine, rows.shape[1])
        return _filled(part, room, collectives.gather.allgather(group, mine, rows, AUTOMATIC))

    Allgather, Iallgather, Allgather_init = forms(_allgather, "Allgather", again.Allgather)

    def _allgatherv(self, sendbuf: Any, recvbuf: Any) -> Steps[None]:
        """Put the buffers of all ranks, of any lengths, into places of each rank's."""
        group = self._group
        parts = vector(recvbuf, group.size, writes=True)
        lengths = tuple(part.nbytes for part in parts)
        mine = parts[group.rank].packed() if in_place(sendbuf) else message(sendbuf, writes=False).packed()
        check_length(mine, lengths[group.rank])
        return _allgather_parts(group, mine, parts, lengths)

    Allgatherv, Iallgatherv, Allgatherv_init = forms(_allgatherv, "Allgatherv")

    def _alltoall(self, sendbuf: Any, recvbuf: Any) -> Steps[None]:
        """Exchange a block with each rank."""
        group = self._group
        part = block(recvbuf, group.size, writes=True)
        room = part.room()
        rows = _rows(room, group.size)
        given = part if in_place(sendbuf) else block(sendbuf, group.size, writes=False)
        mine = _rows(given.packed(), group.size)
        check_length(mine[0], rows.shape[1])
        return _filled(part, room, collectives.alltoall.alltoall(group, mine, rows, AUTOMATIC))

    Alltoall, Ialltoall, Alltoall_init = forms(_alltoall, "Alltoall", again.Alltoall)

    def _alltoallv(self, sendbuf: Any, recvbuf: Any) -> Steps[None]:
        """Exchange a part, of any length, with each rank."""
        size = self._peers.size
        given = None if in_place(sendbuf) else vector(sendbuf, size, writes=False)
        return self._swapped(given, vector(recvbuf, size, writes=True))

    Alltoallv, Ialltoallv, Alltoallv_init = forms(_alltoallv, "Alltoallv")

    def _alltoallw(self, sendbuf: Any, recvbuf: Any) -> Steps[None]:
        """Exchange a part, of any length and datatype, with each rank."""
        size = self._peers.size
        given = None if in_place(sendbuf) else wide(sendbuf, size, writes=False)
        return self._swapped(given, wide(recvbuf, size, writes=True))

    Alltoallw, Ialltoallw, Alltoallw_init = forms(_alltoallw, "Alltoallw")

    def _swapped(self, given: list[Part] | None, parts: list[Part]) -> Steps[None]:
        """Send `given[r]` to each rank r, and receive into `parts`; None in place of `given` means IN_PLACE."""
        group = self._group
        outgoing = pieces_of(parts if given is None else given, parts)
        rooms = [part.room() for part in parts]
        check_length(outgoing[group.rank], rooms[group.rank].nbytes)
        steps = swap_pieces(group, [piece.data for piece in outgoing], [room.data for room in rooms])
        return all_filled(parts, rooms, steps)

    def _reduce(self, sendbuf: Any, recvbuf: Any, op: Any = SUM, root: int = 0) -> Steps[Exception | None]:
        """Put the combination of the buffers of all ranks into the root's."""
        group = self._group
        root = root_of(group, "reduce", root)
        if group.rank != root:
            combine, items = of_buffers(op, message(sendbuf, writes=False))
            return collectives.reduce.reduce(group, items, combine, root, None, AUTOMATIC)
        combine, items, part, room = operands(sendbuf, recvbuf, op)
        out = room.view(items.dtype)
        return _filled(part, room, collectives.reduce.reduce(group, items, combine, root, out, AUTOMATIC))

    Reduce, Ireduce, Reduce_init = forms(_reduce, "Reduce", again.Reduce)

    def _allreduce(self, sendbuf: Any, recvbuf: Any, op: Any = SUM) -> Steps[Exception | None]:
        """Put the combination of the buffers of all ranks into each rank's."""
        combine, items, part, room = operands(sendbuf, recvbuf, op)
        out = room.view(items.dtype)
        return _filled(part, room, collectives.reduce.allreduce(self._group, items, combine, out, AUTOMATIC))

    Allreduce, Iallreduce, Allreduce_init = forms(_allreduce, "Allreduce", again.Allreduce)

    def _reduce_scatter_block(self, sendbuf: Any, recvbuf: Any, op: Any = SUM) -> Steps[Exception | None]:
        """Put each rank's own block of the combination of the buffers of all ranks into its buffer."""
        size = self._group.size
        if in_place(sendbuf):
            given = part = block(recvbuf, size, writes=True)
        else:
            given, part = block(sendbuf, size, writes=False), message(recvbuf, writes=True)
            check_alike(given, part, size)
        return self._reduced_parts(given, part, (given.count // size,) * size, op)

    Reduce_scatter_block, Ireduce_scatter_block, Reduce_scatter_block_init = forms(
        _reduce_scatter_block, "Reduce_scatter_block"
    )

    def _reduce_scatter(
        self, sendbuf: Any, recvbuf: Any, recvcounts: Sequence[int] | None = None, op: Any = SUM
    ) -> Steps[Outcome | Exception | None]:
        """Put each rank's own part of the combination of the buffers of all ranks into its buffer.

        Without `recvcounts`, the ranks exchange the numbers of elements for which they have room.
        """
        group, part = self._group, message(recvbuf, writes=True)
        given = part if in_place(sendbuf) else message(sendbuf, writes=False)
        check_datatypes(given, part)
        if recvcounts is None and given is not part:
            of_buffers(op, given)  # a wrong operator is found before anything is sent
            return self._reduced_to_room(given, part, op)
        counts = _checked_counts(recvcounts, given, part, group.rank, group.size)
        if sum(counts) != given.count:
            raise _wrong_counts(given, counts)
        return self._reduced_parts(given, part, counts, op)

    Reduce_scatter, Ireduce_scatter, Reduce_scatter_init = forms(_reduce_scatter, "Reduce_scatter")

    def _reduced_to_room(self, given: Part, part: Part, op: Any) -> Steps[Outcome | Exception | None]:
        """Exchange the number of elements that each rank wants; fail on all ranks if one lacks their sum."""
        group, told = self._group, np.array([part.count, given.count])
        everyone = yield from collectives.gather.allgather(group, told, None, AUTOMATIC)
        counts = tuple(everyone[:, 0].tolist())
        if (everyone[:, 1] != sum(counts)).any():
            return Outcome(None, _wrong_counts(given, counts))
        return (yield from self._reduced_parts(given, part, counts, op))

    def _reduced_parts(self, given: Part, part: Part, counts: tuple[int, ...], op: Any) -> Steps[Exception | None]:
        """Combine the elements of all ranks, and store this rank's: so many for each rank."""
        combine, items = of_buffers(op, given)
        each = len(items) // given.count if given.count else 0
        rows = tuple(count * each for count in counts)
        # In place, the elements of the others stay as they are, so that ringcast must not work there.
        out = None if given is part else part.room()[: rows[self._group.rank] * items.itemsize].view(items.dtype)
        return _put(part, collectives.reduce.reduce_scatter(self._group, items, combine, rows, out, AUTOMATIC))


class Scans(CommHandle):
    """Prefix sums, which only intracommunicators have."""

    def _scan(self, sendbuf: Any, recvbuf: Any, op: Any = SUM) -> Steps[None]:
        """Put the combination of the buffers of ranks 0 to r into rank r's."""
        combine, items, part, room = operands(sendbuf, recvbuf, op)
        out = room.view(items.dtype)
        return _filled(part, room, collectives.scan.scan(self._group, items, combine, out, AUTOMATIC))

    Scan, Iscan, Scan_init = forms(_scan, "Scan", again.Scan)

    def _exscan(self, sendbuf: Any, recvbuf: Any, op: Any = SUM) -> Steps[None]:
        """Put the combination of the buffers of ranks 0 to r - 1 into rank r's; rank 0's stays as it is."""
        combine, items, part, room = operands(sendbuf, recvbuf, op)
        out = room.view(items.dtype)
        steps = collectives.scan.exscan(self._group, items, combine, out, AUTOMATIC)
        return _filled(part if self._group.rank else None, room, steps)

    Exscan, Iexscan, Exscan_init = forms(_exscan, "Exscan", again.Exscan)


def in_place(spec: Any) -> bool:
    """Return whether the data are in the other buffer."""
    return spec is None or spec is IN_PLACE


def operands(sendbuf: Any, recvbuf: Any, op: Any) -> tuple[Op, Array, Part, Bytes]:
    """Return operator and items of a reduction, the buffer for the result, and room for this without gaps."""
    part = message(recvbuf, writes=True)
    given = part if in_place(sendbuf) else message(sendbuf, writes=False)
    check_alike(given, part)
    return *of_buffers(op, given), part, part.room()


def check_length(given: Bytes, expected: int) -> None:
    """Check the length of this rank's own data, or of the received data for all ranks of its side.

    Raises:
        Exception: it differs from the length of the room.
    """
    if given.nbytes != expected:
        code = ERR_TRUNCATE if given.nbytes > expected else ERR_COUNT
        raise Exception(code, f"expected {expected} bytes, for which recvbuf has room, got {given.nbytes} in sendbuf")


def stored(parts: list[Part], whole: Bytes, lengths: Sequence[int]) -> Exception | None:
    """Store the received parts, one behind the other; return an error if there is no room for one."""
    error = None
    for part, end, length in zip(parts, accumulate(lengths), lengths, strict=True):
        if length > part.nbytes:
            error = Exception(ERR_TRUNCATE, f"expected at most {part.nbytes} bytes, as recvbuf has, got {length}")
        part.store(whole[end - length : end][: part.nbytes])
    return error


def _filled(part: Part | None, room: Bytes, steps: Steps[Any]) -> Steps[None]:
    """Take steps that fill a room, and put its data into a buffer, unless that is None."""
    yield from steps
    if part is not None:
        part.store(room)


def pieces_of(given: list[Part], parts: list[Part]) -> list[Bytes]:
    """Return the data to send; copies, if they may share memory with the receive buffers, which MPI does not allow."""
    pieces = [part.packed() for part in given]
    sent, came = ({id(part.source): part.source for part in side}.values() for side in (given, parts))
    if any(np.may_share_memory(one, other) for one in sent for other in came):
        return [piece if part.gaps else piece.copy() for piece, part in zip(pieces, given, strict=True)]
    return pieces


def all_filled(parts: Sequence[Part], rooms: Sequence[Bytes], steps: Steps[Any]) -> Steps[None]:
    """Take steps that fill rooms, and put their data into the buffers."""
    yield from steps
    for part, room in zip(parts, rooms, strict=True):
        part.store(room)


def _put(part: Part, steps: Steps[Array]) -> Steps[None]:
    """Take steps, and put their result into a buffer."""
    part.store((yield from steps).view(np.uint8))


def _put_first(part: Part | None, steps: Steps[Array]) -> Steps[None]:
    """Take steps, and put the first row of their result into a buffer, if there is one."""
    came = yield from steps
    if part is not None:
        part.store(came[0])


def _gather_parts(group: Group, mine: Bytes, parts: list[Part], root: int) -> Steps[Exception | None]:
    """Take the steps of `Gatherv`."""
    here = group.rank == root
    _, lengths = yield from exchange_counts(group, "gatherv", mine, None)
    room = joined(parts) if here and list(lengths) == [part.nbytes for part in parts] else None
    whole = yield from collectives.gather.gatherv(group, mine, lengths, root, room, AUTOMATIC)
    return stored(parts, whole, lengths) if here and room is None else None


def _scatter_parts(
    group: Group, describe: StagePlan, parts: list[Part], part: Part | None, root: int
) -> Steps[Exception | None]:
    """Take the steps of `Scatterv`."""
    whole = _whole(parts) if group.rank == root else None
    record = yield from announce(group, describe, {"rows": [one.nbytes for one in parts]})
    rows = tuple(record["rows"])
    came = yield from hand_out(group, "scatterv", whole, _BYTE, rows, (), root, AUTOMATIC)
    return None if part is None else stored([part], came, (came.nbytes,))


def _allgather_parts(group: Group, mine: Bytes, parts: list[Part], lengths: tuple[int, ...]) -> Steps[None]:
    """Take the steps of `Allgatherv`."""
    room = joined(parts)
    whole = yield from collectives.gather.allgatherv(group, mine, lengths, room, AUTOMATIC)
    if room is None:
        stored(parts, whole, lengths)


def _checked_counts(recvcounts: Sequence[int] | None, given: Part, part: Part, rank: int, size: int) -> tuple[int, ...]:
    """Return the number of elements for each rank, as the program gives them."""
    if recvcounts is None:
        raise TypeError("expected recvcounts, as the data are in place")
    counts = tuple(map(index, recvcounts))
    if len(counts) != size:
        raise ValueError(f"expecting {size} items, got {len(counts)}")
    if given is not part and counts[rank] != part.count:
        raise ValueError(f"mismatch in receive count {part.count} and recvcounts[{rank}] {counts[rank]}")
    return counts


def _wrong_counts(given: Part, counts: Sequence[int]) -> ValueError:
    return ValueError(f"mismatch in send count {given.count} and sum(counts) {sum(counts)}")


def _rows(line: Bytes, size: int) -> Array:
    """Return the blocks of a buffer, one for each rank."""
    return line.reshape(size, line.nbytes // size)


def _mine(sendbuf: Any, part: Part, rank: int, size: int) -> Bytes:
    """Return this rank's data, which may be its block of the receive buffer."""
    given = part.split(size)[rank] if in_place(sendbuf) else message(sendbuf, writes=False)
    return given.packed()


def _whole(parts: list[Part]) -> Bytes:
    """Return the data of parts in one line: their memory, if they lie one behind the other."""
    line = joined(parts)
    return np.concatenate([part.packed() for part in parts]) if line is None else line
