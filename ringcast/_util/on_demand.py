"""Import the names of a package when they are first used, so that no start waits for modules that it may not need."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def on_demand(package: str, homes: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package (PEP 562).

    Args:
        package: its name.
        homes: names, by the module that has them; none for a submodule that is meant itself.

    >>> on_demand("ringcast.schedules", {"ringcast.schedules.blocks": ()})("blocks").skips(3)
    (1, 2, 3)
    """
    home_of = {name: home for home, names in homes.items() for name in names or (home.rpartition(".")[2],)}

    def __getattr__(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name)
        home = home_of[name]
        module = import_module(home)
        value = getattr(module, name) if homes[home] else module
        setattr(sys.modules[package], name, value)
        return value

    return __getattr__
