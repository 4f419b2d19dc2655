"""Values that stand for a buffer: the beginning of all addresses, and data that are in place."""

from __future__ import annotations

from typing import Any, ClassVar, Self

__all__ = ["BOTTOM", "BUFFER_AUTOMATIC", "IN_PLACE", "BottomType", "BufferAutomaticType", "InPlaceType"]


class _Sentinel:
    """The only value of its class."""

    _name: ClassVar[str]
    _number: ClassVar[int]
    _only: ClassVar[Any] = None

    def __new__(cls) -> Self:
        if cls._only is None:
            cls._only = super().__new__(cls)
        return cls._only  # type: ignore[no-any-return]

    def __bool__(self) -> bool:
        return self._number != 0

    def __int__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, int) and other == self._number)

    def __hash__(self) -> int:
        return hash(self._number)

    def __repr__(self) -> str:
        return self._name

    def __reduce__(self) -> str:
        return self._name


class BottomType(_Sentinel):
    """The type of `BOTTOM`."""

    _name, _number = "BOTTOM", 0

    def __index__(self) -> int:
        return self._number


class InPlaceType(_Sentinel):
    """The type of `IN_PLACE`."""

    _name, _number = "IN_PLACE", -1


class BufferAutomaticType(_Sentinel):
    """The type of `BUFFER_AUTOMATIC`."""

    _name, _number = "BUFFER_AUTOMATIC", -2


BOTTOM = BottomType()
IN_PLACE = InPlaceType()
BUFFER_AUTOMATIC = BufferAutomaticType()
