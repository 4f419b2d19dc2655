"""Values that are taken for arrays, and do not travel as such: their names in errors, and what to pass instead.

Types of other packages are known by their names, so that nothing is imported.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from typing import Any

import numpy as np

from ringcast._util.safe_text import class_name, safe_text

_FRAME = "its columns, as value['name'].to_numpy(), or the whole by allgather, gather, bcast or send, which pickle it"
_COLUMN = "value.to_numpy()"
_LOOKED_AT = 1000  # items; the first one that is not missing tells the type of all
_COLUMNS = {  # of items of any type
    ("pandas", "Series"), ("pandas", "Index"), ("pandas", "ExtensionArray"), ("polars", "Series"),
}  # fmt: skip
_BOOLEAN = frozenset({"bool", "boolean", "bool[pyarrow]", "torch.bool"})
_INSTEAD = {
    ("numpy", "recarray"): "np.asarray(value)",
    ("numpy", "matrix"): "np.asarray(value)",
    ("numpy", "MaskedArray"): "value.filled(), or value.data and value.mask one after the other",
    ("pandas", "DataFrame"): _FRAME,
    ("pandas", "Series"): _COLUMN,
    ("pandas", "Index"): _COLUMN,
    ("pandas", "Categorical"): "value.codes",
    ("pandas", "ExtensionArray"): _COLUMN,
    ("polars", "DataFrame"): _FRAME,
    ("polars", "Series"): _COLUMN,
    ("pyarrow", "Table"): "its bytes, as np.frombuffer does of a stream of pyarrow.ipc",
    ("xarray", "DataArray"): "value.to_numpy()",
    ("xarray", "Dataset"): "its variables, as value['name'].to_numpy()",
    ("torch", "Tensor"): "value.cpu().numpy()",
    ("jax", "Array"): "np.asarray(value)",
    ("cupy", "ndarray"): "value.get()",
    ("builtins", "list"): "np.array(value)",
    ("builtins", "tuple"): "np.array(value)",
    **{("builtins", name): "np.array([value])" for name in ("bool", "int", "float", "complex")},
}


def in_words(value: Any, texts: str = "") -> str:
    """Describe a value that is no array of one dimension or more, and say what to pass instead, if that is known.

    `texts` is the advice for columns and arrays whose items are texts or other objects; calls differ in it.

    >>> in_words([1, 2])
    'list; pass np.array(value)'
    >>> in_words(np.array([1, None]))
    'array of Python objects (dtype object); pass value.astype(float), or the type that its items have'
    >>> in_words(np.array(["a", "bb"], dtype=object), texts="value.tolist()")
    'array of Python objects (dtype object); pass value.tolist()'
    >>> in_words(np.array([], dtype=object), texts="value.tolist()").partition("; ")[2]
    'pass value.tolist() where other ranks have texts, else value.astype(float), or the type that its items have there'
    """
    name, instead = class_name(type(value)), _instead(value, texts)
    if isinstance(value, np.ndarray):
        name = _kind_of_array(value)
    return f"{name}; pass {instead}" if instead else name


def of_booleans(value: Any) -> bool:
    """Return whether a value of another package holds booleans, which `+` adds to booleans again."""
    try:
        dtypes = getattr(value, "dtypes", getattr(value, "dtype", None))  # of its columns or variables, or of all items
    except Exception:  # an object of the program, whose properties may fail
        return False
    if isinstance(dtypes, Mapping):
        dtypes = dtypes.values()
    several = dtypes if isinstance(dtypes, Collection) else [dtypes]
    return not _BOOLEAN.isdisjoint(safe_text(one, str) for one in several)


def _kind_of_array(value: np.ndarray[Any, Any]) -> str:
    if value.ndim == 0:
        return "one of 0 dimensions"
    if type(value) is not np.ndarray:
        return class_name(type(value))
    return "array of Python objects (dtype object)" if value.dtype == object else f"array of dtype {value.dtype}"


def _instead(value: Any, texts: str) -> str:
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        return "np.atleast_1d(value)"
    for kind in type(value).__mro__:
        name = safe_text(kind.__module__, str).partition(".")[0], class_name(kind)
        if name in _INSTEAD:
            return texts if name in _COLUMNS and not (_raw(value) or _of_numbers(value)) else _INSTEAD[name]
    return _instead_of_array(value, texts) if isinstance(value, np.ndarray) else ""


def _instead_of_array(array: np.ndarray[Any, Any], texts: str) -> str:
    if type(array) is not np.ndarray:
        return "np.asarray(value)"
    if array.dtype.names:
        return "numpy.lib.recfunctions.repack_fields(value), of fields without objects"
    if array.dtype == object:
        if not _of_numbers(array.flat):
            return texts
        numbers = "value.astype(float), or the type that its items have"
        return numbers if array.size or not texts else f"{texts} where other ranks have texts, else {numbers} there"
    return "np.array(value.tolist())" if array.dtype.hasobject else ""


def _raw(column: Any) -> bool:
    """Return whether a column has a dtype of numpy without Python objects."""
    dtype = getattr(column, "dtype", None)
    return isinstance(dtype, np.dtype) and not dtype.hasobject


def _of_numbers(items: Iterable[Any]) -> bool:
    """Return whether the first item that is not missing (None, NaN) is a number, or there is none."""
    first = next((item for item in islice(items, _LOOKED_AT) if not _missing(item)), 0)
    return isinstance(first, int | float | complex | np.generic)


def _missing(item: Any) -> bool:
    return item is None or type(item).__name__ == "NAType" or (isinstance(item, float) and math.isnan(item))
