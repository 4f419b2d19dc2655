"""Attributes: values that a program keeps with a communicator or a datatype, by keys that it makes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import count
from typing import Any, NamedTuple

from ringcast._util.safe_text import class_name, safe_text
from ringcast.mpi.base.constants import KEYVAL_INVALID
from ringcast.mpi.base.error_classes import ERR_KEYVAL, ERR_OTHER
from ringcast.mpi.base.exceptions import Exception
from ringcast.mpi.handles.handle import Handle
from ringcast.wire.error_text import text_of

_NUMBERS = count(KEYVAL_INVALID + 1)


class _Key(NamedTuple):
    kind: tuple[type[Handle]]
    copy: Any  # a function, True or False
    delete: Any
    nopython: bool


_keys: dict[int, _Key] = {}


class Attributes(Handle):
    """Calls of communicators and datatypes about their attributes."""

    @property
    def _attributes(self) -> dict[int, Any]:
        """The attributes of the object, by key."""
        raise NotImplementedError

    @classmethod
    def Create_keyval(cls, copy_fn: Any = None, delete_fn: Any = None, nopython: bool = False) -> int:
        """Return a new key.

        `copy_fn` decides on the value in a duplicate: True copies it, False leaves it out; a function returns it, or
        NotImplemented to leave it out. `delete_fn` is called when a value is deleted.
        """
        keyval = next(_NUMBERS)
        _keys[keyval] = _Key(cls._kind, copy_fn, delete_fn, nopython)
        return keyval

    @classmethod
    def Free_keyval(cls, keyval: int) -> int:
        """Free a key, and return KEYVAL_INVALID; values with it stay."""
        _known(cls._kind, keyval)
        return KEYVAL_INVALID

    def Get_attr(self, keyval: int) -> Any:
        """Return the value of a key; None if there is none."""
        attributes, fixed = self._attributes, self._fixed_attributes()
        if keyval in fixed:
            return fixed[keyval]
        _known(self._kind, keyval)
        return attributes.get(keyval)

    def Set_attr(self, keyval: int, attrval: Any) -> None:
        """Set the value of a key; one that there was is deleted."""
        key, attributes = _known(self._kind, keyval), self._attributes
        if keyval in attributes:
            self.Delete_attr(keyval)
        attributes[keyval] = int(attrval) if key.nopython else attrval

    def Delete_attr(self, keyval: int) -> None:
        """Delete the value of a key."""
        key, attributes = _known(self._kind, keyval), self._attributes
        if keyval not in attributes:
            return
        try:
            if key.delete:
                _called(key.delete, self, keyval, attributes[keyval])
        finally:
            attributes.pop(keyval, None)

    def _fixed_attributes(self) -> dict[int, Any]:
        """Return the predefined attributes, by key."""
        return {}

    def _copied_attributes(self) -> dict[int, Any]:
        """Return the attributes of a duplicate."""
        copied = {}
        for keyval, value in [*self._attributes.items()]:
            copy = _keys[keyval].copy
            new = _called(copy, self, keyval, value) if callable(copy) else value if copy else NotImplemented
            if new is not NotImplemented:
                copied[keyval] = new
        return copied

    def _delete_attributes(self) -> None:
        """Delete all attributes, as the object is freed; the last one first."""
        for keyval in reversed([*self._attributes]):
            self.Delete_attr(keyval)


def _known(kind: tuple[type[Handle]], keyval: int) -> _Key:
    key = _keys.get(keyval)
    if key is None or key.kind is not kind:
        raise Exception(ERR_KEYVAL, f"expected a key of {kind[0].__name__}.Create_keyval, got {safe_text(keyval)}")
    return key


def _called(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function of the program; an error of it is printed, and the call of MPI fails."""
    try:
        return function(*args)
    except BaseException as error:  # the program's code, called from within MPI as C calls it
        print(text_of(error, whole=True), end="", file=sys.stderr)
        raise Exception(ERR_OTHER, f"a function of an attribute raised {class_name(type(error))}") from error
