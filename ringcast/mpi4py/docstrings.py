"""Begin docstrings with the call, as compiled modules do: mpi4py's tools and tests expect that."""

from __future__ import annotations

from inspect import cleandoc
from types import FunctionType, ModuleType
from typing import Any


def begin_with_calls(module: ModuleType) -> None:
    """Put the call before the docstring of each function, method and property of a module."""
    seen: set[int] = set()
    for name, value in vars(module).items():
        if isinstance(value, type) and value.__module__.startswith("ringcast."):
            value.__doc__ = cleandoc(value.__doc__ or "")
            for member, found in vars(value).items():
                _begin(member, found, seen)
        else:
            _begin(name, value, seen)


def _begin(name: str, value: Any, seen: set[int]) -> None:
    value = getattr(value, "__func__", value)  # of a static method or one of the class
    if isinstance(value, (FunctionType, property)) and value.__doc__ and id(value) not in seen:
        seen.add(id(value))
        value.__doc__ = f"{name}{'(...)' if callable(value) else ''}\n\n{cleandoc(value.__doc__)}"
