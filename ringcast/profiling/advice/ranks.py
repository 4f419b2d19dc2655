"""Advice on ranks for which others wait: one that is late, all in turn, a root through which all data go."""

from __future__ import annotations

from collections.abc import Iterator

from ringcast._util.sizes import readable
from ringcast.profiling.advice.piece import BUSY, Advice, Report, Site, blocking_collectives, net_time, starved_share
from ringcast.profiling.culprit import OFTEN, culprit, most_often_late
from ringcast.profiling.lateness import FROM_ROOT
from ringcast.profiling.words import how_often, place, seconds, share

FEW = 4  # calls from which two sites may be of one loop
TURNS = 20  # calls from which "in turn" means anything
JOINED = {"gather": "allgather", "gatherv": "allgatherv", "reduce": "allreduce"}
ALIKE = 0.8  # of two numbers of calls: the smaller one is so much of the larger one, if they are of one loop
MOST = 0.6  # share of all bytes that one of four ranks or more sends, if it is a bottleneck


def imbalance(report: Report) -> Iterator[Advice]:
    """A rank is late again and again in a call, as it has more to do before it, or a slower processor."""
    roots = {second["id"] for _, second in _pairs(report)}
    for site in report["sites"]:
        found = culprit(report, site)
        if found is None or site["id"] in roots:
            continue
        rank, calls, cost = found
        text = f"{how_often(site, rank, calls)}: others wait for it, {seconds(cost)} in all, "
        text += f"{share(cost, site['time'])} of the time of these calls."
        do = f"Give rank {rank} less work before this call, or find what slows it down there."
        if site["collective"] in FROM_ROOT:
            do = f"Share the work that rank {rank} does before this call, or let it begin before the others need it."
        elif site["needed"]:
            does = "receives" if site["collective"] == "send" else "sends"
            do = f"Give rank {rank} less work before it {does} there, or find what slows it down."
        yield Advice("imbalance", text, do, cost, site["id"], rank)


def uneven_calls(report: Report) -> Iterator[Advice]:
    """Ranks are late in turn: none has more to do than the others, but each has more now and then."""
    if starved_share(report) > BUSY:
        return  # ranks are late by chance
    for site in blocking_collectives(report):
        if site["sampled"] < TURNS or site["collective"] in FROM_ROOT:  # where it is the root that is late
            continue
        late = site["late"] - site["lost"]
        if late < OFTEN * site["time"] or most_often_late(report, site) is not None:
            continue
        text = f"In calls of {place(site)} ranks wait for others that are late, {seconds(late)} in all, "
        text += f"{share(late, site['time'])} of the time of these calls; another rank is late each time."
        do = "Even out the work between two calls (smaller parts, dealt to the ranks in turn), or make the call less "
        do += "often."
        yield Advice("uneven", text, do, late, site["id"])


def busy_root(report: Report) -> Iterator[Advice]:
    """A root collects from all ranks and then sends to all, while one call without a root would do."""
    for first, second in _pairs(report):
        root = report["contexts"][str(first["context"])][first["root"]]
        cost = net_time(first) + float(second["time"])
        text = f"All data go through rank {root}, by {place(first)} and then {place(second)}: others wait while it "
        text += f"receives, combines and sends. The two calls take {seconds(cost)} in all."
        do = f"Use one {JOINED[first['collective']]} instead: all get the data of all, and none carries more than the "
        do += "others."
        if first["collective"] != "reduce":
            do = f"{do} If the root adds them up, or combines them otherwise: an allreduce."
        yield Advice("root", text, do, cost, first["id"], root)


def _pairs(report: Report) -> Iterator[tuple[Site, Site]]:
    """Yield the call sites that collect to a root and send from it, in one loop."""
    seconds_ = [site for site in blocking_collectives(report) if site["collective"] == "bcast"]
    for first in blocking_collectives(report):
        if first["collective"] not in JOINED or first["ranks"] < 3:  # of two ranks neither carries more
            continue
        for second in seconds_:
            few, many = sorted((_calls(first), _calls(second)))
            same = all(first[fact] == second[fact] for fact in ("context", "root", "file"))
            if same and few >= FEW and few >= ALIKE * many and _alternate(report, first, second):
                yield first, second
                break


def _alternate(report: Report, first: Site, second: Site) -> bool:
    """Return whether the calls of two sites lie among each other, and not one after the other, as of two loops."""
    starts = [
        sorted(start for _, site, start, _, _ in report["timeline"]["events"] if site == one["id"])
        for one in (first, second)
    ]
    if not all(starts):
        return False
    middles = [times[len(times) // 2] for times in starts]
    return all(times[0] <= middle <= times[-1] for times in starts for middle in middles)


def _calls(site: Site) -> int:
    """Return how many calls the rank with the fewest has made: a receiver of a bcast may count one in two parts."""
    return min(int(calls) for _, calls, _, _ in site["by_rank"])


def sender_of_most(report: Report) -> Iterator[Advice]:
    """A rank sends most bytes of the job by messages, one receiver after the other."""
    ranks, whole = report["ranks"], sum(rank["sent"] for rank in report["ranks"])
    sends = [
        site for site in report["sites"] if site["kind"] in ("message", "request") and "send" in site["name"].lower()
    ]
    if len(ranks) < 4 or not sends:
        return
    most, site = max(ranks, key=lambda rank: rank["sent"]), max(sends, key=lambda site: site["bytes_out"])
    receivers = sum(source == most["rank"] for source, _, _ in report["bytes"])
    if most["sent"] < MOST * whole or site["bytes_out"] < OFTEN * whole or receivers < 3:
        return
    messages = [one for one in report["sites"] if one["kind"] in ("message", "request")]
    cost = sum(net_time(one) for one in messages)
    cost += sum(waited for one in messages for rank, _, waited in one["blame"] if rank == most["rank"])
    text = f"Rank {most['rank']} sends {readable(most['sent'])}, {share(most['sent'], whole)} of all bytes, to "
    text += f"{receivers} ranks one after the other (most in {place(site)})."
    do = "Use bcast or scatter, in which ranks pass data on; or let ranks exchange them without this one."
    yield Advice("root", text, do, cost, site["id"], most["rank"])
