"""The definitions of datatypes, predefined and derived, to which handles refer."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ringcast.mpi.base.constants import (
    COMBINER_F90_COMPLEX,
    COMBINER_F90_INTEGER,
    COMBINER_NAMED,
    TYPECLASS_COMPLEX,
    TYPECLASS_INTEGER,
    TYPECLASS_REAL,
    UNDEFINED,
)
from ringcast.mpi.base.exceptions import ERR_ARG, Exception
from ringcast.mpi.data import layout
from ringcast.mpi.data.layout import Layout


class Definition:
    """A datatype; several handles may refer to it.

    Attributes:
        layout: where its bytes are.
        code: its code as an item of Python's `struct` or numpy; None if it is no item.
        dtype: the dtype for operators; None if they cannot take it.
        combiner: how it was made, with these `arguments`, of these `bases`.
        integers: the integers of `Get_contents`; `counts` its counts.
        committed: whether it can be used in messages.
    """

    __slots__ = (
        "arguments", "attributes", "bases", "code", "combiner", "committed", "counts", "dtype", "integers", "layout",
        "name",
    )  # fmt: skip

    def __init__(self, made: Layout, combiner: int, arguments: dict[str, Any], bases: Sequence[Definition]) -> None:
        self.layout, self.combiner, self.arguments, self.bases = made, combiner, arguments, tuple(bases)
        self.integers: list[int] = []
        self.counts: list[int] = []
        self.code: str | None = None
        self.dtype: np.dtype[Any] | None = None
        self.name, self.committed = "", False
        self.attributes: dict[int, Any] = {}


_NUMPY = {"U": "U1", "c": "S1"}  # numpy's codes where a datatype has another one


def numpy_dtype(code: str) -> np.dtype[Any]:
    """Return numpy's dtype of an item."""
    return np.dtype(_NUMPY.get(code, code))


def _named(name: str, code: str) -> Definition:
    dtype = numpy_dtype(code)
    definition = Definition(layout.item(dtype.itemsize, dtype.alignment), COMBINER_NAMED, {}, [])
    definition.name, definition.code, definition.committed = f"MPI_{name}", code, True
    definition.dtype = {"U": None, "c": np.dtype("i1")}.get(code, dtype)
    return definition


def _null() -> Definition:
    """Return the datatype of buffers without elements, whose handle is null."""
    definition = Definition(layout.item(1, 1), COMBINER_NAMED, {}, [])
    definition.name = "MPI_DATATYPE_NULL"
    return definition


def _pair(value: str) -> Definition:
    """Return the datatype of a value and an int, for MAXLOC and MINLOC."""
    kinds = [NAMED[value], NAMED["INT"]]
    second = max(kind.layout.size for kind in kinds)
    made = layout.struct([kind.layout for kind in kinds], [0, second], [1, 1])
    definition = Definition(made, COMBINER_NAMED, {"blocklengths": [1, 1]}, kinds)
    definition.name, definition.committed = "MPI_2INT" if value == "INT" else f"MPI_{value}_INT", True
    definition.dtype = np.dtype([("value", kinds[0].dtype), ("index", kinds[1].dtype)])
    return definition


