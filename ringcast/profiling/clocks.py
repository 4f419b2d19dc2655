"""One clock for all hosts, from the calls themselves.

A rank leaves an allreduce after every other rank has made it. So each call bounds the difference of two hosts' clocks
from both sides, or from one, as a broadcast does; with many calls the bounds are close. Where they hold for no
difference, as on one machine, none is taken. Clocks that nothing disciplines drift apart by some tens of microseconds
in a second, and others may jump: then bounds of early and late calls contradict each other, and the middle is taken.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, NamedTuple

from ringcast.engine.profiler import MESSAGES
from ringcast.profiling.lateness import FROM_LOWER, Call, Moment, waits

APART = 1e-3  # seconds by which bounds contradict each other, from which it is worth a word

Part = Mapping[str, Any]


class Clocks(NamedTuple):
    """How the clocks of hosts differ from the clock of the first part's host."""

    shifts: list[float]  # seconds to add to the times of each part
    apart: dict[str, float]  # by host: by how many seconds, at the least, the clock has run apart during the job


def compared(parts: Sequence[Part], calls: Sequence[Call]) -> Clocks:
    """Compare the clocks of hosts by calls, whose moments are on the clocks of their own hosts."""
    clocks = list(dict.fromkeys(_clock(part) for part in parts))
    known = {clocks[0]: 0.0} if clocks else {}
    bounds = _bounds(parts, calls, clocks[0]) if len(clocks) > 1 else {}
    apart = {}
    for clock in clocks[1:]:
        least, most = bounds.get(clock, (-inf, inf))
        known[clock] = _between(least, most, parts, clocks[0], clock)
        if least - most >= APART:
            apart[next(part["host"] for part in parts if _clock(part) == clock)] = least - most
    return Clocks([known[_clock(part)] for part in parts], apart)


def _clock(part: Part) -> str:
    """Return which clock a part has: hosts may have the same name, and containers of one host the same clock."""
    return str(part.get("boot") or part["host"])


def _bounds(parts: Sequence[Part], calls: Sequence[Call], first: str) -> dict[str, tuple[float, float]]:
    """Return the least and the most that must be added to each clock, where calls tell."""
    where = {part["rank"]: _clock(part) for part in parts}
    found: dict[str, tuple[float, float]] = {}
    for call in calls:
        waiting, needed = _by_clock(_waiting(call), where), _by_clock([*call.moments, *call.others], where)
        for clock in needed.keys() - {first} if first in needed else ():
            least, most = found.get(clock, (-inf, inf))
            least = max(least, -_slack(call, waiting[clock], needed[first]))
            found[clock] = least, min(most, _slack(call, waiting[first], needed[clock]))
    return found


def _waiting(call: Call) -> Sequence[Moment]:
    """Return the moments of ranks that leave a call after others have made it: a small message is sent at once."""
    if call.collective in MESSAGES:
        return [moment for moment in call.moments if moment.rank != call.root]
    return call.moments


def _by_clock(moments: Sequence[Moment], where: Mapping[int, str]) -> defaultdict[str, list[Moment]]:
    found: defaultdict[str, list[Moment]] = defaultdict(list)
    for moment in moments:
        found[where[moment.rank]].append(moment)
    return found


def _slack(call: Call, waiting: Sequence[Moment], others: Sequence[Moment]) -> float:
    """Return how long after the ranks it needs had made a call one of the waiting ranks left it, at the least."""
    if waiting and call.root is None and call.sources is None and call.collective not in FROM_LOWER:
        # All need the same ranks.
        waiting = [min(waiting, key=lambda moment: moment.ended)]
    needed = zip(waiting, waits(call, waiting, others), strict=True)
    return min((moment.ended - wait.ready for moment, wait in needed if wait is not None), default=inf)


def _between(least: float, most: float, parts: Sequence[Part], first: str, other: str) -> float:
    if least <= 0 <= most:
        return 0.0
    if least > -inf and most < inf:
        return (least + most) / 2
    if least > -inf or most < inf:
        return least if least > -inf else most
    walls = {_clock(part): part["began"] - part["start"] for part in reversed(parts)}
    return float(walls[other] - walls[first])  # no call tells: by the time of day
