"""Values that are taken for arrays, and do not travel as such: their names in errors, and what to pass instead.

Types of other packages are known by their names, so that nothing is imported.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

_FRAME = "its columns, as value['name'].to_numpy(), or the whole by allgather, gather, bcast or send, which pickle it"
_COLUMN = "value.to_numpy(), and of a categorical its codes"
_BOOLEAN = frozenset({"bool", "boolean", "bool[pyarrow]", "torch.bool"})
_INSTEAD = {
    ("numpy", "recarray"): "np.asarray(value)",
    ("numpy", "matrix"): "np.asarray(value)",
    ("numpy", "MaskedArray"): "value.filled(), or value.data and value.mask one after the other",
    ("pandas", "DataFrame"): _FRAME,
    ("pandas", "Series"): _COLUMN,
    ("pandas", "Index"): _COLUMN,
    ("pandas", "Categorical"): "value.codes",
    ("polars", "DataFrame"): _FRAME,
    ("polars", "Series"): "value.to_numpy()",
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


def in_words(value: Any) -> str:
    """Return what a value is that is no array of one dimension or more, and what to pass instead, if that is known.

    >>> in_words([1, 2])
    'list; pass np.array(value)'
    >>> in_words(np.array([1, None]))
    "array of Python objects (dtype object); pass value.astype(float), or the type that its items have"
    """
    name, instead = type(value).__name__, _instead(value)
    if isinstance(value, np.ndarray):
        name = _kind_of_array(value)
    return f"{name}; pass {instead}" if instead else name


def of_booleans(value: Any) -> bool:
    """Return whether a value of another package holds booleans, of which `+` makes booleans again."""
    dtypes = getattr(value, "dtypes", getattr(value, "dtype", None))  # of its columns or variables, or of all items
    if isinstance(dtypes, Mapping):
        dtypes = dtypes.values()
    several = dtypes if isinstance(dtypes, Iterable) else [dtypes]
    return not _BOOLEAN.isdisjoint(map(str, several))


def _kind_of_array(value: np.ndarray[Any, Any]) -> str:
    if value.ndim == 0:
        return "one of 0 dimensions"
    if type(value) is not np.ndarray:
        return type(value).__name__
    return "array of Python objects (dtype object)" if value.dtype == object else f"array of dtype {value.dtype}"


def _instead(value: Any) -> str:
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        return "np.atleast_1d(value)"
    for kind in type(value).__mro__:
        found = _INSTEAD.get((kind.__module__.partition(".")[0], kind.__name__))
        if found is not None:
            return found
    return _instead_of_array(value) if isinstance(value, np.ndarray) else ""


def _instead_of_array(array: np.ndarray[Any, Any]) -> str:
    if type(array) is not np.ndarray:
        return "np.asarray(value)"
    if array.dtype.names:
        return "numpy.lib.recfunctions.repack_fields(value), of fields without objects"
    if array.dtype == object:
        return "value.astype(float), or the type that its items have"
    return "np.array(value.tolist())" if array.dtype.hasobject else ""
