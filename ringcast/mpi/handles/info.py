"""Info: texts by key, hints for calls that take them. Nothing in this layer needs hints."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

from ringcast._util.safe_text import safe_text
from ringcast.mpi.base.constants import MAX_INFO_KEY, MAX_INFO_VAL
from ringcast.mpi.base.error_classes import ERR_ARG, ERR_INFO, ERR_INFO_KEY, ERR_INFO_NOKEY, ERR_INFO_VALUE
from ringcast.mpi.base.exceptions import Exception
from ringcast.mpi.handles.handle import Handle, forget, is_predefined, predefined

__all__ = ["INFO_ENV", "INFO_NULL", "Info"]

_MISSING: Any = object()


class Info(Handle):
    """Texts by key, in the order in which they were set; also used as a dict."""

    _state: dict[str, str] | None

    @classmethod
    def Create(cls, items: Any = None) -> Self:
        """Return an info with these items: a mapping, or pairs."""
        info = cls._of_state({})
        if items is not None:
            info.update(items)
        return info

    @classmethod
    def Create_env(cls, args: Sequence[str] | None = None) -> Self:
        """Return an info with this program's command line, host, working directory and thread level."""
        return cls._of_state({**INFO_ENV._items})

    @property
    def _items(self) -> dict[str, str]:
        if self._state is None:
            raise Exception(ERR_INFO, "expected an info, got INFO_NULL")
        return self._state

    def Free(self) -> None:
        """Free the info."""
        forget(self._items)
        self._state = None

    def Dup(self) -> Self:
        """Return another info with the same items."""
        return type(self)._of_state({**self._items})

    def Get(self, key: str) -> str | None:
        """Return the value of a key; None if there is none."""
        return self._items.get(_checked(key))

    def Set(self, key: str, value: str) -> None:
        """Set the value of a key."""
        if not isinstance(value, str) or len(value) > MAX_INFO_VAL:
            raise Exception(
                ERR_INFO_VALUE, f"expected a text of at most {MAX_INFO_VAL} characters, got {safe_text(value)}"
            )
        self._items[_checked(key)] = value

    def Delete(self, key: str) -> None:
        """Remove a key."""
        if _checked(key) not in self._items:
            raise Exception(ERR_INFO_NOKEY, f"there is no key {safe_text(key)}")
        del self._items[key]

    def Get_nkeys(self) -> int:
        """Return the number of keys."""
        return len(self._items)

    def Get_nthkey(self, n: int) -> str:
        """Return a key by its number."""
        if not 0 <= n < len(self._items):
            raise Exception(ERR_ARG, f"expected a number of a key, below {len(self._items)}, got {safe_text(n)}")
        return [*self._items][n]

    def __len__(self) -> int:
        return len(self._state or ())

    def __bool__(self) -> bool:
        return self._state is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __contains__(self, key: object) -> bool:
        return key in (self._state or ())

    def __getitem__(self, key: str) -> str:
        if key not in self:
            raise KeyError(key)
        return self._items[key]

    def __setitem__(self, key: str, value: str) -> None:
        if self._state is None:
            raise KeyError(key)
        self.Set(key, value)

    def __delitem__(self, key: str) -> None:
        if key not in self:
            raise KeyError(key)
        self.Delete(key)

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a key, or the default."""
        return (self._state or {}).get(key, default)

    def keys(self) -> list[str]:
        """Return the keys."""
        return [*(self._state or ())]

    def values(self) -> list[str]:
        """Return the values."""
        return [*(self._state or {}).values()]

    def items(self) -> list[tuple[str, str]]:
        """Return the keys with their values."""
        return [*(self._state or {}).items()]

    def update(self, items: Mapping[str, str] | Iterable[tuple[str, str]] = (), **kwds: str) -> None:
        """Set the values of several keys."""
        if self._state is None:
            raise KeyError("INFO_NULL has no keys")
        for key, value in {**dict(items), **kwds}.items():
            self[key] = value

    def pop(self, key: str, default: Any = _MISSING) -> Any:
        """Remove a key, and return its value, or the default."""
        if key in self:
            return self._items.pop(key)
        if default is _MISSING:
            raise KeyError(key)
        return default

    def popitem(self) -> tuple[str, str]:
        """Remove the last key, and return it with its value."""
        if not len(self):
            raise KeyError("there are no keys")
        return self._items.popitem()

    def copy(self) -> Self:
        """Return another info with the same items."""
        return type(self)._of_state(None if self._state is None else {**self._state})

    def clear(self) -> None:
        """Remove all keys."""
        if self._state is not None:
            self._state.clear()

    def __reduce__(self) -> Any:
        if is_predefined(self):
            return super().__reduce__()
        return type(self).Create, (self._items,)


def hints(info: Info | None) -> dict[str, str]:
    """Return the items of an info that a call was given.

    Raises:
        TypeError: it is no info.
    """
    if not isinstance(info, Info | None):
        raise TypeError(f"expected an Info or None, got {safe_text(info)}")
    return {} if info is None else dict(info.items())


def _checked(key: Any) -> str:
    if not isinstance(key, str) or not 0 < len(key) <= MAX_INFO_KEY:
        raise Exception(ERR_INFO_KEY, f"expected a text of 1 to {MAX_INFO_KEY} characters, got {safe_text(key)}")
    return key


def _environment() -> dict[str, str]:
    """Return the items of INFO_ENV: command line, host, working directory and thread level."""
    command = {"command": sys.argv[0], "argv": " ".join(sys.argv[1:])}
    return {**command, "host": socket.gethostname(), "wdir": os.getcwd(), "thread_level": "MPI_THREAD_MULTIPLE"}


INFO_NULL = predefined(Info(), "INFO_NULL")
INFO_ENV = predefined(Info._of_state(_environment()), "INFO_ENV")
