"""Advice on where a job runs: processors, links, and the constants of the cost model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any

from ringcast.profiling.advice.piece import (
    BUSY,
    Advice,
    Report,
    blocking_collectives,
    bytes_of_a_call,
    net_time,
    ranks_in_words,
    starved_share,
)
from ringcast.profiling.words import place, seconds, share

SLOW = 0.5  # of the median rate of the others: a host or link that is slower than this
PAIRS = 4  # links whose rates are known, below which none is typical
LARGE = 64 << 10  # bytes that a rank sends in a call whose time is that of its bytes
NOTABLE = 0.1  # seconds without a processor, below which nothing is said of them
WORSE = 3.0  # times what was predicted


def shared_processors(report: Report) -> Iterator[Advice]:
    """Ranks wait for a processor, as a host, or the ranks' bindings, have fewer of them than ranks."""
    return (one for one in _waits_for_processors(report) if one.seconds >= NOTABLE)


def _waits_for_processors(report: Report) -> Iterator[Advice]:
    of = {rank["rank"]: rank for rank in report["ranks"]}
    alone: list[Mapping[str, Any]] = []
    for host in report["hosts"]:
        ranks = [of[rank] for rank in host["ranks"] if rank in of]
        cost = sum(rank.get("starved") or 0.0 for rank in ranks)
        processors = {cpu for rank in ranks for cpu in rank["bound"]}
        if not cost or not processors:
            continue
        if len(ranks) > len(processors):
            text = f"{len(ranks)} ranks share {_processors(len(processors))} of host {host['name']}: they wait "
            text += f"{seconds(cost)} for one, {share(cost, sum(rank['span'] for rank in ranks))} of their time."
            most = len(processors)
            do = f"Start at most {most} rank{'s' * (most > 1)} there, let them use more processors, or give the job "
            do += "more hosts."
            yield Advice("processors", text, do, cost)
        elif crowded := _crowded(ranks):
            cost = sum(rank["starved"] or 0.0 for rank in crowded)
            numbers = [rank["rank"] for rank in crowded]
            text = f"{ranks_in_words(numbers).capitalize()} of host {host['name']} are bound to the same "
            text += f"{_processors(len(crowded[0]['bound']))}: they wait {seconds(cost)} for it."
            do = "Bind each rank to processors of its own, or none."
            yield Advice("processors", text, do, cost, rank=numbers[0])
        else:
            alone += ranks
    if cost := sum(rank["starved"] or 0.0 for rank in alone):
        numbers = [rank["rank"] for rank in alone]
        text = (
            f"{ranks_in_words(numbers).capitalize()} waited {seconds(cost)} for a processor, though there are enough "
        )
        text += "for all ranks: other programs run there, or ranks have several busy threads."
        do = "Look with top for other programs, and for threads: with OMP_NUM_THREADS=1 numpy's libraries use one."
        yield Advice("processors", text, do, cost)


def _crowded(ranks: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return ranks that are bound to the same processors, where there are fewer processors than ranks."""
    same: dict[tuple[int, ...], list[Mapping[str, Any]]] = defaultdict(list)
    for rank in ranks:
        same[tuple(rank["bound"])].append(rank)
    return next((each for bound, each in same.items() if len(each) > len(bound)), [])


def _processors(count: int) -> str:
    return f"{count} processors" if count > 1 else "processor"


def slow_links(report: Report) -> Iterator[Advice]:
    """Bytes to and from a host, or between two, are much slower than between the others."""
    of = {rank: host["name"] for host in report["hosts"] for rank in host["ranks"]}
    links: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for source, dest, rate, best in report["rates"]:
        if of.get(source, source) != of.get(dest, dest):
            links[of[source], of[dest]].append((rate, best))
    rates = {ends: median(rate for rate, _ in each) for ends, each in links.items()}
    if len(rates) < PAIRS:
        return
    moving = sum(
        site["moving"] + site["link"] + site["awaited"] for site in report["sites"] if bytes_of_a_call(site) >= LARGE
    )
    if found := _slow_host(rates):
        host, rate, typical = found
        text = f"Bytes to and from host {host} move at {rate / 1e6:.3g} MB/s, between the other hosts at "
        text += f"{typical / 1e6:.3g} MB/s. Moving large data takes {seconds(moving)} of all ranks."
        do = f"Examine the network of {host} (ringcast doctor), or leave it out: all wait for the slowest host."
        ranks = next(each["ranks"] for each in report["hosts"] if each["name"] == host)
        yield Advice("slow host", text, do, moving, rank=ranks[0] if len(ranks) == 1 else None)
    elif slow := _slow_pair(rates, {ends: max(best for _, best in each) for ends, each in links.items()}):
        (source, dest), rate, typical = slow
        text = f"Bytes from host {source} to {dest} move at {rate / 1e6:.3g} MB/s, between the other hosts at "
        text += f"{typical / 1e6:.3g} MB/s. Moving large data takes {seconds(moving)} of all ranks."
        do = "Examine this link (ringcast doctor), or list the hosts in an order in which the two are not neighbours."
        yield Advice("slow link", text, do, moving)


def _slow_host(rates: Mapping[tuple[str, str], float]) -> tuple[str, float, float] | None:
    """Return the host whose rates are all slow, its median rate, and the median rate of the links without it."""
    for host in dict.fromkeys(end for ends in rates for end in ends):
        mine = [rate for ends, rate in rates.items() if host in ends]
        others = [rate for ends, rate in rates.items() if host not in ends]
        if len(mine) >= 2 and len(others) >= 2 and max(mine) < SLOW * min(others):
            return host, median(mine), median(others)
    return None


def _slow_pair(
    rates: Mapping[tuple[str, str], float], best: Mapping[tuple[str, str], float]
) -> tuple[tuple[str, str], float, float] | None:
    """Return the slow link, if there is one, its rate, and the median rate of the other links.

    A link is slow if its fastest message has less than half of the rate of the slowest other link. Its median rate is
    not enough: few messages of a link are observed, and a rank may have been without a processor.
    """
    slowest = min(best, key=lambda ends: best[ends])
    others = [rate for ends, rate in rates.items() if ends != slowest]
    return (slowest, rates[slowest], median(others)) if best[slowest] < SLOW * min(others) else None


def worse_than_predicted(report: Report) -> Iterator[Advice]:
    """A call of large data takes much longer than the cost model says, which has chosen its algorithm."""
    if starved_share(report) > BUSY or any(slow_links(report)):
        return  # the model has a processor for each rank, and links that are all alike
    for site in blocking_collectives(report):
        net, predicted = site["net"], site["predicted"]
        if not net or not predicted or net < WORSE * predicted or bytes_of_a_call(site) < LARGE:
            continue
        text = f"A call of {place(site)} takes {seconds(net)} counted from when all ranks have made it; by the "
        text += f"cost model, which chose the algorithm {site['algorithm']}, it should take {seconds(predicted)}."
        do = "Measure this network (ringcast-launch ... ringcast calibrate -o network.toml), and start the job with "
        do += "--config network.toml."
        yield Advice("prediction", text, do, net_time(site), site["id"])
