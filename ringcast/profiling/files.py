"""Profiles as files: a page (*.html), or the numbers (*.json)."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ringcast._util import output_files
from ringcast.profiling.report import FORMAT

SUFFIXES = (".html", ".json")


def reason_not(path: str) -> str:
    """Return why no profile can be written at `path`, or ""."""
    if not path.endswith(SUFFIXES):
        return f"{path}: expected a file *.html or *.json"
    return output_files.reason_not(Path(path))


def write(path: str, report: Mapping[str, Any]) -> None:
    """Write a profile, whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    if path.endswith(".json"):
        output_files.write_text(path, json.dumps(report, separators=(",", ":")))
        return
    from ringcast.profiling import page

    page.write(path, dict(report))


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return a profile that was written as *.json.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no profile of this version.
    """
    try:
        report = json.loads(Path(path).read_bytes())
    except ValueError:
        raise ValueError(f"{path}: expected the JSON of a profile (--profile FILE.json)") from None
    if not isinstance(report, dict) or report.get("format") != FORMAT or "sites" not in report:
        raise ValueError(f"{path}: expected a profile of the format {FORMAT!r} (--profile FILE.json)")
    return report
