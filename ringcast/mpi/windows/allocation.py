"""Allocation of a window: one memory for all ranks of a communicator, which share a host."""

from __future__ import annotations

from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from ringcast._util.dataclass import dataclass
from ringcast.collectives import split
from ringcast.collectives.shared_memory import exchanged, in_memory
from ringcast.engine.execute import Steps
from ringcast.errors import SharedMemoryError
from ringcast.mpi.base.contexts import Shared, shared
from ringcast.mpi.base.error_classes import ERR_RMA_SHARED
from ringcast.mpi.base.exceptions import Exception, translated
from ringcast.mpi.data.exporters import address_of
from ringcast.mpi.data.memory import buffer
from ringcast.mpi.windows.locks import LockFile
from ringcast.ops import Array
from ringcast.procs.host_memory import HostMemory

APART = 4096  # bytes to whose multiples parts are moved if they need not follow each other


class Piece(NamedTuple):
    """The part of the memory that a rank has given."""

    start: int
    nbytes: int
    unit: int  # of displacements


@dataclass(slots=True)
class Window:
    """The state that all handles of one window share."""

    shared: Shared  # a communicator of its own
    line: Array  # the whole memory
    pieces: list[Piece]
    lock_file: LockFile
    info: dict[str, str]
    attributes: dict[int, Any]
    name: str = ""
    locked: set[int] | None = None  # the ranks to which a lock gives access at present; None: all, by Lock_all

    def memory(self, rank: int) -> buffer:
        """Return the part of a rank."""
        start, nbytes, _ = self.pieces[rank]
        return buffer.frombuffer(self.line)[start : start + nbytes]  # type: ignore[no-any-return]

    def address(self, rank: int) -> int:
        """Return the address of the part of a rank in this process."""
        return address_of(self.line) + self.pieces[rank].start


def allocated(comm: Any, size: int, unit: int, info: dict[str, str]) -> Steps[Window | Exception]:
    """Return a window in which each rank has so many bytes; all ranks of the communicator call this."""
    group = comm._group
    apart = info.get("alloc_shared_noncontig") == "true"
    row = np.array([split.color_of_host(), size, unit, apart], np.int64)
    table = yield from exchanged(group, "Allocate_shared", row)
    if len({*table[:, 0]}) > 1:
        return Exception(
            ERR_RMA_SHARED,
            "the ranks of the communicator are on several hosts, which share no memory; take "
            "comm.Split_type(MPI.COMM_TYPE_SHARED)",
        )
    pieces, total = _pieces(table[:, 1:].tolist())

    def use(memory: HostMemory) -> tuple[Array, LockFile]:
        line: Array = np.ndarray((total,), np.uint8, memory.mapped())
        return line, LockFile(memory.duplicate())

    made = yield from in_memory(group, "Allocate_shared", range(group.size), total, use)
    if isinstance(made, SharedMemoryError):
        return translated(made)
    own = shared((yield from split.dup(group)), comm._shared)
    return Window(own, *made[:1], pieces, made[1], info, {}, locked=set())


def _pieces(rows: list[list[int]]) -> tuple[list[Piece], int]:
    """Return the parts, one behind the other, and their end; at multiples of APART if all ranks allow that.

    >>> _pieces([[10, 1, 0], [3, 8, 1]])
    ([Piece(start=0, nbytes=10, unit=1), Piece(start=10, nbytes=3, unit=8)], 13)
    """
    step = APART if all(apart for _, _, apart in rows) else 1
    rooms = [-(-size // step) * step for size, _, _ in rows]
    starts = [*accumulate(rooms, initial=0)]
    return [Piece(start, size, unit) for start, (size, unit, _) in zip(starts, rows, strict=False)], starts[-1]
