"""A profile in words: the paragraph that begins a page, and names of places."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ringcast._util.rank_words import ranks_in_words
from ringcast.profiling.culprit import culprit, sampled

FEW = 0.05  # share of the time below which nothing is said of a part of it
MANY = 0.3  # share of the bytes from which a link is named, and …
MORE = 1.5  # … times the bytes of the next one

Report = Mapping[str, Any]


def place(site: Report) -> str:
    """Return the name and the place of a call site, as "allreduce at solver.py:41"."""
    file = os.path.basename(site["file"])
    return f"{site['name']} at {file}:{site['line']}" if file else str(site["name"])


def share(part: float, whole: float) -> str:
    """Return a part in percent of a whole.

    >>> share(1, 3), share(0.0001, 1), share(0, 0)
    ('33 %', '0 %', '0 %')
    """
    return f"{part / whole:.0%}".replace("%", " %") if whole else "0 %"


def seconds(value: float) -> str:
    """Return a time with three digits, in a unit that fits.

    >>> seconds(1.2345), seconds(0.0123456), seconds(0.0000042)
    ('1.23 s', '12.3 ms', '4.2 us')
    """
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if value * factor >= 1 or unit == "us":
            return f"{value * factor:.3g} {unit}"
    raise AssertionError


def summary(report: Report) -> str:
    """Return a paragraph: where the time of all ranks went, whom they waited for, and which link carried the most."""
    sentences = [_division(report)]
    if missed := _missed(report):
        sentences.append(missed)
    if blamed := _blamed(report):
        sentences.append(blamed)
    if busiest := _busiest(report):
        sentences.append(busiest)
    return " ".join(f"{sentence}." for sentence in sentences)


def _division(report: Report) -> str:
    ranks = report["ranks"]
    whole = sum(rank["span"] for rank in ranks)
    kinds = {
        "is the program's own, outside ringcast": sum(rank["program"] for rank in ranks),
        "goes to waiting for ranks that are late": sum(rank["late"] for rank in ranks),
        "goes to moving and combining data": sum(rank["moving"] + rank["combining"] for rank in ranks),
        "goes to waiting for the network within calls": sum(rank["link"] for rank in ranks),
        "goes to waiting for requests that are under way": sum(rank["awaited"] for rank in ranks),
        "is ringcast's own Python": sum(rank["python"] for rank in ranks),
    }
    told = sorted(((part, words) for words, part in kinds.items() if whole and part >= FEW * whole), reverse=True)
    if not told:
        return "Nothing was recorded"
    (part, words), *others = told
    return ", ".join(
        [f"{share(part, whole)} of the ranks' time {words}", *(f"{share(p, whole)} {w}" for p, w in others)]
    )


def _missed(report: Report) -> str:
    """Name the ranks that did not come to a call, where others waited for them the longest."""
    found = max(report["sites"], key=lambda site: site["lost"], default=None)
    if found is None or not found["missed"] or not report["failure"]:
        return ""
    if found["lost"] < FEW * sum(rank["span"] for rank in report["ranks"]):
        return ""
    ranks = ranks_in_words(found["missed"])
    return f"The job failed while ranks waited for {ranks} in {place(found)}, {seconds(found['lost'])} in all"


def _blamed(report: Report) -> str:
    """Name the rank for which others waited the longest, and the call site where they did."""
    whole = sum(rank["span"] for rank in report["ranks"])
    found = [(one, site) for site in report["sites"] if (one := culprit(report, site)) is not None]
    if not found:
        return ""
    (rank, calls, cost), site = max(found, key=lambda each: each[0][2])
    if cost < FEW * whole:
        return ""
    return f"{how_often(site, rank, calls)}: others wait for it, {seconds(cost)} in all"


def how_often(site: Report, rank: int, calls: int) -> str:
    """Say in how many calls of a site a rank was late; of messages, in how many of its own."""
    number = sampled(site, rank)
    if site["needed"]:
        return f"Rank {rank} is late for {calls} of its {number} messages of {place(site)}"
    recorded = "recorded " * (number < site["calls"])
    return f"Rank {rank} is late in {calls} of {number} {recorded}calls of {place(site)}"


def _busiest(report: Report) -> str:
    """Name the link between two hosts, or ranks, that carried a large share of the bytes."""
    of = {rank: host["name"] for host in report["hosts"] for rank in host["ranks"]}
    far = len(report["hosts"]) > 2
    carried: dict[tuple[str, str], int] = {}
    for source, dest, nbytes in report["bytes"]:
        ends = (
            (f"host {of.get(source, '?')}", f"host {of.get(dest, '?')}") if far else (f"rank {source}", f"rank {dest}")
        )
        if ends[0] != ends[1]:
            carried[ends] = carried.get(ends, 0) + nbytes
    if len(carried) < 4:
        return ""
    (next_most, _), (most, (source, dest)) = sorted((nbytes, ends) for ends, nbytes in carried.items())[-2:]
    whole = sum(carried.values())
    if most <= MANY * whole or most < MORE * next_most:
        return ""
    return f"{share(most, whole)} of all bytes{' between hosts' * far} go from {source} to {dest}"
