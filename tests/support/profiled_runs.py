"""Runs whose profile is looked at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ringcast
from ringcast.profiling.files import read

PHASES = ("program", "late", "moving", "link", "combining", "python", "awaited")


def profiled(fn: Any, size: int, folder: Path, backend: str = "threads") -> dict[str, Any]:
    ringcast.run(fn, size, backend=backend, profile=str(folder / "p.json"))
    return read(folder / "p.json")


def site(report: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = [one for one in report["sites"] if one["name"] == name]
    return found
