"""Make collectives of small buffers again, as `ringcast.collectives.again` does, without any of their steps.

Each class has the arguments of its calls. The buffers are arrays as they are, with their datatype or without; UNMADE in
place of a result says that the call needs the general way, which also finds mistakes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ringcast.collectives.again import UNMADE
from ringcast.engine.execute import Steps
from ringcast.mpi.base.sentinels import IN_PLACE
from ringcast.mpi.base.threads import of_one_thread
from ringcast.mpi.datatypes.buffers import line_of
from ringcast.mpi.datatypes.op import SUM, Op, Predefined
from ringcast.mpi.requests.calls import checked
from ringcast.ops import Array
from ringcast.wire.call import Site

_BYTE = np.dtype(np.uint8)


class Barrier(NamedTuple):
    """Wait for all ranks."""

    def make(self, comm: Any, operation: str, site: Site, steps: Steps[Any] | None = None) -> Any:
        """See `mpi.requests.calls.Predicted`."""
        return _made(comm, operation, site, steps, ("barrier",), None, None)


class Bcast(NamedTuple):
    """Send the root's buffer to all ranks."""

    buf: Any
    root: Any = 0

    def make(self, comm: Any, operation: str, site: Site, steps: Steps[Any] | None = None) -> Any:
        """See `mpi.requests.calls.Predicted`."""
        line = line_of(self.buf, 1, writes=self.root != _rank(comm))
        if line is None or type(self.root) is not int:
            return UNMADE
        data = line.view(_BYTE)
        return _made(comm, operation, site, steps, ("bcast_into", _BYTE, data.shape, self.root), data, data)


class Allgather(NamedTuple):
    """Put the buffers of all ranks into each rank's, in rank order."""

    sendbuf: Any
    recvbuf: Any

    def make(self, comm: Any, operation: str, site: Site, steps: Steps[Any] | None = None) -> Any:
        """See `mpi.requests.calls.Predicted`."""
        group = comm.__dict__.get("_group")
        found = None if group is None else _rows_of(group, self.sendbuf, self.recvbuf)
        return (
            UNMADE
            if found is None
            else _made(comm, operation, site, steps, ("allgather", _BYTE, found[0].shape), *found)
        )


class Gather(NamedTuple):
    """Put the buffers of all ranks into the root's, in rank order."""

    sendbuf: Any
    recvbuf: Any
    root: Any = 0

    def make(self, comm: Any, operation: str, site: Site, steps: Steps[Any] | None = None) -> Any:
        """See `mpi.requests.calls.Predicted`."""
        group, root = comm.__dict__.get("_group"), self.root
        found: tuple[Array, Array | None] | None
        if group is None or type(root) is not int:
            return UNMADE
        if root == group.rank:
            found = _rows_of(group, self.sendbuf, self.recvbuf)
        else:
            given = line_of(self.sendbuf, 1, writes=False)
            found = None if given is None else (given.view(_BYTE), None)
        return (
            UNMADE
            if found is None
            else _made(comm, operation, site, steps, ("gather", _BYTE, found[0].shape, root), *found)
        )


class Alltoall(NamedTuple):
    """Exchange a block with each rank."""

    sendbuf: Any
    recvbuf: Any

    def make(self, comm: Any, operation: str, site: Site, steps: Steps[Any] | None = None) -> Any:
        """See `mpi.requests.calls.Predicted`."""
        group = comm.__dict__.get("_group")
        if group is None or (line := line_of(self.recvbuf, group.size, writes=True)) is None:
            return UNMADE
        given = line if _in_place(self.sendbuf) else line_of(self.sendbuf, group.size, writes=False)
        if given is None or given.nbytes != line.nbytes:
            return UNMADE
        rows, mine = (each.view(_BYTE).reshape(group.size, -1) for each in (line, given))
        return _made(comm, operation, site, steps, ("alltoall", _BYTE, mine.shape), mine, rows)


class Reduce(NamedTuple):
    """Put the combination of the buffers of all ranks into the root's."""

    sendbuf: Any
    recvbuf: Any
    op: Any = SUM
    root: Any = 0

    def make(self, comm: Any, operation: str, site: Site, steps: Steps[Any] | None = None) -> Any:
        """See `mpi.requests.calls.Predicted`."""
        if type(self.root) is not int:
            return UNMADE
        if self.root == _rank(comm):
            return _combined(comm, operation, site, steps, "reduce", self.sendbuf, self.recvbuf, self.op, self.root)
        items = line_of(self.sendbuf, 1, writes=False)
        key = None if items is None else _key("reduce", items, self.op, self.root)
        return UNMADE if key is None else _made(comm, operation, site, steps, key, items, None)


