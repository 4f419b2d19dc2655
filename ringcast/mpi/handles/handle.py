"""Handles: the objects that a program has for the objects of MPI.

A handle and its copies, as `Comm(comm)` makes them, stand for the same object, which is their `_state`; a null handle
has None. Freeing an object makes only that handle null through which it was freed.
"""

from __future__ import annotations

from itertools import count
from typing import Any, Self

from ringcast._util.safe_text import safe_text
from ringcast.mpi.base.exceptions import ERR_ARG, Exception
from ringcast.mpi.handles.status import Status

_NAMES: dict[int, str] = {}  # of predefined handles, by identity
_PREDEFINED: dict[str, Any] = {}
_NUMBERS: dict[int, tuple[int, Any]] = {}  # of states, by identity, with the state, which it keeps until it is freed
_STATES: dict[int, Any] = {}  # by number
_NEXT = count(1)


class Handle:
    """A handle of one kind; a class that has this as a base is a kind, its subclasses are of the same kind."""

    _kind: tuple[type[Handle]]  # for isinstance; a tuple, as tools that look through a class follow the classes in it
    _state: Any = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if Handle in cls.__bases__:
            cls._kind = (cls,)

    def __new__(cls, handle: Any = None) -> Self:
        """Return a null handle, or another one of the same object."""
        if handle is not None and not isinstance(handle, cls._kind):
            raise TypeError(f"expected {cls._kind[0].__name__} or None, got {type(handle).__name__}")
        self = super().__new__(cls)
        if handle is not None:
            self._state = handle._state
        return self

    @classmethod
    def _of_state(cls, state: Any) -> Self:
        """Return a handle of an object."""
        self = cls.__new__(cls)
        self._state = state
        return self

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, self._kind):
            return NotImplemented
        return self._state is other._state

    __hash__ = None  # type: ignore[assignment]  # a handle may become null

    def __bool__(self) -> bool:
        return self._state is not None

    def __reduce__(self) -> Any:
        if id(self) in _NAMES:
            return predefined_of, (_NAMES[id(self)],)
        for handle in _PREDEFINED.values():
            if isinstance(handle, self._kind) and handle._state is self._state:
                return type(self), (handle,)
        raise ValueError(f"cannot pickle a {type(self).__name__} that the program has made")

    def free(self) -> None:
        """Free the object, if the handle is not null, and not predefined."""
        if not self or id(self) in _NAMES:
            return
        if is_predefined(self):
            self._state = None
        else:
            self.Free()  # type: ignore[attr-defined]

    @property
    def handle(self) -> int:
        """The number of the object: 0 for null."""
        return number_of(self._state)

    def toint(self) -> int:
        """Return the number of the object: 0 for null."""
        return number_of(self._state)

    py2f = toint

    @classmethod
    def fromint(cls, arg: int) -> Self:
        """Return a handle of the object that has this number."""
        return cls._of_state(numbered(arg))

    fromhandle = f2py = fromint


def predefined(handle: Any, name: str) -> Any:
    """Return a handle that programs know by name, and pickle."""
    _NAMES[id(handle)] = name
    _PREDEFINED[name] = handle
    return handle


def is_predefined(handle: Handle) -> bool:
    """Return whether an object, which may be null, is one that programs know by name."""
    return any(isinstance(one, handle._kind) and one._state is handle._state for one in _PREDEFINED.values())


def predefined_of(name: str) -> Any:
    """Return the handle of this name."""
    return _PREDEFINED[name]


def number_of(state: Any) -> int:
    """Return the number of an object, which has one from the first question until it is freed."""
    if state is None:
        return 0
    if id(state) not in _NUMBERS:
        number = next(_NEXT)
        _NUMBERS[id(state)], _STATES[number] = (number, state), state
    return _NUMBERS[id(state)][0]


def numbered(number: int) -> Any:
    """Return the object of a number.

    Raises:
        Exception: there is none.
    """
    if number == 0:
        return None
    if number not in _STATES:
        raise Exception(ERR_ARG, f"expected the number of a handle, got {number}")
    return _STATES[number]


def forget(state: Any) -> None:
    """Take back the number of an object that is freed."""
    number, _ = _NUMBERS.pop(id(state), (0, None))
    _STATES.pop(number, None)


def _sizeof(arg: Any) -> int:
    """Return the bytes of the number of a handle, for mpi4py's `_sizeof`; there is no C API."""
    _check_handle(arg)
    return 8


def _addressof(arg: Any) -> int:
    """Return the address of the Python object, for mpi4py's `_addressof`; there is no C API."""
    _check_handle(arg)
    return id(arg)


def _handleof(arg: Any) -> int:
    """Return the number of a handle, or the address of a status."""
    _check_handle(arg)
    return number_of(arg._state) if isinstance(arg, Handle) else id(arg)


def _check_handle(arg: Any) -> None:
    kind = arg if isinstance(arg, type) else type(arg)
    if not issubclass(kind, Handle | Status):
        raise TypeError(f"expected a handle or a status, got {safe_text(arg)}")
