"""The part of a block in a rank that is profiled already: what was recorded until its end, less that before it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from ringcast.monitoring.trace import from_json
from ringcast.profiling.part import Part

SUMS = (
    "calls",
    "sent",
    "received",
    "requests",
    "failed",
    "objects",
    "blocking",
    "under_way",
    "awaited",
    "python",
    "before",
    "lost",
)


def since(before: Part, now: Part) -> Part:
    """Return the part of the time between two parts of a rank."""
    start = before["end"]
    moments = [moment for moment in now["moments"] if moment[3] >= start]
    kept: dict[int, list[tuple[float, int, float]]] = defaultdict(list)  # by tally: time, number, beginning
    for of, op, _, began, ended, *_ in moments:
        kept[of].append((ended - began, op, began))
    places: dict[int, int] = {}  # of tallies, by their number in the rank
    tallies: list[Part] = []
    for number, tally in enumerate(now["tallies"]):
        if number < len(before["tallies"]):
            tally = _less(tally, before["tallies"][number], start, kept.get(number, ()))
        if tally["histogram"] or tally["failed"]:
            places[number] = len(tallies)
            tallies.append(tally)
    sent = dict(before["sent"])
    return now | {
        "start": start,
        "over": True,
        "began": now["began"] + start - now["start"],
        "outside": now["outside"] - before["outside"],
        "starved": None if now["starved"] is None else now["starved"] - before["starved"],
        "sent": [(rank, more) for rank, nbytes in now["sent"] if (more := nbytes - sent.get(rank, 0))],
        "tallies": tallies,
        "moments": [(places[of], *rest) for of, *rest in moments if of in places],
        "traces": [
            (places[of], op, events)
            for of, op, events in now["traces"]
            if of in places and from_json(events[0]).time >= start
        ],
    }


def _less(tally: Part, old: Part, start: float, moments: Sequence[tuple[float, int, float]]) -> Part:
    """Return what a tally has more than before; `moments` are the kept ones since then."""
    counts = dict(old["histogram"])
    histogram = [(i, more) for i, count in tally["histogram"] if (more := count - counts.get(i, 0))]
    slowest = tally["slowest"]
    if slowest[2] < start:  # of no moment that was kept it is known when it was
        slowest = max(moments, default=(2.0 ** max(dict(histogram), default=0) / 1e9, 0, 0.0))
    return tally | _differences(tally, old) | {"histogram": histogram, "slowest": slowest}


def _differences(tally: Mapping[str, Any], old: Mapping[str, Any]) -> Part:
    return {name: tally[name] - old[name] for name in SUMS}
