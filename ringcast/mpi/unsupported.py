"""The parts of MPI that this layer lacks: their names exist; calls that begin their use raise NotImplementedError."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from ringcast.mpi.base.error_classes import ERR_UNSUPPORTED_OPERATION
from ringcast.mpi.base.exceptions import Exception
from ringcast.mpi.handles.handle import Handle, predefined

__all__ = [
    "FILE_NULL",
    "SESSION_NULL",
    "Close_port",
    "File",
    "Lookup_name",
    "Open_port",
    "Publish_name",
    "Register_datarep",
    "Session",
    "Unpublish_name",
]

WINDOWS = "windows of one-sided communication (RMA)"
FILES = "files (MPI-IO)"
SESSIONS = "sessions"
PROCESSES = "dynamic processes"
STARTING = f"{PROCESSES}; with MPIPoolExecutor, start the program with -m mpi4py.futures, or use MPICommExecutor"
PARTITIONS = "partitioned messages"
FLUSHING = "Iflush_buffer; Flush_buffer waits"

Kind = TypeVar("Kind")


class Unsupported(Exception, NotImplementedError):
    """A call that this layer lacks; programs catch it as either of its two bases."""

    def __init__(self, what: str, name: str = "") -> None:
        call = f"{name}: " if name else ""
        super().__init__(ERR_UNSUPPORTED_OPERATION, f"{call}ringcast has no MPI {what}")

    def __reduce__(self) -> Any:
        return _again, (str(self),)


Unsupported.__name__ = Unsupported.__qualname__ = NotImplementedError.__name__  # the one that users look for
Unsupported.__module__ = Exception.__module__


def _again(text: str) -> Unsupported:
    error = Unsupported.__new__(Unsupported)
    Exception.__init__(error, ERR_UNSUPPORTED_OPERATION, text)
    return error


def lacking(what: str, name: str = "") -> Any:
    """Return a method that raises."""
    return staticmethod(_raising(what, name))


def _raising(what: str, name: str = "") -> Callable[..., NoReturn]:
    def method(*_: Any, **__: Any) -> NoReturn:
        """Raise NotImplementedError."""
        raise Unsupported(what, name)

    return method


def without(what: str, methods: str, properties: str = "") -> Callable[[type[Kind]], type[Kind]]:
    """Give a class methods and properties that raise."""

    def add(cls: type[Kind]) -> type[Kind]:
        for name in methods.split():
            setattr(cls, name, lacking(what, f"MPI.{cls.__name__}.{name}"))
        for name in properties.split():
            setattr(cls, name, property(_raising(what, f"MPI.{cls.__name__}.{name}")))
        return cls

    return add


_OF_ERRORS = "Create_errhandler Get_errhandler Set_errhandler Call_errhandler "


@without(
    FILES,
    _OF_ERRORS
    + "Open Close Delete Get_amode Get_group Get_info Set_info Get_size Set_size Preallocate Get_view Set_view "
    "Get_atomicity Set_atomicity Sync Get_type_extent Get_byte_offset Seek Get_position Seek_shared "
    "Get_position_shared Read Read_all Read_all_begin Read_all_end Read_at Read_at_all Read_at_all_begin "
    "Read_at_all_end Read_shared Read_ordered Read_ordered_begin Read_ordered_end Iread Iread_all Iread_at "
    "Iread_at_all Iread_shared Write Write_all Write_all_begin Write_all_end Write_at Write_at_all "
    "Write_at_all_begin Write_at_all_end Write_shared Write_ordered Write_ordered_begin Write_ordered_end "
    "Iwrite Iwrite_all Iwrite_at Iwrite_at_all Iwrite_shared",
    "amode atomicity group group_rank group_size info size",
)
class File(Handle):
    """A file that ranks read and write together; there are none."""


@without(
    SESSIONS,
    _OF_ERRORS + "Init Finalize Create_group Get_info Get_num_psets Get_nth_pset Get_pset_info "
    "Attach_buffer Detach_buffer Flush_buffer Iflush_buffer",
)
class Session(Handle):
    """A session; there are none."""


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
