"""The rank that makes others wait at a call site, where it is one, and not each in turn."""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, lgamma, log
from statistics import median
from typing import Any

OFTEN = 0.5  # share of the calls in which the rank is late, and of the time that others wait; and at least …
BY_CHANCE = 1.5  # … times the share that each rank has by chance
PASSED_ON = 0.25  # of that time, where ranks that wait make their neighbours wait: the rank computes longer than others
RARE = 0.02  # chance from which on it is none
LONG = 1.0  # seconds that others wait, which are worth a word even for one call
LONGER = 1.5  # times the median of all ranks
EXPLAINED = 0.5  # share of the time of a rank that waits, for which the late one was longer in the program


def culprit(report: Mapping[str, Any], site: Mapping[str, Any]) -> tuple[int, int, float] | None:
    """Return the rank that stands out, if it has been longer in the program than others before these calls.

    A rank that has left the call before late, as its link is slow, is late in this one too, and not to blame.
    """
    found = most_often_late(report, site)
    return found if found is not None and _explained(site, found[0], found[2]) else None


def most_often_late(report: Mapping[str, Any], site: Mapping[str, Any]) -> tuple[int, int, float] | None:
    """Return the rank, in how many of the sampled calls it is late, and for how many seconds others wait for it.

    None if no rank stands out.
    """
    if not site["blame"]:
        return None
    rank, calls, cost = site["blame"][0]
    of, ranks = sampled(site, rank), 2 if site["needed"] else max(1, site["ranks"])  # ends of a message, or members
    often = max(OFTEN, BY_CHANCE / ranks)
    least = PASSED_ON if _computes_most(report, rank) else often
    stands_out = calls >= often * of and cost >= least * (site["late"] - site["lost"])
    surely = cost >= LONG or _chance(calls, of, ranks) <= RARE
    return (rank, calls, cost) if stands_out and surely else None


def sampled(site: Mapping[str, Any], rank: int) -> int:
    """Return in how many calls of a site it is known whether a rank was late; of messages, only with this rank."""
    return int(dict(site["needed"]).get(rank, 0) if site["needed"] else site["sampled"])


def _explained(site: Mapping[str, Any], rank: int, cost: float) -> bool:
    before = dict(site["before"])
    mine, others = before.pop(rank, 0.0), [*before.values()]
    return bool(others) and mine - median(others) >= EXPLAINED * cost / len(others)


def _chance(late: int, calls: int, ranks: int) -> float:
    """Return about how likely it is that some rank is the last one in so many calls, if each is equally often.

    >>> f"{_chance(4, 5, 2):.3f}"
    '0.375'
    """
    if ranks < 2:
        return 1.0
    log_all, log_q, log_rest = lgamma(calls + 1), log(1 / ranks), log(1 - 1 / ranks)
    tail = (
        exp(log_all - lgamma(k + 1) - lgamma(calls - k + 1) + k * log_q + (calls - k) * log_rest)
        for k in range(late, calls + 1)
    )
    return ranks * sum(tail)


def _computes_most(report: Mapping[str, Any], rank: int) -> bool:
    """Return whether a rank is outside ringcast for much longer than most ranks."""
    program = {row["rank"]: row["program"] for row in report["ranks"]}
    return bool(program.get(rank, 0.0) >= LONGER * median(program.values()))
