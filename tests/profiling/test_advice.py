"""Each rule of the advice speaks of a profile that has its fault, and is silent on one that has not."""

from __future__ import annotations

from typing import Any

import pytest

from ringcast.profiling.advice import RULES, advice
from ringcast.profiling.culprit import culprit

SIZE = 4
SPAN = 10.0


def site(**facts: Any) -> dict[str, Any]:
    """Return a call site at which nothing is wrong: an allreduce of 1 MB, a hundred times, 0.01 s each."""
    calls = facts.get("calls", 100)
    sound: dict[str, Any] = {
        "id": 0, "file": "/home/me/solver.py", "line": 41, "name": "allreduce", "kind": "collective", "ranks": SIZE,
        "context": 1, "collective": "allreduce", "op": "sum",
        "algorithm": "circulant", "dtype": "float64", "shape": "(125000,)", "root": None,
        "calls": calls, "bytes_out": calls * SIZE * 1_000_000, "bytes_in": calls * SIZE * 1_000_000, "objects": 0,
        "time": 4.0, "late": 0.2, "moving": 3.0, "link": 0.4,
        "combining": 0.2, "python": 0.2, "awaited": 0.0, "hidden": 0.0, "counting": 0.0, "net": 0.01,
        "predicted": 0.009, "blame": [[1, 30, 0.06], [2, 25, 0.05]], "sampled": calls, "needed": [], "lost": 0.0,
        "by_rank": [[rank, calls, 1.0, 0.05] for rank in range(SIZE)],
        "before": [[rank, 6.0] for rank in range(SIZE)],
    }  # fmt: skip
    return sound | facts


