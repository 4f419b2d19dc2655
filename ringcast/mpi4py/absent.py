"""Modules of mpi4py that the small package does not have: the error of an import says where to get them."""

from __future__ import annotations

import sys

_ABSENT = {f"mpi4py.{name}" for name in ("typing", "util.dtlib", "util.pool", "util.sync")}


class _Finder:
    """A finder that Python asks after all others, so only for modules that they have not found."""

    def find_spec(self, fullname: str, *_: object) -> None:
        """Raise ImportError for modules that an installed mpi4py has."""
        if fullname in _ABSENT:
            hint = "pip install mpi4py: its Python parts work on ringcast"
            # Without `name`: `from mpi4py.util import dtlib` would swallow an error that has it.
            raise ModuleNotFoundError(f"{fullname} is not in the small mpi4py of ringcast ({hint})")


def tell() -> None:
    """Make imports of these modules raise that error."""
    sys.meta_path.append(_Finder())
