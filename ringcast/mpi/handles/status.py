"""The status of a received message, or of a completed request."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Any, Self

from ringcast._util.safe_text import safe_text
from ringcast.mpi.base.constants import ANY_SOURCE, ANY_TAG, UNDEFINED
from ringcast.mpi.base.exceptions import SUCCESS
from ringcast.mpi.data.definition import Definition, numpy_dtype
from ringcast.mpi.data.external32 import items_of

__all__ = ["Status"]

_EMPTY = array("q", [0, 0, ANY_SOURCE, ANY_TAG, SUCCESS])
_COUNT, _CANCELLED, _SOURCE, _TAG, _ERROR = range(5)  # the order of F_SOURCE, F_TAG and F_ERROR


class Status:
    """Source, tag and size of a message, and the error class of its request."""

    __slots__ = ("__weakref__", "_fields")

    def __init__(self, status: Status | None = None) -> None:
        check_status(status)
        self._fields: array[int] = array("q", _EMPTY if status is None else status._fields)

    def _fill(self, source: int, tag: int, nbytes: int, error: int = SUCCESS) -> None:
        self._fields[:] = array("q", [nbytes, 0, source, tag, error])

    def _copy(self, other: Status | None) -> None:
        """Take the values of another status; without one, of a request that has none."""
        self._fields[:] = _EMPTY if other is None else other._fields

    def Get_source(self) -> int:
        """Return the rank that has sent the message."""
        return self._fields[_SOURCE]

    def Set_source(self, source: int) -> None:
        """Set the rank."""
        self._fields[_SOURCE] = source

    source = property(Get_source, Set_source)

    def Get_tag(self) -> int:
        """Return the tag of the message."""
        return self._fields[_TAG]

    def Set_tag(self, tag: int) -> None:
        """Set the tag."""
        self._fields[_TAG] = tag

    tag = property(Get_tag, Set_tag)

    def Get_error(self) -> int:
        """Return the error code."""
        return self._fields[_ERROR]

    def Set_error(self, error: int) -> None:
        """Set the error code."""
        self._fields[_ERROR] = error

    error = property(Get_error, Set_error)

    def Get_count(self, datatype: Any = None) -> int:
        """Return the size in items of a datatype, bytes by default; UNDEFINED if it is no whole number."""
        size = 1 if datatype is None else datatype.Get_size()
        nbytes = self._fields[_COUNT]
        if not size:
            return 0 if not nbytes else UNDEFINED
        return UNDEFINED if nbytes % size else nbytes // size

    def Get_elements(self, datatype: Any) -> int:
        """Return the size in basic items of a datatype; UNDEFINED if it is no whole number."""
        return _basic_items(datatype._known(), self._fields[_COUNT])

    def Set_elements(self, datatype: Any, count: int) -> None:
        """Set the size, in items of a datatype."""
        self._fields[_COUNT] = count * datatype.Get_size()

    def _set_count(self, count: int) -> None:
        self._fields[_COUNT] = count

    count = property(Get_count, _set_count)

    def Is_cancelled(self) -> bool:
        """Return whether the request was cancelled."""
        return bool(self._fields[_CANCELLED])

    def Set_cancelled(self, flag: bool) -> None:
        """Set whether it was."""
        self._fields[_CANCELLED] = bool(flag)

    cancelled = property(Is_cancelled, Set_cancelled)

    def tomemory(self) -> memoryview:
        """Return the memory of the fields."""
        return memoryview(self._fields)

    def py2f(self) -> list[int]:
        """Return the fields as a list."""
        return list(self._fields)

    @classmethod
    def f2py(cls, arg: Iterable[int]) -> Self:
        """Return a status with these fields."""
        status = cls()
        status._fields[:] = array("q", arg)
        return status

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).f2py, (self.py2f(),)

    def __eq__(self, other: object) -> bool:
        return self._fields == other._fields if isinstance(other, Status) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # it changes


def check_status(status: Any) -> None:
    """Raise TypeError unless this is a status, or None."""
    if status is not None and not isinstance(status, Status):
        raise TypeError(f"expected a Status or None, got {safe_text(status)}")


def _basic_items(definition: Definition, nbytes: int) -> int:
    """Return the number of basic items of a datatype in `nbytes`; UNDEFINED if it is no whole number."""
    if not definition.layout.size:
        return 0
    items = [(numpy_dtype(code).itemsize, count) for code, count in items_of(definition)]
    whole, rest = divmod(nbytes, definition.layout.size)
    found = whole * sum(count for _, count in items)
    for size, count in items:
        some = min(count, rest // size)
        found, rest = found + some, rest - some * size
        if some < count:
            break
    return UNDEFINED if rest else found
