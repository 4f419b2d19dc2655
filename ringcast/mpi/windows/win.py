"""Windows: memory that the ranks of a host share. Programs read and write it; there is no one-sided communication."""

from __future__ import annotations

import sys
import threading
import time
from operator import index
from typing import Any, NoReturn, Self, SupportsIndex

from ringcast.collectives import recovery, split
from ringcast.collectives.stage import NO_DATA
from ringcast.collectives.stage import Group as CoreGroup
from ringcast.communicator import Communicator
from ringcast.engine.execute import Steps
from ringcast.errors import CollectiveTimeout, Where
from ringcast.mpi.base.constants import (
    LOCK_EXCLUSIVE,
    LOCK_SHARED,
    MAX_OBJECT_NAME,
    PROC_NULL,
    WIN_BASE,
    WIN_CREATE_FLAVOR,
    WIN_DISP_UNIT,
    WIN_FLAVOR_SHARED,
    WIN_MODEL,
    WIN_SIZE,
    WIN_UNIFIED,
)
from ringcast.mpi.base.contexts import Shared
from ringcast.mpi.base.error_classes import (
    ERR_COMM,
    ERR_DISP,
    ERR_LOCKTYPE,
    ERR_RANK,
    ERR_RMA_SYNC,
    ERR_SIZE,
    ERR_WIN,
)
from ringcast.mpi.base.exceptions import Exception, translated
from ringcast.mpi.base.failing import fail
from ringcast.mpi.base.threads import let_threads_call
from ringcast.mpi.communicators.comm import COMM_SELF, Intracomm
from ringcast.mpi.communicators.group import Group
from ringcast.mpi.data.memory import buffer
from ringcast.mpi.datatypes.buffers import message
from ringcast.mpi.handles.attributes import Attributes
from ringcast.mpi.handles.errhandlers import ErrorHandling
from ringcast.mpi.handles.handle import Handle, forget, predefined
from ringcast.mpi.handles.info import INFO_NULL, Info, hints
from ringcast.mpi.requests.calls import run
from ringcast.mpi.unsupported import WINDOWS, Unsupported, without
from ringcast.mpi.windows.allocation import Piece, Window, allocated
from ringcast.wire.call import Site, site_of

__all__ = ["WIN_NULL", "Win"]

_SHORT, _LONG = 5e-6, 5e-4  # seconds between two looks whether a lock is free: the first, and the longest
_ORDER = threading.Lock()


