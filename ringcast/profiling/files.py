"""Profiles as files: a page (*.html), or the numbers (*.json); "-" stands for a table on standard error."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ringcast._util import output_files
from ringcast._util.safe_text import escaped
from ringcast.profiling.report import FORMAT

SUFFIXES = (".html", ".json")
STREAM = "-"


def reason_not(path: str) -> str:
    """Return why no profile can be written at `path`, or ""."""
    if path == STREAM:
        return ""
    if not path.lower().endswith(SUFFIXES):
        return f"{path}: expected a file *.html or *.json, or - for a table"
    return output_files.reason_not(Path(path))


def write(path: str, report: Mapping[str, Any]) -> None:
    """Write a profile, whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    if path == STREAM:
        from ringcast.profiling.table import table

        print(table(report), end="", file=sys.stderr)
        return
    if path.lower().endswith(".json"):
        output_files.write_text(path, json.dumps(report, separators=(",", ":")))
        return
    from ringcast.profiling import page

    page.write(path, dict(report))


def publish(path: str, report: Mapping[str, Any]) -> None:
    """Write a profile, and say on standard error where it is.

    Raises:
        OSError: it cannot be written.
    """
    write(path, report)
    if path != STREAM:
        print(f"ringcast: {escaped(where(os.path.abspath(path), report))}", file=sys.stderr)


def where(path: str, report: Mapping[str, Any]) -> str:
    """Return where a profile is, and its summary, as a line."""
    return f"the profile is in {path}: {report['summary']}"


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
