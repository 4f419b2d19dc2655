"""Errors of MPI by error class, and the error classes of ringcast's own errors."""

from __future__ import annotations

from typing import Any

from ringcast.errors import (
    ArgumentError,
    CollectiveMismatch,
    CollectiveTimeout,
    ObjectsRefused,
    PeerFailed,
    Revoked,
    RingcastError,
    SharedMemoryError,
    UsageError,
)
from ringcast.mpi.base.error_classes import *
from ringcast.wire.error_text import Translation

_TEXTS = {
    SUCCESS: "no error",
    ERR_BUFFER: "wrong buffer",
    ERR_COUNT: "wrong count",
    ERR_TYPE: "wrong datatype",
    ERR_TAG: "wrong tag",
    ERR_COMM: "wrong communicator",
    ERR_RANK: "wrong rank",
    ERR_ROOT: "wrong root",
    ERR_GROUP: "wrong group",
    ERR_OP: "wrong operator",
    ERR_TOPOLOGY: "wrong topology",
    ERR_DIMS: "wrong dimensions",
    ERR_ARG: "wrong argument",
    ERR_UNKNOWN: "unknown error",
    ERR_TRUNCATE: "message truncated",
    ERR_OTHER: "other error",
    ERR_INTERN: "internal error",
    ERR_IN_STATUS: "the error is in the status",
    ERR_PENDING: "request not done",
    ERR_REQUEST: "wrong request",
    ERR_ACCESS: "no permission for the file",
    ERR_AMODE: "wrong access mode",
    ERR_BAD_FILE: "wrong file name",
    ERR_CONVERSION: "error in a data conversion",
    ERR_DUP_DATAREP: "data representation exists",
    ERR_FILE_EXISTS: "file exists",
    ERR_FILE_IN_USE: "file in use",
    ERR_FILE: "wrong file",
    ERR_INFO: "wrong info",
    ERR_INFO_KEY: "wrong key of an info",
    ERR_INFO_VALUE: "wrong value of an info",
    ERR_INFO_NOKEY: "no such key in the info",
    ERR_IO: "error of input or output",
    ERR_NAME: "wrong service name",
    ERR_NO_MEM: "no memory",
    ERR_NOT_SAME: "arguments differ between ranks",
    ERR_NO_SPACE: "no space",
    ERR_NO_SUCH_FILE: "no such file",
    ERR_PORT: "wrong port",
    ERR_QUOTA: "quota exceeded",
    ERR_READ_ONLY: "read-only file",
    ERR_SERVICE: "no such service",
    ERR_SPAWN: "cannot start processes",
    ERR_UNSUPPORTED_DATAREP: "unsupported data representation",
    ERR_UNSUPPORTED_OPERATION: "unsupported operation",
    ERR_WIN: "wrong window",
    ERR_BASE: "wrong base address",
    ERR_LOCKTYPE: "wrong type of lock",
    ERR_KEYVAL: "wrong key of an attribute",
    ERR_RMA_CONFLICT: "conflicting accesses to a window",
    ERR_RMA_SYNC: "wrong synchronization of a window",
    ERR_SIZE: "wrong size",
    ERR_DISP: "wrong displacement",
    ERR_ASSERT: "wrong assertion",
    ERR_RMA_RANGE: "memory outside the window",
    ERR_RMA_ATTACH: "memory cannot be attached",
    ERR_RMA_SHARED: "memory cannot be shared",
    ERR_RMA_FLAVOR: "wrong flavor of a window",
    ERR_SESSION: "wrong session",
    ERR_PROC_ABORTED: "process was ended",
    ERR_VALUE_TOO_LARGE: "value too large",
    ERR_ERRHANDLER: "wrong error handler",
    ERR_ABI: "wrong binary interface",
    ERR_PROC_FAILED: "process failed",
    ERR_PROC_FAILED_PENDING: "request waits for a failed process",
    ERR_REVOKED: "communicator was revoked",
}
_OF_ARGUMENT = {
    "root": ERR_ROOT,
    "dest": ERR_RANK,
    "source": ERR_RANK,
    "tag": ERR_TAG,
    "op": ERR_OP,
    "counts": ERR_COUNT,
}
_OF_ERROR: dict[type[RingcastError], int] = {
    PeerFailed: ERR_PROC_FAILED,
    Revoked: ERR_REVOKED,
    CollectiveTimeout: ERR_OTHER,
    ObjectsRefused: ERR_UNSUPPORTED_OPERATION,
    SharedMemoryError: ERR_NO_MEM,
    UsageError: ERR_OTHER,
}