def report(*sites: dict[str, Any], **facts: Any) -> dict[str, Any]:
    """Return a profile of four ranks on four hosts, each with processors enough and links of the same rate."""
    ranks = [
        {"rank": i, "span": SPAN, "program": 6.0, "calls": 100, "sent": 10**8, "bound": [0, 1], "starved": 0.01}
        for i in range(SIZE)
    ]
    pairs = [(i, j) for i in range(SIZE) for j in range(SIZE) if i != j]
    events = [(i, 0, 0.1 * n, 0.1 * n + 0.01, None) for i in range(SIZE) for n in range(100)]
    sound = {
        "ranks": ranks,
        "hosts": [{"name": f"h{i}", "ranks": [i], "cpus": 2} for i in range(SIZE)],
        "sites": [each | {"id": number} for number, each in enumerate(sites)],
        "contexts": {"1": list(range(SIZE))},
        "bytes": [[i, j, 10**8 // 3] for i, j in pairs],
        "rates": [[i, j, 1e8, 1.1e8] for i, j in pairs],
        "timeline": {"stride": 1, "events": events},
    }
    return sound | facts


def changed(ranks: list[dict[str, Any]], numbers: tuple[int, ...], **facts: Any) -> list[dict[str, Any]]:
    return [rank | facts if rank["rank"] in numbers else rank for rank in ranks]


def before(late: int) -> list[list[float]]:
    """Return the times of the program before a call, if one rank has more to do."""
    return [[rank, 6.9 if rank == late else 6.0] for rank in range(SIZE)]


RANKS = report()["ranks"]
LATE = site(late=3.0, blame=[[3, 90, 2.5], [1, 10, 0.5]], before=before(3))
PASSED_ON = site(
    name="irecv", kind="request", collective="recv", time=7.0, late=6.0, hidden=5.0, before=before(3),
    blame=[[3, 96, 2.8], [1, 50, 1.6], [2, 50, 1.6]],
)  # fmt: skip
IN_TURN = site(late=3.0, blame=[[i, 25, 0.75] for i in range(SIZE)])
GATHER = site(name="gather", collective="gather", root=2, line=7, time=3.0)
BCAST = site(
    name="bcast", collective="bcast", root=2, line=8, late=2.0, blame=[[2, 99, 2.0]], time=3.0, before=before(2)
)
SMALL = site(calls=2000, bytes_out=2000 * SIZE * 8, time=6.0, net=0.0007, predicted=None)
FOLLOWS = {
    "stride": 1,
    "events": [(i, 0, 0.001 * n, 0.001 * n + 0.0009, None) for i in range(SIZE) for n in range(900)],
}
IN_ONE_LOOP = {"stride": 1, "events": [(0, n % 2, 0.1 * n, 0.1 * n + 0.05, None) for n in range(100)]}
IN_TWO_LOOPS = {"stride": 1, "events": [(0, n // 50, 0.1 * n, 0.1 * n + 0.05, None) for n in range(100)]}
SENDS = site(name="send", kind="message", collective="send", blame=[], bytes_out=9 * 10**8)
REQUESTS = site(name="iallreduce", kind="request", awaited=3.0, moving=0.0, link=0.0, hidden=0.1)
ONE_HOST = [{"name": "h0", "ranks": [0, 1, 2, 3], "cpus": 2}]
PAIRS = [(i, j) for i in range(SIZE) for j in range(SIZE) if i != j]
SLOW_HOST = [[*pair, *((1e7, 2e7) if 2 in pair else (1e8, 1.1e8))] for pair in PAIRS]
SLOW_LINK = [[*pair, *((1e7, 2e7) if pair == (2, 0) else (1e8, 1.1e8))] for pair in PAIRS]
HINDERED = [[*pair, 1e7 if pair == (2, 0) else 1e8, 1.1e8] for pair in PAIRS]

FAULTS: dict[str, tuple[str, dict[str, Any], str]] = {
    "late rank": ("imbalance", report(LATE), "Rank 3 is late in 90 of 100 calls of allreduce at solver.py:41"),
    "late rank, and its neighbours by it": (
        "imbalance", report(PASSED_ON, ranks=changed(RANKS, (3,), program=9.5)),
        "Rank 3 is late in 96 of 100 calls of irecv",
    ),
    "late root": ("imbalance", report(BCAST), "Rank 2 is late in 99 of 100 calls of bcast at solver.py:8"),
    "late in turn": ("uneven", report(IN_TURN), "another rank is late each time"),
    "rooted pair": (
        "root", report(GATHER, BCAST, timeline=IN_ONE_LOOP), "through rank 2, by gather at solver.py:7 and then",
    ),
    "rooted pair, a receiver counts more calls": (
        "root",
        report(
            GATHER, BCAST | {"calls": 190, "by_rank": [[0, 190, 1.0, 0.5], [2, 100, 1.0, 0.0]]}, timeline=IN_ONE_LOOP
        ),
        "through rank 2, by gather at",
    ),
    "sender of most": (
        "root",
        report(SENDS, ranks=changed(RANKS, (0,), sent=10**9), bytes=[[0, i, 3 * 10**8] for i in (1, 2, 3)]),
        "Rank 0 sends 1 GB, 77 % of all bytes, to 3 ranks",
    ),
    "small calls": ("small calls", report(SMALL, timeline=FOLLOWS), "2,000 small calls: allreduce at solver.py:41."),
    "objects": ("objects", report(site(dtype="object", shape="()", predicted=None)), "move Python objects"),
    "objects of a broadcast": (
        "objects", report(site(collective="bcast", dtype="object", shape="()", predicted=None, objects=300)),
        "in which a rank sends 1 MB on average",
    ),
    "objects as messages": (
        "objects", report(site(kind="message", collective="recv", dtype="", bytes_out=0, predicted=None, objects=400)),
        "in which a rank receives 1 MB on average",
    ),
    "no counts": ("counts", report(site(counting=2.1)), "ranks exchange them first, 100 times: 2.1 s"),
    "no overlap": ("no overlap", report(REQUESTS), "iallreduce at solver.py:41 are awaited as soon as they are made"),
    "shared processors": (
        "processors", report(hosts=ONE_HOST, ranks=changed(RANKS, (0, 1, 2, 3), starved=4.0)),
        "4 ranks share 2 processors of host h0",
    ),
    "crowded processor": (
        "processors",
        report(hosts=[{"name": "h0", "ranks": [0, 1, 2, 3], "cpus": 2}], ranks=[
            *changed(RANKS[:2], (0, 1), starved=4.0, bound=[0]), *changed(RANKS[2:], (2, 3), bound=[1, 2, 3]),
        ]),
        "Ranks 0 and 1 of host h0 are bound to the same processor",
    ),
    "busy host": ("processors", report(ranks=changed(RANKS, (1,), starved=4.0)), "Ranks 0, 1, 2 and 3 waited 4.03 s"),
    "slow host": ("slow host", report(site(), rates=SLOW_HOST), "Bytes to and from host h2 move at 10 MB/s"),
    "slow link": ("slow link", report(site(), rates=SLOW_LINK), "Bytes from host h2 to h0 move at 10 MB/s"),
    "slow link, by which a call is worse than predicted": (
        "slow link", report(site(net=0.05), rates=SLOW_LINK), "Bytes from host h2 to h0",
    ),
    "prediction": ("prediction", report(site(net=0.05)), "allreduce at solver.py:41 takes 50 ms"),
}  # fmt: skip


@pytest.mark.parametrize(("rule", "profile", "text"), FAULTS.values(), ids=FAULTS)
def test_a_rule_names_its_fault_and_no_other_rule_speaks(rule: str, profile: dict[str, Any], text: str) -> None:
    found = advice(profile)
    assert [one["rule"] for one in found] == [rule]
    assert text in found[0]["text"]
    assert found[0]["do"].endswith(".")
    assert 0.05 * SPAN * SIZE <= found[0]["seconds"] <= SPAN * SIZE


def test_each_rule_has_a_fault() -> None:
    spoken = {rule for _, profile, _ in FAULTS.values() for rule in RULES if list(rule(profile))}
    assert spoken == set(RULES)


SOUND = {
    "a sound job": report(site()),
    "nothing at all": report(),
    "no ranks": report(ranks=[], hosts=[], bytes=[], rates=[], timeline={"stride": 1, "events": []}),
    "few late calls": report(site(late=3.0, blame=[[3, 3, 0.3], [1, 4, 0.3]], time=16.0)),
    "two ranks, each late in half of the calls": report(
        site(ranks=2, late=3.0, blame=[[0, 55, 1.6], [1, 45, 1.4]], time=7.0)
    ),
    "late in each call, as it has left the one before late": report(LATE | {"before": before(-1)}),
    "late as its neighbours are, by the links": report(LATE | {"before": before(1)}),
    "a little late": report(site(late=0.4, blame=[[3, 95, 0.4]])),
    "late by chance, as processors are shared": report(
        IN_TURN, hosts=ONE_HOST, ranks=changed(RANKS, (0, 1, 2, 3), starved=1.2)
    )
    | {"sites": [IN_TURN | {"late": 2.5}]},
    "a gather and a bcast of other loops": report(GATHER, site(name="bcast", collective="bcast", root=2, calls=5)),
    "a gather and a bcast of other roots": report(GATHER, site(name="bcast", collective="bcast", root=1)),
    "a loop of gathers, and one of bcasts": report(GATHER, BCAST | {"late": 0.1, "blame": []}, timeline=IN_TWO_LOOPS),
    "small calls between which the program computes": report(SMALL),
    "few small calls": report(site(calls=50, bytes_out=50 * SIZE * 8), timeline=FOLLOWS),
    "small calls in which ranks wait a little": report(SMALL | {"time": 2.5, "late": 1.2}, timeline=FOLLOWS),
    "requests behind which the program computes": report(REQUESTS | {"hidden": 4.0}),
    "requests of a program that does not compute": report(
        REQUESTS, ranks=changed(RANKS, (0, 1, 2, 3), program=0.2)
    ),
    "small arrays in their announcement": report(site(collective="bcast", dtype="object", shape="()", predicted=None)),
    "arrays as messages": report(
        site(kind="message", collective="recv", dtype="", bytes_out=0, predicted=None, objects=40)
    ),
    "few objects": report(site(dtype="object", time=0.4, late=0.1)),
    "more ranks than processors, which wait for messages": report(hosts=ONE_HOST),
    "a system that does not count": report(hosts=ONE_HOST, ranks=changed(RANKS, (0, 1, 2, 3), starved=None, bound=[])),
    "slow links, all alike": report(site(), rates=[[*pair, 1e6, 1e6] for pair in PAIRS]),
    "a link whose messages came late, but for one": report(site(), rates=HINDERED),
    "a slow link over which little goes": report(site(bytes_out=4000), rates=SLOW_LINK),
    "two rates": report(site(), rates=[[0, 1, 1e8, 1e8], [1, 0, 1e6, 1e6]]),
    "ranks of one host, whose rates differ": report(site(), hosts=ONE_HOST, rates=SLOW_HOST),
    "without a prediction": report(site(net=0.05, predicted=None)),
}  # fmt: skip


@pytest.mark.parametrize("profile", SOUND.values(), ids=SOUND)
def test_no_rule_speaks_where_the_numbers_show_nothing(profile: dict[str, Any]) -> None:
    found = advice(profile)
    shared = [one for one in found if one["rule"] == "processors" and profile["hosts"] is ONE_HOST]
    assert [one for one in found if one not in shared] == []


def test_what_concerns_the_most_time_comes_first() -> None:
    found = advice(report(LATE, site(dtype="object", time=4.0, predicted=None)))
    assert [one["rule"] for one in found] == ["objects", "imbalance"]
    assert [one["site"] for one in found] == [1, 0]
    assert found[1]["rank"] == 3


@pytest.mark.parametrize(("late", "calls", "named"), [(4, 5, False), (5, 5, False), (9, 12, False), (12, 12, True)])
def test_a_rank_is_named_only_where_it_is_not_late_by_chance(late: int, calls: int, named: bool) -> None:
    few = site(ranks=2, calls=calls, late=0.8, time=1.0, blame=[[0, late, 0.8]], before=before(0))
    assert (culprit(report(few), few) is not None) is named


def test_a_rank_for_which_others_wait_long_is_named_after_one_call() -> None:
    one = site(calls=1, late=3.0, blame=[[0, 1, 3.0]], before=[[0, 3.0], [1, 0.0]])
    assert culprit(report(one), one) == (0, 1, 3.0)
