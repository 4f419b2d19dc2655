"""What this layer does not have: its names are there, and what would begin its use raises NotImplementedError."""

from __future__ import annotations

from typing import Any, NoReturn, SupportsIndex

from ringcast.mpi.base.error_classes import ERR_UNSUPPORTED_OPERATION
from ringcast.mpi.base.exceptions import Exception
from ringcast.mpi.datatypes.buffers import message
from ringcast.mpi.handles.handle import Handle, predefined

__all__ = [
    "FILE_NULL",
    "SESSION_NULL",
    "WIN_NULL",
    "Close_port",
    "File",
    "Lookup_name",
    "Open_port",
    "Publish_name",
    "Register_datarep",
    "Session",
    "Unpublish_name",
    "Win",
]

WINDOWS = "windows of one-sided communication (RMA)"
FILES = "files (MPI-IO)"
SESSIONS = "sessions"
PROCESSES = "dynamic processes"


class Unsupported(Exception, NotImplementedError):
    """A call of something that this layer does not have; programs catch either of the two."""

    def __init__(self, what: str) -> None:
        super().__init__(ERR_UNSUPPORTED_OPERATION, f"ringcast has no MPI {what}")

    def __reduce__(self) -> Any:
        return _again, (str(self),)


def _again(text: str) -> Unsupported:
    error = Unsupported.__new__(Unsupported)
    Exception.__init__(error, ERR_UNSUPPORTED_OPERATION, text)
    return error


def lacking(what: str) -> Any:
    """Return a method that raises."""

    def method(*_: Any, **__: Any) -> NoReturn:
        """Raise NotImplementedError."""
        raise Unsupported(what)

    return staticmethod(method)


class Win(Handle):
    """A window of one-sided communication; there are none."""

    Create = Allocate = Allocate_shared = Create_dynamic = Create_keyval = Free_keyval = lacking(WINDOWS)
    Create_errhandler = Get_errhandler = Set_errhandler = Call_errhandler = Free = Fence = lacking(WINDOWS)

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

    def Get_name(self) -> str:
        """Return the name of the null window."""
        return "MPI_WIN_NULL"

    name = property(Get_name)


def _check_target(target: Any) -> None:
    if isinstance(target, (list, tuple)) and len(target) <= 3:
        return
    if target is not None and not isinstance(target, SupportsIndex):
        raise ValueError("target: expecting a displacement, or a list or tuple of up to 3 items")


class File(Handle):
    """A file that ranks read and write together; there are none."""

    Open = Delete = Close = Create_errhandler = Get_errhandler = Set_errhandler = Call_errhandler = lacking(FILES)


class Session(Handle):
    """A session; there are none."""

    Init = Finalize = Create_errhandler = Get_errhandler = Set_errhandler = Call_errhandler = lacking(SESSIONS)


WIN_NULL = predefined(Win(), "WIN_NULL")
FILE_NULL = predefined(File(), "FILE_NULL")
SESSION_NULL = predefined(Session(), "SESSION_NULL")


def Open_port(info: Any = None) -> str:
    """Raise NotImplementedError."""
    raise Unsupported(PROCESSES)


def Close_port(port_name: str) -> None:
    """Raise NotImplementedError."""
    raise Unsupported(PROCESSES)


def Publish_name(service_name: str, port_name: str, info: Any = None) -> None:
    """Raise NotImplementedError."""
    raise Unsupported(PROCESSES)


def Unpublish_name(service_name: str, port_name: str, info: Any = None) -> None:
    """Raise NotImplementedError."""
    raise Unsupported(PROCESSES)


def Lookup_name(service_name: str, info: Any = None) -> str:
    """Raise NotImplementedError."""
    raise Unsupported(PROCESSES)


def Register_datarep(datarep: str, read_fn: Any, write_fn: Any, extent_fn: Any) -> None:
    """Raise NotImplementedError."""
    raise Unsupported(FILES)
