"""Beginning and end of MPI in this process, its version and its environment."""

from __future__ import annotations

import atexit
import socket
import threading
import time

from ringcast.bootstrap.world import init_or_alone
from ringcast.communicator import Communicator
from ringcast.communicator.lifetime import group_of
from ringcast.mpi.base.abort import abort
from ringcast.mpi.base.constants import (
    MAX_PROCESSOR_NAME,
    SUBVERSION,
    THREAD_MULTIPLE,
    VERSION,
)
from ringcast.mpi.base.contexts import alone
from ringcast.mpi.base.exceptions import ERR_OTHER, Exception
from ringcast.mpi.communicators.comm import COMM_SELF, COMM_WORLD
from ringcast.mpi.handles.errhandlers import ERRORS_ABORT, ERRORS_ARE_FATAL, ERRORS_RETURN
from ringcast.mpi.handles.info import Info
from ringcast.mpi.rc import chosen
from ringcast.mpi.requests.pending import finish
from ringcast.mpi.thread_errors import end_with_threads
from ringcast.mpi.unsupported import Unsupported
from ringcast.version import __version__

__all__ = [
    "Finalize",
    "Get_abi_fortran_info",
    "Get_abi_info",
    "Get_abi_version",
    "Get_hw_resource_info",
    "Get_library_version",
    "Get_processor_name",
    "Get_version",
    "Init",
    "Init_thread",
    "Is_finalized",
    "Is_initialized",
    "Is_thread_main",
    "Pcontrol",
    "Query_thread",
    "Wtick",
    "Wtime",
    "get_vendor",
]

_HANDLERS = {
    "exception": ERRORS_RETURN,
    "default": ERRORS_ARE_FATAL,
    "fatal": ERRORS_ARE_FATAL,
    "abort": ERRORS_ABORT,
}  # by the value of `mpi4py.rc.errors`

_initialized = _finalized = False


def Init() -> None:
    """Join the job; done at import, unless `mpi4py.rc.initialize` is false."""
    global _initialized
    if _initialized:
        raise Exception(ERR_OTHER, "MPI is initialized already")
    world = init_or_alone()
    endpoint = group_of(world).endpoint
    endpoint.unread_fails = False  # as in MPI's libraries: programs rely on it, such as pools
    COMM_WORLD._shared.caller = world
    COMM_SELF._shared.caller = Communicator(alone(group_of(world)), world.timeout)
    for comm in (COMM_WORLD, COMM_SELF):
        comm.Set_errhandler(_HANDLERS[chosen().errors])
    _initialized = True
    atexit.register(finish)
    end_with_threads(endpoint)


def Init_thread(required: int = THREAD_MULTIPLE) -> int:
    """Join the job; return the level of threads that is supported."""
    Init()
    return Query_thread()


def Finalize() -> None:
    """Leave the job, when all calls of this rank but receives have ended; done at the end of the program."""
    global _finalized
    if _finalized:
        raise Exception(ERR_OTHER, "MPI is finalized already")
    finish()
    COMM_SELF._delete_attributes()
    COMM_WORLD._caller.finalize()
    _finalized = True


def _set_abort_status(status: int) -> None:
    """Have the job end with an exit code when this program ends, as mpi4py's runner does after an error."""
    atexit.register(abort, COMM_WORLD, status)


def Is_initialized() -> bool:
    """Return whether this process has joined the job."""
    return _initialized


def Is_finalized() -> bool:
    """Return whether it has left."""
    return _finalized


def Query_thread() -> int:
    """Return the level of threads that is supported."""
    return THREAD_MULTIPLE


def Is_thread_main() -> bool:
    """Return whether this thread has joined the job."""
    return threading.current_thread() is threading.main_thread()


def Get_version() -> tuple[int, int]:
    """Return the version of the MPI standard."""
    return VERSION, SUBVERSION


def Get_library_version() -> str:
    """Return the name and version of this library."""
    return f"ringcast {__version__}"


def get_vendor() -> tuple[str, tuple[int, int, int]]:
    """Return the name and version of this library, in parts."""
    major, minor, micro = (*map(int, __version__.split(".")[:3]), 0, 0, 0)[:3]
    return "ringcast", (major, minor, micro)


def Get_abi_version() -> tuple[int, int]:
    """Return the version of the binary interface: there is none."""
    return -1, -1


def Get_abi_info() -> Info:
    """Return the sizes of the integers that addresses, counts and offsets have."""
    return Info.Create({f"mpi_{name}_size": "8" for name in ("aint", "count", "offset")})


def Get_abi_fortran_info() -> Info:
    """Return INFO_NULL: there is no binary interface."""
    return Info()


def Get_hw_resource_info() -> Info:
    """Raise NotImplementedError."""
    raise Unsupported("information on hardware")


def Get_processor_name() -> str:
    """Return the name of this host."""
    return socket.gethostname()[:MAX_PROCESSOR_NAME]


def Pcontrol(level: int) -> None:
    """Do nothing: there is no profiler."""


def Wtime() -> float:
    """Return seconds since some time in the past."""
    return time.perf_counter()


def Wtick() -> float:
    """Return the resolution of `Wtime` in seconds."""
    return time.get_clock_info("perf_counter").resolution


def start() -> None:
    """Join the job at import, unless the program wants to do that itself."""
    if chosen().initialize:
        Init()
