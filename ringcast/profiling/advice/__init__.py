"""Rules that tell from a profile what to change; each speaks only where the numbers show it.

A rule yields pieces of `Advice`. Those that concern a small part of the time are left out here, so that a rule need not
ask whether its finding matters.
"""

from __future__ import annotations

from typing import Any

from ringcast.profiling.advice.calls import left_out_counts, pickled_objects, small_calls, unused_overlap
from ringcast.profiling.advice.machine import shared_processors, slow_links, worse_than_predicted
from ringcast.profiling.advice.piece import Advice, Report
from ringcast.profiling.advice.ranks import busy_root, imbalance, sender_of_most, uneven_calls

WORTH = 0.05  # share of the time of all ranks that a piece of advice must concern
RULES = (
    busy_root,
    imbalance,
    uneven_calls,
    sender_of_most,
    small_calls,
    pickled_objects,
    left_out_counts,
    unused_overlap,
    shared_processors,
    slow_links,
    worse_than_predicted,
)

__all__ = ["Advice", "advice"]


def advice(report: Report) -> list[dict[str, Any]]:
    """Return all advice: on call sites, then on the machine; in both the pieces that concern the most time first."""
    whole = sum(rank["span"] for rank in report["ranks"])
    found = [one for rule in RULES for one in rule(report) if one.seconds >= WORTH * whole]
    found.sort(key=lambda one: (one.site is None, -one.seconds))
    return [
        {"rule": a.rule, "text": a.text, "do": a.do, "seconds": a.seconds, "site": a.site, "rank": a.rank}
        for a in found
    ]