class Allreduce(NamedTuple):
    """Put the combination of the buffers of all ranks into each rank's."""

    sendbuf: Any
    recvbuf: Any
    op: Any = SUM

    def make(self, comm: Any, operation: str, site: Site, steps: Steps[Any] | None = None) -> Any:
        """See `mpi.requests.calls.Predicted`."""
        return _combined(comm, operation, site, steps, "allreduce", self.sendbuf, self.recvbuf, self.op)


class Scan(NamedTuple):
    """Put the combination of the buffers of ranks 0 to r into rank r's."""

    sendbuf: Any
    recvbuf: Any
    op: Any = SUM

    def make(self, comm: Any, operation: str, site: Site, steps: Steps[Any] | None = None) -> Any:
        """See `mpi.requests.calls.Predicted`."""
        return _combined(comm, operation, site, steps, "scan", self.sendbuf, self.recvbuf, self.op)


class Exscan(NamedTuple):
    """Put the combination of the buffers of ranks 0 to r - 1 into rank r's; rank 0's stays as it is."""

    sendbuf: Any
    recvbuf: Any
    op: Any = SUM

    def make(self, comm: Any, operation: str, site: Site, steps: Steps[Any] | None = None) -> Any:
        """See `mpi.requests.calls.Predicted`."""
        return _combined(comm, operation, site, steps, "exscan", self.sendbuf, self.recvbuf, self.op)


def _rows_of(group: Any, sendbuf: Any, recvbuf: Any) -> tuple[Array, Array] | None:
    """Return this rank's bytes, and the rows for the bytes of all ranks; None if these are no such arrays."""
    line = line_of(recvbuf, group.size, writes=True)
    if line is None:
        return None
    rows = line.view(_BYTE).reshape(group.size, -1)
    if _in_place(sendbuf):
        return rows[group.rank], rows
    given = line_of(sendbuf, 1, writes=False)
    return None if given is None or given.nbytes != rows.shape[1] else (given.view(_BYTE), rows)


def _combined(
    comm: Any,
    operation: str,
    site: Site,
    steps: Steps[Any] | None,
    collective: str,
    sendbuf: Any,
    recvbuf: Any,
    op: Any,
    *facts: int,
) -> Any:
    """Make a call whose result is as large as the value."""
    room = line_of(recvbuf, 1, writes=True)
    items = room if _in_place(sendbuf) else line_of(sendbuf, 1, writes=False)
    if room is None or items is None or items.dtype.char != room.dtype.char or items.size != room.size:
        return UNMADE
    key = _key(collective, items, op, *facts)
    return UNMADE if key is None else _made(comm, operation, site, steps, key, items, room)


def _key(collective: str, items: Array, op: Any, *facts: int) -> tuple[object, ...] | None:
    """Return the key of a call with an operator; None if that does not combine such items, or is the program's own."""
    state = op._state if isinstance(op, Op) else None
    if not isinstance(state, Predefined) or items.dtype.kind not in state.kinds:
        return None
    return collective, items.dtype, items.shape, id(state.on_arrays), *facts


def _in_place(spec: Any) -> bool:
    """Return whether the data are in the other buffer."""
    return spec is None or spec is IN_PLACE


def _rank(comm: Any) -> int | None:
    """Return this rank; None in the first call."""
    group = comm.__dict__.get("_group")
    return None if group is None else group.rank


def _made(
    comm: Any,
    operation: str,
    site: Site,
    steps: Steps[Any] | None,
    key: tuple[object, ...],
    value: Array | None,
    out: Array | None,
) -> Any:
    """Make or begin the call that has this key in ringcast's table, if it is there."""
    caller = comm.__dict__.get("_caller")
    if caller is None or comm._state.remote is not None or not of_one_thread():
        return UNMADE
    known = caller._known(*key)
    if known is None:
        return UNMADE
    if steps is not None:
        return known.started(site, value, out, steps, silent=True) or UNMADE
    return UNMADE if checked(comm, caller._again, known, value, out, (operation, site)) is UNMADE else None