NULL = _null()
_ITEMS = {
    "B": "PACKED BYTE UNSIGNED_CHAR",
    "p": "AINT OFFSET COUNT",
    "c": "CHAR CHARACTER",
    "U": "WCHAR",
    "b": "SIGNED_CHAR",
    "h": "SHORT",
    "i": "INT LOGICAL INTEGER",
    "l": "LONG",
    "q": "LONG_LONG_INT",
    "H": "UNSIGNED_SHORT",
    "I": "UNSIGNED",
    "L": "UNSIGNED_LONG",
    "Q": "UNSIGNED_LONG_LONG",
    "f": "FLOAT REAL",
    "d": "DOUBLE DOUBLE_PRECISION",
    "g": "LONG_DOUBLE",
    "b1": "C_BOOL",
    "i1": "INT8_T INTEGER1",
    "i2": "INT16_T INTEGER2",
    "i4": "INT32_T INTEGER4",
    "i8": "INT64_T INTEGER8",
    "u1": "UINT8_T",
    "u2": "UINT16_T",
    "u4": "UINT32_T",
    "u8": "UINT64_T",
    "e": "FLOAT16_T",
    "F": "C_COMPLEX CXX_FLOAT_COMPLEX COMPLEX",
    "D": "C_DOUBLE_COMPLEX CXX_DOUBLE_COMPLEX DOUBLE_COMPLEX",
    "G": "C_LONG_DOUBLE_COMPLEX CXX_LONG_DOUBLE_COMPLEX",
    "?": "CXX_BOOL",
    "f4": "REAL4",
    "f8": "REAL8",
    "f16": "REAL16",
    "c8": "COMPLEX8",
    "c16": "COMPLEX16",
    "c32": "COMPLEX32",
}  # names by code
_CODES = {
    "C_BOOL": "? b1", "SIGNED_CHAR": "b", "UNSIGNED_CHAR": "B", "SHORT": "h", "UNSIGNED_SHORT": "H", "INT": "i",
    "UNSIGNED": "I", "LONG": "l", "UNSIGNED_LONG": "L N P", "LONG_LONG_INT": "q", "UNSIGNED_LONG_LONG": "Q",
    "FLOAT16_T": "e f2", "FLOAT": "f f4", "DOUBLE": "d f8", "LONG_DOUBLE": "g f16", "C_COMPLEX": "F Zf c8",
    "C_DOUBLE_COMPLEX": "D Zd c16", "C_LONG_DOUBLE_COMPLEX": "G Zg c32", "CHAR": "c s S a S1 1s",
    "WCHAR": "w U U1 1w", "AINT": "p", "COUNT": "n", "INT8_T": "i1", "INT16_T": "i2", "INT32_T": "i4",
    "INT64_T": "i8 m M", "UINT8_T": "u1", "UINT16_T": "u2 u", "UINT32_T": "u4", "UINT64_T": "u8",
}  # fmt: skip

NAMED = {name: _named(name, code) for code, names in _ITEMS.items() for name in names.split()}
OF_CODE: dict[str | None, Definition] = {code: NAMED[name] for name, codes in _CODES.items() for code in codes.split()}
PAIRS = {value: _pair(value) for value in ("SHORT", "INT", "LONG", "FLOAT", "DOUBLE", "LONG_DOUBLE")}
_CLASSES = {TYPECLASS_REAL: "REAL", TYPECLASS_INTEGER: "INTEGER", TYPECLASS_COMPLEX: "COMPLEX"}


def pair_of(value: Definition, index: Definition) -> Definition | None:
    """Return the predefined datatype of a value and an index; None if there is none."""
    if index is not NAMED["INT"]:
        return None
    return next((pair for name, pair in PAIRS.items() if NAMED[name] is value), None)


def of_size(typeclass: int, size: int) -> Definition:
    """Return the datatype of Fortran of this class and size."""
    found = NAMED.get(f"{_CLASSES.get(typeclass)}{size}")
    if found is None:
        raise Exception(ERR_ARG, f"there is no datatype of class {typeclass} and {size} bytes")
    return found


@lru_cache
def fortran_90(combiner: int, arguments: tuple[tuple[str, int], ...]) -> Definition:
    """Return the datatype for a precision and range of Fortran 90; always the same one for the same arguments."""
    given = {name: number if number != UNDEFINED else 0 for name, number in arguments}
    digits, exponent = given.get("p", 0), given["r"]
    if combiner == COMBINER_F90_INTEGER:
        sizes = [code for most, code in ((2, "i1"), (4, "i2"), (9, "i4"), (18, "i8")) if exponent <= most]
    else:
        kinds = ((3, 4, "f2"), (6, 37, "f4"), (15, 307, "f8"), (18, 4931, "f16"))
        sizes = [code for most, largest, code in kinds if digits <= most and exponent <= largest]
    if combiner == COMBINER_F90_COMPLEX:
        sizes = [f"c{2 * int(code[1:])}" for code in sizes if code != "f2"]
    if not sizes:
        raise Exception(ERR_ARG, f"no datatype has this precision and range: {dict(arguments)}")
    dtype = np.dtype(sizes[0])
    definition = Definition(layout.item(dtype.itemsize, dtype.alignment), combiner, dict(arguments), [])
    definition.integers = [number for _, number in arguments]
    definition.code, definition.dtype, definition.committed = sizes[0], dtype, True
    return definition
