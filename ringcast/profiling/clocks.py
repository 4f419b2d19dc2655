"""One clock for all hosts, from the calls themselves.

A rank leaves an allreduce after every other rank has made it. So each call bounds the difference of two hosts' clocks
from both sides, or from one, as a broadcast does; with many calls the bounds are close. Where they hold for no
difference, as on one machine, none is taken. Clocks drift apart by some tens of microseconds in a second.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

from ringcast.profiling.lateness import FROM_LOWER, MESSAGES, Call, Moment, waits

Part = Mapping[str, Any]


def shifts(parts: Sequence[Part], calls: Sequence[Call]) -> list[float]:
    """Return the seconds to add to the times of each part, so that all are on the clock of the first one's host.

    The moments of the calls are on the clocks of their own hosts.
    """
    hosts = list(dict.fromkeys(part["host"] for part in parts))
    known = {hosts[0]: 0.0} if hosts else {}
    bounds = _bounds(parts, calls, hosts[0]) if len(hosts) > 1 else {}
    for host in hosts[1:]:
        known[host] = _between(*bounds.get(host, (-inf, inf)), parts, hosts[0], host)
    return [known[part["host"]] for part in parts]


def _bounds(parts: Sequence[Part], calls: Sequence[Call], first: str) -> dict[str, tuple[float, float]]:
    """Return the least and the most that must be added to the clock of each host, where calls tell."""
    where = {part["rank"]: part["host"] for part in parts}
    found: dict[str, tuple[float, float]] = {}
    for call in calls:
        waiting, needed = _by_host(_waiting(call), where), _by_host([*call.moments, *call.others], where)
        for host in needed.keys() - {first} if first in needed else ():
            least, most = found.get(host, (-inf, inf))
            least = max(least, -_slack(call, waiting[host], needed[first]))
            found[host] = least, min(most, _slack(call, waiting[first], needed[host]))
    return found


def _waiting(call: Call) -> Sequence[Moment]:
    """Return the moments of ranks that leave a call after others have made it: a small message is sent at once."""
    if call.collective in MESSAGES:
        return [moment for moment in call.moments if moment.rank != call.root]
    return call.moments


def _by_host(moments: Sequence[Moment], where: Mapping[int, str]) -> defaultdict[str, list[Moment]]:
    found: defaultdict[str, list[Moment]] = defaultdict(list)
    for moment in moments:
        found[where[moment.rank]].append(moment)
    return found


def _slack(call: Call, waiting: Sequence[Moment], others: Sequence[Moment]) -> float:
    """Return how long after the ranks it needs had made a call one of the waiting ranks left it, at the least."""
    if waiting and call.root is None and call.collective not in FROM_LOWER:  # all need the same ranks
        waiting = [min(waiting, key=lambda moment: moment.ended)]
    needed = zip(waiting, waits(call, waiting, others), strict=True)
    return min((moment.ended - wait.ready for moment, wait in needed if wait is not None), default=inf)


def _between(least: float, most: float, parts: Sequence[Part], first: str, host: str) -> float:
    if least <= 0 <= most:
        return 0.0
    if least > -inf and most < inf:
        return (least + most) / 2
    if least > -inf or most < inf:
        return least if least > -inf else most
    walls = {part["host"]: part["began"] - part["start"] for part in reversed(parts)}
    return float(walls[host] - walls[first])  # no call tells: by the time of day
