"""Turn the launcher's report on a job that this process started into the error that `ringcast.run` raises."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from ringcast.errors import RunFailed


def read_report(text: str | bytes) -> dict[str, Any]:
    """Return the launcher's report from its JSON; from an empty text, a report of exit code 1 without a rank.

    The text is empty if the launcher ended before it could write its report.
    """
    report: dict[str, Any] = json.loads(text) if text else {"exit_code": 1, "rank": None}
    return report


def failure(output: str, code: int, report: dict[str, Any]) -> RunFailed:
    """Return the error that names the rank that the launcher holds responsible."""
    rank = report["rank"]
    if rank is None:
        return RunFailed(0, f"ringcast-launch ended with exit code {code}", output)
    reported = report["ranks"][rank]
    if reported["error"]:
        return RunFailed(rank, reported["error"], reported["traceback"])
    return RunFailed(rank, report["cause"].partition("\n")[0].removeprefix("failed: "), output)


def note_of(words: Sequence[str], error: RunFailed, output: str) -> str:
    """Return the lines of the launcher's last words that an error does not show: all but its traceback and the cause.

    The error shows all of them if it quotes the output.
    """
    if error.remote_traceback == output:
        return ""
    last = f"ringcast-launch: rank {error.rank} ("
    end = next((i for i, line in enumerate(words) if line.startswith(last)), len(words))
    lines = [_plain(line, error.rank) for line in words[:end]]
    shown = [_plain(line, error.rank) for line in error.remote_traceback.splitlines()]
    for i in range(end - len(shown) + 1 if shown else 0):
        if lines[i : i + len(shown)] == shown:
            return "".join([*words[:i], *words[i + len(shown) : end]]).rstrip("\n")
    return "".join(words[:end]).rstrip("\n")


def _plain(line: str, rank: int) -> str:
    """Return a line of a rank without its prefix, and without the rank's number as errors begin with it."""
    return re.sub(r"^\[[0-9,-]+\] ", "", line.rstrip("\n")).replace(f": rank {rank}: ", ": ")
