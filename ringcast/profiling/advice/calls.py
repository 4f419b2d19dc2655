"""Advice on how calls are made: too small, of objects, without counts, or awaited too early."""

from __future__ import annotations

from collections.abc import Iterator

from ringcast._util.sizes import readable
from ringcast.profiling.advice.piece import (
    Advice,
    Report,
    Site,
    blocking_collectives,
    bytes_of_a_call,
    calls_of_all,
    net_time,
)
from ringcast.profiling.words import place, seconds, share
from ringcast.wire.call import OBJECT

MANY = 100  # calls of a rank
SMALL = 4096  # bytes that a rank sends in a call, below which its time does not depend on them
GAP = 1.0  # of the time of a call: the time of the program before it, if calls follow each other at once
HIDDEN = 0.2  # share of the time of requests beside the program, below which they are awaited too early
COMPUTES = 0.1  # share of the time that a program must compute, for requests to have something to hide behind
ANNOUNCED = frozenset({"bcast", "scatter", "scatterv", "alltoall", "alltoallv"})  # an object tells of arrays, too
JOINABLE = frozenset({"allreduce", "reduce", "bcast", "allgather", "allgatherv", "gather", "gatherv", "alltoall"})


def small_calls(report: Report) -> Iterator[Advice]:
    """Calls of a few bytes follow each other: each takes as long as a call takes without bytes."""
    found = [site for site in blocking_collectives(report) if _is_small(site)]
    if not found:
        return
    calls = sum(site["calls"] for site in found)
    computing = _between(report, {site["id"] for site in found})
    made = sum(map(calls_of_all, found))
    took = sum(net_time(site) for site in found) / made
    if calls < MANY or computing > GAP * took:
        return
    cost = sum(net_time(site) for site in found)
    first, others = found[0], len(found) - 1
    where = place(first) + (f" and {others} other line{'s' * (others > 1)}" if others else "")
    sent = sum(site["bytes_out"] for site in found) / made
    text = f"{calls:,} small calls: {where}. A rank sends {readable(round(sent))} in one on average, each takes "
    text += f"{seconds(took)} (without waiting for late ranks), and the program computes for {seconds(computing)} "
    text += f"before the next: {seconds(cost)} in all."
    do = "Where a call does not need the result of the one before, join them: one call with an array of all values "
    do += "takes hardly longer than one of them."
    yield Advice("small calls", text, do, cost, first["id"])


def _is_small(site: Site) -> bool:
    if site["ranks"] < 2 or site["collective"] not in JOINABLE:
        return False
    return bytes_of_a_call(site) <= SMALL and bool(site["calls"] >= MANY / 10)


def _between(report: Report, sites: set[int]) -> float:
    """Return the median time of the program between two calls of these sites that follow each other on a rank."""
    last: dict[int, float] = {}
    gaps: list[float] = []
    for rank, site, start, end, _ in sorted(report["timeline"]["events"], key=lambda event: event[2]):
        if rank in last and site in sites:
            gaps.append(max(0.0, start - last[rank]))
        last[rank] = end
    if report["timeline"]["stride"] > 1 or not gaps:  # calls between them are not known
        return _program_of_a_call(report)
    return sorted(gaps)[len(gaps) // 2]


def _program_of_a_call(report: Report) -> float:
    ranks = report["ranks"]
    return float(sum(rank["program"] for rank in ranks) / max(1, sum(rank["calls"] for rank in ranks)))


def pickled_objects(report: Report) -> Iterator[Advice]:
    """Python objects are pickled and made again on every rank, where arrays travel as they are."""
    for site in report["sites"]:
        if site["kind"] == "transfer" or not _of_objects(site):
            continue
        cost, made = net_time(site), calls_of_all(site)
        does, nbytes = max((site["bytes_out"], "sends"), (site["bytes_in"], "receives"))[::-1]
        text = f"Calls of {place(site)} move Python objects, which are pickled, and made again on each rank that gets "
        text += f"them. {site['calls']:,} calls, in which a rank {does} {readable(round(nbytes / made))} on average, "
        text += f"take {seconds(cost)} in all (without waiting for late ranks)."
        do = "Give numpy arrays, whose bytes travel as they are: many objects of one kind fit into one array, or one "
        do += "for each field."
        yield Advice("objects", text, do, cost, site["id"])


def _of_objects(site: Site) -> bool:
    """Return whether calls of a site move objects, most often; where only the values tell, their receivers know."""
    if site["collective"] in ANNOUNCED or not site["dtype"]:
        return bool(site["objects"] > calls_of_all(site) / 3)
    return bool(site["dtype"] == OBJECT)


def left_out_counts(report: Report) -> Iterator[Advice]:
    """Ranks exchange their counts before each call, as the program does not give them."""
    for site in report["sites"]:
        cost = site.get("counting", 0.0)
        if not cost:
            continue
        text = (
            f"Calls of {place(site)} have no counts, the numbers of items of each rank, so ranks exchange them first, "
        )
        text += f"{site['calls']:,} times: {seconds(cost)} in all, {share(cost, net_time(site))} of the time of these "
        text += "calls (without waiting for late ranks)."
        do = "If all ranks know how many items each one has, give them: counts=[...]. A persistent call exchanges them "
        do += "once."
        yield Advice("counts", text, do, cost, site["id"])


def unused_overlap(report: Report) -> Iterator[Advice]:
    """Requests are awaited as soon as they are made, so that nothing is computed while bytes are under way."""
    computes = sum(rank["program"] for rank in report["ranks"]) >= COMPUTES * sum(
        rank["span"] for rank in report["ranks"]
    )
    for site in report["sites"]:
        if site["kind"] not in ("request", "persistent") or not computes:
            continue
        under_way = site["awaited"] + site["hidden"] + site["late"]
        if site["hidden"] >= HIDDEN * under_way:
            continue
        text = f"Requests of {place(site)} are awaited as soon as they are made: the program computes in only "
        text += f"{share(site['hidden'], under_way)} of the time in which they are under way, and waits for them for "
        text += f"{seconds(site['awaited'])} in all."
        do = "Compute between the call and wait() what does not need the result; comm.progress_thread() lets calls "
        do += "go on meanwhile."
        yield Advice("no overlap", text, do, site["awaited"], site["id"])