class Exception(Translation, RuntimeError):
    """An error of MPI: an error class, or a code that a program has added, and a text that describes the error."""

    __module__ = "ringcast.MPI"  # tracebacks name it as programs do

    def __init__(self, ierr: int = SUCCESS, text: str = "") -> None:
        if ierr < SUCCESS:
            ierr = ERR_UNKNOWN
        super().__init__(ierr, text)
        self.ob_mpi, self._text = int(ierr), text

    def Get_error_code(self) -> int:
        """Return the code of this error, which is its class, or belongs to it."""
        return self.ob_mpi

    def Get_error_class(self) -> int:
        """Return the class of this error."""
        return Get_error_class(self.ob_mpi)

    def Get_error_string(self) -> str:
        """Return the description of the error; without one, the text of the code."""
        return self._text or Get_error_string(self.ob_mpi)

    error_code = property(Get_error_code)
    error_class = property(Get_error_class)
    error_string = property(Get_error_string)

    def __str__(self) -> str:
        return self.Get_error_string()

    def __repr__(self) -> str:
        return f"MPI.Exception({self.ob_mpi})"

    def __int__(self) -> int:
        return self.ob_mpi

    def __bool__(self) -> bool:
        return self.ob_mpi != SUCCESS

    def __hash__(self) -> int:
        return hash(self.ob_mpi)

    def __eq__(self, other: object) -> Any:
        return self.ob_mpi == int(other) if isinstance(other, int | Exception) else NotImplemented

    def __lt__(self, other: Any) -> Any:
        return self.ob_mpi < int(other) if isinstance(other, int | Exception) else NotImplemented

    def __le__(self, other: Any) -> Any:
        return self.ob_mpi <= int(other) if isinstance(other, int | Exception) else NotImplemented

    def __gt__(self, other: Any) -> Any:
        return self.ob_mpi > int(other) if isinstance(other, int | Exception) else NotImplemented

    def __ge__(self, other: Any) -> Any:
        return self.ob_mpi >= int(other) if isinstance(other, int | Exception) else NotImplemented


def translated(error: RingcastError) -> Exception:
    """Return the exception of MPI for one of ringcast's errors, with its text."""
    if isinstance(error, ArgumentError):
        return Exception(_OF_ARGUMENT.get(error.argument, ERR_ARG), str(error))
    if isinstance(error, CollectiveMismatch):
        lengths = not error.differs or error.differs.startswith("shape ")
        return Exception(ERR_TRUNCATE if lengths else ERR_NOT_SAME, str(error))
    code = next((code for kind, code in _OF_ERROR.items() if isinstance(error, kind)), ERR_OTHER)
    return Exception(code, str(error))


_added: dict[int, tuple[int, str]] = {}  # classes and codes of programs: the class, and the text
_last = ERR_LASTCODE


def Get_error_class(errorcode: int) -> int:
    """Return the class of a code."""
    if errorcode in _added:
        return _added[errorcode][0]
    return errorcode if SUCCESS <= errorcode <= ERR_LASTCODE else ERR_UNKNOWN


def Get_error_string(errorcode: int) -> str:
    """Return the text of a code."""
    if errorcode in _added:
        return _added[errorcode][1]
    return _TEXTS.get(errorcode, _TEXTS[ERR_UNKNOWN])


def Add_error_class() -> int:
    """Return a new class."""
    return _add(None)


def Add_error_code(errorclass: int) -> int:
    """Return a new code of a class."""
    if errorclass not in _TEXTS and not _is_added_class(errorclass):
        raise Exception(ERR_ARG, f"expected an error class, got {errorclass}")
    return _add(errorclass)


def Add_error_string(errorcode: int, string: str) -> None:
    """Give a code that was added a text, or another one."""
    _added[errorcode] = _known(errorcode)[0], string


def Remove_error_class(errorclass: int) -> None:
    """Remove a class that was added, and has neither codes nor a text."""
    of_it = [code for code, (one, _) in _added.items() if one == errorclass and code != errorclass]
    if not _is_added_class(errorclass) or of_it:
        raise Exception(ERR_ARG, f"expected an added error class without codes, got {errorclass}")
    _remove(errorclass)


def Remove_error_code(errorcode: int) -> None:
    """Remove a code that was added, and has no text."""
    if _is_added_class(errorcode):
        raise Exception(ERR_ARG, f"expected an error code, got the class {errorcode}")
    _remove(errorcode)


def Remove_error_string(errorcode: int) -> None:
    """Take the text of a code that was added away."""
    _added[errorcode] = _known(errorcode)[0], ""


def last_used_code() -> int:
    """Return the largest class or code in use."""
    return _last


def _add(errorclass: int | None) -> int:
    global _last
    _last += 1
    _added[_last] = (_last if errorclass is None else errorclass), ""
    return _last


def _remove(errorcode: int) -> None:
    if _known(errorcode)[1]:
        raise Exception(ERR_ARG, f"expected an error code without a text, got {errorcode}")
    del _added[errorcode]


def _known(errorcode: int) -> tuple[int, str]:
    if errorcode not in _added:
        raise Exception(ERR_ARG, f"expected an error code that the program has added, got {errorcode}")
    return _added[errorcode]


def _is_added_class(errorclass: int) -> bool:
    return errorclass in _added and _added[errorclass][0] == errorclass