@without(
    WINDOWS,
    "Create Allocate Create_dynamic Attach Detach Rput Rget Accumulate Raccumulate Get_accumulate Rget_accumulate "
    "Fetch_and_op Compare_and_swap Start Complete Post Wait Test",
)
class Win(ErrorHandling, Attributes, Handle):
    """A window: memory of each rank of a host, which all of them see."""

    _state: Window | None

    @classmethod
    def Allocate_shared(cls, size: int, disp_unit: int = 1, info: Info = INFO_NULL, comm: Any = COMM_SELF) -> Self:
        """Return a window with `size` bytes of this rank, which may be 0; all ranks are on one host, and call it.

        The memory is zero at first. The ranks' parts follow each other, unless `info` has alloc_shared_noncontig.
        """
        if not isinstance(comm, Intracomm):
            raise TypeError(f"expected an Intracomm, got {type(comm).__name__}")
        if not comm:
            raise Exception(ERR_COMM, "expected a communicator, got COMM_NULL")
        if index(size) < 0:
            fail(comm, Exception(ERR_SIZE, f"expected a number of bytes from 0 on, got {size}"))
        if index(disp_unit) <= 0:
            fail(comm, Exception(ERR_DISP, f"expected a number of bytes from 1 on, got {disp_unit}"))
        steps = allocated(comm, index(size), index(disp_unit), hints(info))
        return cls._of_state(run(comm, "Allocate_shared", steps, site_of(sys._getframe(1))))

    def Free(self) -> None:
        """Free the window, when all ranks call this; memory that the program still refers to stays."""
        window, site = self._window, site_of(sys._getframe(1))
        if window.locked != set():
            fail(self, Exception(ERR_RMA_SYNC, "a window is freed before it is unlocked"))
        self._delete_attributes()
        try:
            self._meet("Free", site)
        finally:
            window.lock_file.close()
            window.shared.retire()
            forget(window)
            self._state = None

    # Memory

    def Shared_query(self, rank: int) -> tuple[buffer, int]:
        """Return the memory of a rank and its unit; for PROC_NULL of the first rank that has some."""
        window = self._window
        if rank == PROC_NULL:
            rank = next((place for place, piece in enumerate(window.pieces) if piece.nbytes), 0)
        self._check_rank(rank)
        return window.memory(rank), window.pieces[rank].unit

    def tomemory(self) -> buffer:
        """Return the memory of this rank."""
        return self._window.memory(self._group.rank)

    def _fixed_attributes(self) -> dict[int, Any]:
        base, size, unit = self.attrs
        shared = {WIN_CREATE_FLAVOR: WIN_FLAVOR_SHARED, WIN_MODEL: WIN_UNIFIED}
        return {WIN_BASE: base, WIN_SIZE: size, WIN_DISP_UNIT: unit, **shared}

    @property
    def attrs(self) -> tuple[int, int, int]:
        """Address, size and unit of this rank's memory."""
        _, nbytes, unit = self._piece
        return self._window.address(self._group.rank), nbytes, unit

    @property
    def flavor(self) -> int:
        """The way in which the window was made."""
        return int(self.Get_attr(WIN_CREATE_FLAVOR))

    @property
    def model(self) -> int:
        """WIN_UNIFIED: all ranks see the same memory."""
        return int(self.Get_attr(WIN_MODEL))

    # Order

    def Fence(self, assertion: int = 0) -> None:
        """Wait until all ranks call it; all of them see the writes before it."""
        self._meet("Fence", site_of(sys._getframe(1)))

    def Sync(self) -> None:
        """Order this rank's accesses to the memory before the call and after it."""
        assert self._window
        with _ORDER:  # a lock orders accesses to memory
            pass

    def Lock(self, rank: int, lock_type: int = LOCK_EXCLUSIVE, assertion: int = 0) -> None:
        """Lock the memory of a rank: LOCK_EXCLUSIVE waits until no other rank has a lock of it."""
        locked, site = self._locked("locks a rank"), site_of(sys._getframe(1))
        if lock_type not in (LOCK_EXCLUSIVE, LOCK_SHARED):
            fail(self, Exception(ERR_LOCKTYPE, "expected LOCK_EXCLUSIVE or LOCK_SHARED"))
        if rank == PROC_NULL:
            return
        self._check_rank(rank)
        if rank in locked:
            fail(self, Exception(ERR_RMA_SYNC, f"rank {rank} of the window is locked by this rank already"))
        self._wait("Lock", rank, 1, lock_type == LOCK_EXCLUSIVE, site)
        locked.add(rank)

    def Unlock(self, rank: int) -> None:
        """Give the lock of a rank's memory back."""
        locked = self._locked("unlocks a rank")
        if rank == PROC_NULL:
            return
        if rank not in locked:
            fail(self, Exception(ERR_RMA_SYNC, f"rank {rank} of the window is not locked by this rank"))
        self._window.lock_file.unlock(rank, 1)
        locked.remove(rank)

    def Lock_all(self, assertion: int = 0) -> None:
        """Lock the memory of all ranks, shared with others."""
        if self._locked("locks all ranks"):
            fail(self, Exception(ERR_RMA_SYNC, "a rank of the window is locked by this rank already"))
        self._wait("Lock_all", 0, self._group.size, False, site_of(sys._getframe(1)))
        self._window.locked = None

    def Unlock_all(self) -> None:
        """Give the lock of `Lock_all` back."""
        if self._window.locked is not None:
            fail(self, Exception(ERR_RMA_SYNC, "the window is not locked by Lock_all"))
        self._window.lock_file.unlock(0, self._group.size)
        self._window.locked = set()

    def Flush(self, rank: int) -> None:
        """Do the same as `Sync`: there is no communication that could be under way."""
        self._check_rank(rank)
        self.Sync()

    def Flush_all(self) -> None:
        """Do the same as `Sync`."""
        self.Sync()

    Flush_local, Flush_local_all = Flush, Flush_all

    def _locked(self, action: str) -> set[int]:
        """Return the ranks that are locked, unless all are."""
        locked = self._window.locked
        if locked is None:
            fail(self, Exception(ERR_RMA_SYNC, f"a program {action} of a window that Lock_all has locked"))
        return locked

    def _wait(self, operation: str, first: int, count: int, exclusive: bool, site: Site) -> None:
        """Lock the bytes of some ranks; until that is possible, look again and again.

        The kernel could wait as well, but no failure of a rank would be noticed then, and no timeout.
        """
        files, group, timeout = self._window.lock_file, self._group, self._caller.timeout
        let_threads_call(self._caller)
        pause, start = _SHORT, time.monotonic()
        while not files.locks(first, count, exclusive=exclusive):
            if recovery.revoked(group) or group.endpoint.protocol.aborted is not None:
                run(self, operation, split.meet(group, operation, NO_DATA), site)  # which raises
            if timeout is not None and time.monotonic() - start > timeout:
                error = CollectiveTimeout(group.endpoint.rank, (), timeout, Where(operation))
                fail(self, translated(error), error)
            time.sleep(pause)
            pause = min(2 * pause, _LONG)

    # Properties

    def Get_group(self) -> Group:
        """Return the group of the ranks."""
        group = self._group
        return Group._of(group.members or range(group.size), group.endpoint.rank)

    group = property(Get_group)

    @property
    def group_size(self) -> int:
        """Number of ranks."""
        return self._group.size

    @property
    def group_rank(self) -> int:
        """Rank of the caller."""
        return self._group.rank

    def Get_name(self) -> str:
        """Return the name."""
        return "MPI_WIN_NULL" if self._state is None else self._state.name

    def Set_name(self, name: str) -> None:
        """Set the name."""
        self._window.name = name[:MAX_OBJECT_NAME]

    name = property(Get_name, Set_name)

    def Get_info(self) -> Info:
        """Return the hints."""
        return Info.Create(self._window.info)

    def Set_info(self, info: Info) -> None:
        """Set hints, which change nothing."""
        self._window.info.update(hints(info))

    info = property(Get_info, Set_info)

    # Refused calls

    def Put(self, origin: Any, target_rank: int, target: Any = None) -> NoReturn:
        """Refuse, after the arguments are checked."""
        message(origin, writes=False)
        _check_target(target)
        raise Unsupported(WINDOWS)

    def Get(self, origin: Any, target_rank: int, target: Any = None) -> NoReturn:
        """Refuse, after the arguments are checked."""
        message(origin, writes=True)
        _check_target(target)
        raise Unsupported(WINDOWS)

    # For calls of this layer

    @property
    def _window(self) -> Window:
        if self._state is None:
            raise Exception(ERR_WIN, "expected a window, got WIN_NULL")
        return self._state

    @property
    def _shared(self) -> Shared:
        return self._window.shared

    @property
    def _caller(self) -> Communicator:
        return self._shared.caller

    @property
    def _group(self) -> CoreGroup:
        return self._shared.group

    @property
    def _piece(self) -> Piece:
        return self._window.pieces[self._group.rank]

    @property
    def _attributes(self) -> dict[int, Any]:
        return self._window.attributes

    def _check_rank(self, rank: int) -> None:
        size = self._group.size
        if not 0 <= index(rank) < size:
            fail(self, Exception(ERR_RANK, f"expected a rank in 0..{size - 1}, got {rank}"))

    def _meet(self, operation: str, site: Site) -> None:
        run(self, operation, self._met(operation), site)

    def _met(self, operation: str) -> Steps[None]:
        yield from split.meet(self._group, operation, NO_DATA)


WIN_NULL = predefined(Win(), "WIN_NULL")


def _check_target(target: Any) -> None:
    if isinstance(target, (list, tuple)) and len(target) <= 3:
        return
    if target is not None and not isinstance(target, SupportsIndex):
        raise ValueError("target: expecting a displacement, or a list or tuple of up to 3 items")
