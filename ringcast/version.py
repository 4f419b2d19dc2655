"""The version of this package: a constant, as to look it up in the installation takes longer than a rank's Hello."""

from __future__ import annotations

__version__ = "0.1.0"


def build() -> str:
    """Return "compiled" if the modules that every message runs through are (hatch_build.py), else "pure Python".

    Ranks of both kinds understand each other.
    """
    from importlib.machinery import EXTENSION_SUFFIXES
    from importlib.util import find_spec

    machine = find_spec("ringcast.protocol.machine")
    compiled = machine is not None and (machine.origin or "").endswith(tuple(EXTENSION_SUFFIXES))
    return "compiled" if compiled else "pure Python"
