"""The rank that makes others wait at a call site, where it is one, and not each in turn."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any

OFTEN = 0.5  # share of the calls in which the rank is late, and of the time that others wait; and at least …
BY_CHANCE = 1.5  # … times the share that each rank has by chance
PASSED_ON = 0.25  # of that time, where ranks that wait make their neighbours wait: the rank computes longer than others
LONGER = 1.5  # times the median of all ranks


def culprit(report: Mapping[str, Any], site: Mapping[str, Any]) -> tuple[int, int, float] | None:
    """Return the rank, in how many of the sampled calls it is late, and for how many seconds others wait for it.

    None if no rank stands out.
    """
    if not site["blame"]:
        return None
    rank, calls, cost = site["blame"][0]
    often = max(OFTEN, BY_CHANCE / max(1, site["ranks"]))
    least = PASSED_ON if _computes_most(report, rank) else often
    return (rank, calls, cost) if calls >= often * site["sampled"] and cost >= least * site["late"] else None


def _computes_most(report: Mapping[str, Any], rank: int) -> bool:
    """Return whether a rank is outside ringcast for much longer than most ranks."""
    program = {row["rank"]: row["program"] for row in report["ranks"]}
    return bool(program.get(rank, 0.0) >= LONGER * median(program.values()))
