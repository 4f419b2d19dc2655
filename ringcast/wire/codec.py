"""The codec of everything that travels as plain values: a dataclass becomes a list, and is checked when it comes back.

The annotations of a dataclass are its schema. A message is `[name, field, ...]`, with the name of its class. A
dataclass within it is `[field, ...]`, as the annotation says which one it is. Bytes are the msgpack of that list.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

import msgpack

from ringcast._util.dataclass import dataclass

Reader: TypeAlias = Callable[[Any], Any]


class CodecError(ValueError):
    """Data of another process is no message."""


@dataclass(frozen=True, slots=True)
class Within:
    """Bounds of an integer in an annotation: `Annotated[int, Within(0, 7)]`."""

    low: int
    high: int


Count: TypeAlias = Annotated[int, Within(0, (1 << 64) - 1)]
Rank: TypeAlias = Annotated[int, Within(0, (1 << 32) - 1)]


def plain(message: Any) -> list[Any]:
    """Return a dataclass as plain values, under the name of its class.

    >>> from ringcast.wire.votes import Vote
    >>> plain(Vote(2, 0, 1, "agree", 7, (3,)))
    ['Vote', 2, 0, 1, 'agree', 7, [3]]
    """
    return [type(message).__name__, *_values(message)]


def parse(values: Any, kinds: tuple[type[Any], ...]) -> Any:
    """Return the dataclass, one of `kinds`, that `plain` has made `values` of.

    Raises:
        CodecError: it is none of these, or a field has another type or is out of bounds.
    """
    match values:
        case [str(name), *found]:
            try:
                return _reader(_by_name(kinds)[name])(found)
            except (CodecError, KeyError) as error:
                raise CodecError(f"a message is not understood: {values!s:.80} ({error})") from None
    raise CodecError(f"a message is not understood: {values!s:.80}")


def encode(message: Any) -> bytes:
    """Return a dataclass as bytes; in texts `?` stands for what has no UTF-8."""
    data: bytes = msgpack.packb(plain(message), unicode_errors="replace")
    return data


def decode(data: bytes, kinds: tuple[type[Any], ...]) -> Any:
    """Return the dataclass, one of `kinds`, that `encode` has made bytes of.

    Raises:
        CodecError: the data is none.
    """
    return parse(unpack(data), kinds)


def unpack(data: bytes | memoryview, **options: Any) -> Any:
    """Return the plain values that msgpack has made bytes of.

    Raises:
        CodecError: the data is no msgpack.
    """
    try:
        return msgpack.unpackb(data, strict_map_key=False, **options)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise CodecError(f"a message cannot be read: {error}") from None


def _values(item: Any) -> list[Any]:
    return [_value(getattr(item, field.name)) for field in fields(item)]


def _value(value: Any) -> Any:
    if is_dataclass(value):
        return _values(value)
    if isinstance(value, tuple):
        return [_value(each) for each in value]
    if isinstance(value, Mapping):
        return {key: _value(each) for key, each in value.items()}
    return value


@cache
def _by_name(kinds: tuple[type[Any], ...]) -> dict[str, Any]:
    return {kind.__name__: kind for kind in kinds}


@cache
def _reader(hint: Any) -> Reader:
    """Return a function that checks a plain value against an annotation and returns what the annotation says."""
    origin, args = get_origin(hint), get_args(hint)
    if is_dataclass(hint):
        return _dataclass(hint)
    if origin is Annotated:
        return _bounded(_reader(args[0]), args[1])
    if origin in (Union, UnionType):
        return _optional(_reader(*(arg for arg in args if arg is not NoneType)))
    if origin is tuple:
        return _items(_reader(args[0]))
    if origin is Literal:
        return _checked(args.__contains__)
    if origin is not None and issubclass(origin, Mapping):
        return _mapping(_reader(args[0]), _reader(args[1]))
    allowed = (int, float) if hint is float else (hint,)
    return _checked(lambda value: type(value) in allowed)


def _dataclass(kind: Any) -> Reader:
    hints = get_type_hints(kind, include_extras=True)
    readers = [_reader(hints[field.name]) for field in fields(kind)]

    def read(values: Any) -> Any:
        if not isinstance(values, list) or len(values) != len(readers):
            raise CodecError(f"no {kind.__name__}: {values!s:.80}")
        try:
            return kind(*(reader(value) for reader, value in zip(readers, values, strict=True)))
        except ValueError as error:
            raise CodecError(f"no {kind.__name__}: {error}") from None

    return read


def _bounded(reader: Reader, bounds: Within) -> Reader:
    def read(value: Any) -> Any:
        found = reader(value)
        if not bounds.low <= found <= bounds.high:
            raise CodecError(f"{found} is not in {bounds.low}..{bounds.high}")
        return found

    return read


def _optional(reader: Reader) -> Reader:
    return lambda value: None if value is None else reader(value)


def _items(reader: Reader) -> Reader:
    def read(values: Any) -> Any:
        if not isinstance(values, list):
            raise CodecError(f"no list: {values!s:.80}")
        return tuple(map(reader, values))

    return read


def _mapping(key: Reader, item: Reader) -> Reader:
    def read(values: Any) -> Any:
        if not isinstance(values, dict):
            raise CodecError(f"no mapping: {values!s:.80}")
        return {key(name): item(value) for name, value in values.items()}

    return read


def _checked(fits: Callable[[Any], bool]) -> Reader:
    def read(value: Any) -> Any:
        if not fits(value):
            raise CodecError(f"a value of another type: {value!s:.80}")
        return value

    return read
