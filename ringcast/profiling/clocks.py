"""One clock for all hosts, from the calls themselves.

A rank leaves an allreduce after every other rank has made it. So each call bounds the difference of two hosts' clocks
from both sides, or from one, as a broadcast does; with many calls the bounds are close. Where they hold for no
difference, as on one machine, none is taken. Clocks drift apart by some tens of microseconds in a second.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

from ringcast.profiling.lateness import calls_of, waits

Part = Mapping[str, Any]


def shifts(parts: Sequence[Part]) -> list[float]:
    """Return the seconds to add to the times of each part, so that all are on the clock of the first one's host."""
    hosts = list(dict.fromkeys(part["host"] for part in parts))
    known = {hosts[0]: 0.0} if hosts else {}
    for host in hosts[1:]:
        least, most = _bounds(parts, hosts[0], host)
        known[host] = _between(least, most, parts, hosts[0], host)
    return [known[part["host"]] for part in parts]


def _bounds(parts: Sequence[Part], first: str, host: str) -> tuple[float, float]:
    """Return the least and the most that must be added to the clock of `host`."""
    both = [part for part in parts if part["host"] in (first, host)]
    where = {part["rank"]: part["host"] for part in both}
    least, most = -inf, inf
    for call in calls_of(both, [0.0] * len(both)):
        here = [moment for moment in call.moments if where[moment.rank] == first]
        there = [moment for moment in call.moments if where[moment.rank] == host]
        for moment, wait in zip(there, waits(call, there, here), strict=True):
            least = least if wait is None else max(least, wait.ready - moment.ended)
        for moment, wait in zip(here, waits(call, here, there), strict=True):
            most = most if wait is None else min(most, moment.ended - wait.ready)
    return least, most


def _between(least: float, most: float, parts: Sequence[Part], first: str, host: str) -> float:
    if least <= 0 <= most:
        return 0.0
    if least > -inf and most < inf:
        return (least + most) / 2
    if least > -inf or most < inf:
        return least if least > -inf else most
    walls = {part["host"]: part["began"] - part["start"] for part in reversed(parts)}
    return float(walls[host] - walls[first])  # no call tells: by the time of day
