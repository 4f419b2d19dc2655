"""What became of a job that this process has started with `ringcast-launch`: the launcher's report, as an error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ringcast.errors import RunFailed


def read_report(file: Path) -> dict[str, Any]:
    """Return the launcher's report; if it ended before it could write one, a report of exit code 1 without a rank."""
    try:
        told: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {"exit_code": 1, "rank": None}
    return told


def failure(output: str, code: int, report: dict[str, Any]) -> RunFailed:
    """Return the error that names the rank which the launcher holds responsible."""
    rank = report["rank"]
    if rank is None:
        return RunFailed(0, f"ringcast-launch ended with exit code {code}", output)
    reported = report["ranks"][rank]
    if reported["error"]:
        return RunFailed(rank, reported["error"], reported["traceback"])
    return RunFailed(rank, report["cause"].partition("\n")[0].removeprefix("failed: "), output)
