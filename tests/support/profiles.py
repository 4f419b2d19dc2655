"""Profiles of jobs that never ran, in the format "ringcast profile 1": all of one follows from its seed.

Ranks compute, then make the calls of a loop, one site after the other; a call is ready when its last rank has made it.
The sums of ranks and sites are those of the calls, so that a page of them agrees with itself.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

PARTS = ("late", "moving", "link", "combining", "python", "awaited")
NETWORK = {"alpha": 1.2e-6, "beta": 1e-10, "gamma": 1.3e-10}


@dataclass(frozen=True)
class Place:
    """A call in the loop of a program."""

    name: str
    algorithm: str
    shape: int  # items of float64
    line: int
    file: str = "/home/me/heat/solver.py"
    every: int = 1  # iterations

    @property
    def bytes(self) -> int:
        return 8 * self.shape


PLACES = (
    Place("bcast", "circulant", 250_000, 31, every=10),
    Place("allreduce", "circulant", 1_000, 41),
    Place("allgatherv", "circulant", 20_000, 44),
    Place("ialltoall", "bruck", 4_000, 58, every=3),
    Place("sendrecv", "", 500, 63),
    Place("barrier", "dissemination", 0, 70, every=5),
)
HOSTILE = (
    Place("allreduce", "circulant", 1_000, 1, '</script><script>document.title="pwned"</script>.py'),
    Place("bcast", "circulant", 1_000, 2, "<img src=x onerror=alert(1)>.py"),
    Place("<b>gather</b>", "ring", 1_000, 3, "\udcff\udcfe\u202egnp.py"),
    Place("scan", "doubling", 1_000, 4, "</style><!-- {{SCRIPT}} -->" + "é日本語" * 30 + ".py"),
)


@dataclass
class Job:
    """The sums while the calls are made up."""

    size: int
    places: Sequence[Place]
    chance: random.Random
    hosts: int = 1
    events: list[list[Any]] = field(default_factory=list)
    clock: list[float] = field(default_factory=list)
    parts: list[dict[str, float]] = field(default_factory=list)
    blamed: list[float] = field(default_factory=list)
    times: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    nets: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    by_site: dict[int, dict[str, float]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(float)))
    blame: dict[int, dict[int, list[float]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    by_rank: dict[tuple[int, int], list[float]] = field(default_factory=lambda: defaultdict(lambda: [0, 0.0, 0.0]))

    def __post_init__(self) -> None:
        self.clock = [0.03 * self.chance.random() for _ in range(self.size)]
        self.parts = [defaultdict(float) for _ in range(self.size)]
        self.blamed = [0.0] * self.size

    def compute(self, slow: int) -> None:
        """Let each rank compute for a while, one of them longer."""
        for rank in range(self.size):
            self.clock[rank] += self.chance.gauss(0.004, 0.0003) * (1.6 if rank == slow else 1)

    def call(self, number: int) -> None:
        """Let all ranks make a call."""
        place = self.places[number]
        last = max(range(self.size), key=self.clock.__getitem__)
        ready = self.clock[last]
        net = self.net(place) * self.chance.lognormvariate(0, 0.3)
        self.nets[number].append(net)
        waited = 0.0
        for rank in range(self.size):
            start = self.clock[rank]
            late, took = ready - start, net * self.chance.uniform(0.9, 1.1)
            end = ready + took
            self.events.append([rank, number, start, end, ready])
            self.clock[rank] = end
            self.times[number].append(end - start)
            waited += late
            share = {
                "late": late,
                "moving": 0.6 * took,
                "link": 0.2 * took,
                "combining": 0.1 * took,
                "python": 0.1 * took,
            }
            if place.name.startswith("i"):
                share = {"late": late, "awaited": 0.9 * took, "python": 0.1 * took}
            for part, seconds in share.items():
                self.parts[rank][part] += seconds
                self.by_site[number][part] += seconds
            row = self.by_rank[number, rank]
            row[0], row[1], row[2] = row[0] + 1, row[1] + end - start, row[2] + late
        self.blamed[last] += waited
        self.blame[number][last].append(waited)

    def net(self, place: Place) -> float:
        rounds = max(1, math.ceil(math.log2(max(self.size, 2))))
        return 60e-6 + rounds * 20e-6 + place.bytes * (4e-9 if self.hosts > 1 else 1e-9)


def profile(
    size: int = 4, iterations: int = 60, hosts: int = 1, seed: int = 1, places: Sequence[Place] = PLACES
) -> Any:
    """Return the profile of a job whose rank 3, or the last one, is slow."""
    job = Job(size, places, random.Random(seed), hosts)
    slow = min(3, size - 1)
    for i in range(iterations):
        job.compute(slow if job.chance.random() < 0.9 else job.chance.randrange(size))
        for number, place in enumerate(places):
            if i % place.every == 0:
                job.call(number)
    span = max(job.clock) + 0.02
    sites = sorted((_site(job, number) for number in range(len(places)) if job.times[number]), key=lambda s: -s["time"])
    sent, received = _totals(job)
    ranks = [_rank(job, rank, span) | {"sent": sent[rank], "received": received[rank]} for rank in range(size)]
    return {
        "format": "ringcast profile 1",
        "command": ["ringcast-launch", "-n", str(size), "--profile", "run.html", "heat/solver.py", "--grid", "400"],
        "began": 1764412345.6,
        "span": span,
        "failure": "",
        "missing": [],
        "notes": [],
        "machine": {
            "versions": {"ringcast": "0.1.0", "python": "3.11.7", "numpy": "2.3.5", "pyzmq": "27.1.0"},
            "protocol": "compiled", "transport": "sockets" if hosts > 1 else "shm", "system": "Linux 6.1 x86_64",
            "network": NETWORK,
        },
        "hosts": [
            {"name": f"node{i + 1}", "ranks": list(range(i * size // hosts, (i + 1) * size // hosts)), "cpus": 32}
            for i in range(hosts)
        ],
        "ranks": ranks,
        "sites": sites,
        "contexts": {"1": list(range(size))},
        "bytes": _bytes(job),
        "rates": _rates(job),
        "timeline": {"stride": 1, "events": job.events},
        "advice": _advice(sites, slow),
        "summary": _summary(ranks, sites, slow),
    }  # fmt: skip


def _rank(job: Job, rank: int, span: float) -> dict[str, Any]:
    parts = {part: job.parts[rank][part] for part in PARTS}
    return {
        "rank": rank, "host": f"node{rank * job.hosts // job.size + 1}", "pid": 4000 + rank, "span": span,
        "calls": sum(job.by_rank[number, rank][0] for number in range(len(job.places))),
        "program": span - sum(parts.values()), **parts, "hidden": parts["awaited"] / 2, "blamed": job.blamed[rank],
        "error": "",
    }  # fmt: skip


def _totals(job: Job) -> tuple[dict[int, int], dict[int, int]]:
    sent: dict[int, int] = defaultdict(int)
    received: dict[int, int] = defaultdict(int)
    for source, dest, total in _bytes(job):
        sent[source] += total
        received[dest] += total
    return sent, received


def _site(job: Job, number: int) -> dict[str, Any]:
    place, times = job.places[number], sorted(job.times[number])
    parts = {part: job.by_site[number][part] for part in PARTS}
    blame = [[rank, len(rows), sum(rows)] for rank, rows in job.blame[number].items()]
    calls = len(times) // job.size
    kind = "request" if place.name.startswith("i") else "message" if place.name == "sendrecv" else "collective"
    return {
        "id": number, "file": place.file, "line": place.line, "name": place.name, "kind": kind, "ranks": job.size,
        "context": 1, "collective": place.name.removeprefix("i"), "algorithm": place.algorithm, "nblocks": 1,
        "dtype": "float64", "shape": f"({place.shape},)", "op": "sum" if "reduce" in place.name else "",
        "root": 0 if place.name == "bcast" else None, "variants": 1, "calls": calls,
        "bytes_out": calls * sum(row[3] for row in _messages(job.size, place)),
        "bytes_in": calls * sum(row[3] for row in _messages(job.size, place)),
        "time": sum(times), **parts, "hidden": parts["awaited"] / 2, "median": median(times), "slowest": times[-1],
        "net": median(job.nets[number]) if kind != "message" else None,
        "predicted": job.net(place) * 0.8 if place.algorithm else None,
        "histogram": _histogram(times), "blame": sorted(blame, key=lambda row: -row[2]), "sampled": calls, "needed": [],
        "failed": 0, "lost": 0.0, "missed": [],
        "by_rank": [[rank, *job.by_rank[number, rank]] for rank in range(job.size)],
        "rounds": _rounds(job, place) if place.algorithm else None,
    }  # fmt: skip


def _histogram(times: Sequence[float]) -> list[list[float]]:
    counts: dict[int, int] = defaultdict(int)
    for seconds in times:
        counts[math.floor(math.log2(max(seconds, 1e-6) / 1e-6))] += 1
    return [[1e-6 * 2**i, counts[i]] for i in sorted(counts)]


def _messages(size: int, place: Place) -> list[list[int]]:
    """Return the messages of one call: each rank sends to the one that is 1, 2, 4, … further."""
    skips = [1] if place.name == "sendrecv" else [2**i for i in range(max(size - 1, 0).bit_length())]
    return [
        [i, rank, (rank + skip) % size, place.bytes]
        for i, skip in enumerate(skips if size > 1 else ())
        for rank in range(size)
    ]


def _rounds(job: Job, place: Place) -> dict[str, Any]:
    messages = _messages(job.size, place)
    many = 1 + max((row[0] for row in messages), default=-1)
    chance, measured = random.Random(place.line), []
    for rank in range(job.size):
        now = 0.0
        for i in range(many):
            end = now + job.net(place) / many * chance.uniform(0.8, 1.2)
            measured.append([rank, i, now, end])
            now = end + 4e-6
    return {"algorithm": place.algorithm, "nblocks": 1, "size": job.size, "messages": messages, "measured": measured}


def _bytes(job: Job) -> list[list[int]]:
    sums: dict[tuple[int, int], int] = defaultdict(int)
    for number, place in enumerate(job.places):
        for _, source, dest, count in _messages(job.size, place):
            sums[source, dest] += count * len(job.nets[number])
    return [[*pair, total] for pair, total in sorted(sums.items()) if total]


def _rates(job: Job) -> list[list[float]]:
    chance = random.Random(2)
    same = [rank * job.hosts // job.size for rank in range(job.size)]
    rates = [
        (source, dest, chance.uniform(0.6, 1) * (4e9 if same[source] == same[dest] else 1.1e9))
        for source, dest, total in _bytes(job)
        if total > 100_000
    ]
    return [[source, dest, rate, 1.2 * rate] for source, dest, rate in rates]


def _advice(sites: Sequence[Any], slow: int) -> list[dict[str, Any]]:
    if not sites:
        return []
    site = next((site for site in sites if site["name"] == "allreduce"), sites[0])
    named = f"{site['file'].rpartition('/')[2]}:{site['line']} {site['name']}"
    late = f"Rank {slow} is late in 9 of 10 calls of {named}: the others wait for it."
    small = f"{named} sends 8 kB in each of {site['calls']:,} calls, and its time is that of its rounds."
    less = f"Give rank {slow} less work, or look for other programs on its processor."
    once = "Put several values into one array, and call once."
    return [
        _rule("imbalance", late, less, site["id"], slow, site["late"]),
        _rule("small calls", small, once, site["id"], None, site["moving"]),
        _rule("compiled", "All ranks ran the compiled part.", "Keep it.", None, None, 0.0),
    ]


def _rule(rule: str, text: str, do: str, site: int | None, rank: int | None, seconds: float) -> dict[str, Any]:
    return {"rule": rule, "text": text, "do": do, "site": site, "rank": rank, "seconds": seconds}


def _summary(ranks: Sequence[Any], sites: Sequence[Any], slow: int) -> str:
    total = sum(row["span"] for row in ranks)
    outside = round(100 * sum(row["program"] for row in ranks) / total)
    if not sites:
        return f"{outside} % of the time is outside ringcast, which the program never called."
    return (
        f"{outside} % of the time is outside ringcast. Rank {slow} is late in 9 of 10 calls of {sites[0]['name']} at "
        f"{sites[0]['file'].rpartition('/')[2]}:{sites[0]['line']}; the others waited "
        f"{sites[0]['late']:.2f} s for it there."
    )


def four() -> Any:
    """Return the profile of four ranks on one host."""
    return profile()


def sixty_four() -> Any:
    """Return the profile of 64 ranks on two hosts, with 20,000 calls in its timeline."""
    made = profile(64, 86, hosts=2)
    made["timeline"]["events"] = made["timeline"]["events"][:20_000]
    return made


def thousands() -> Any:
    """Return the profile of 4,096 ranks on 64 hosts, 64 of which are in the timeline."""
    made = profile(4096, 3, hosts=64)
    made["timeline"]["events"] = [event for event in made["timeline"]["events"] if event[0] % 64 == 3]
    made["notes"].append("4,096 ranks: the timeline has 64 of them")
    return made


def hostile() -> Any:
    """Return a profile whose names are HTML, scripts, and bytes that are no text."""
    made = profile(4, 20, places=HOSTILE)
    made["command"] = ["ringcast-launch", "<script>alert(1)</script>", "\udcff"]
    made["notes"] = ["<iframe src=javascript:alert(1)>"]
    made["hosts"][0]["name"] = "<h1>node</h1>"
    return made


def failed() -> Any:
    """Return the profile of a job that ended when rank 2 was killed; of rank 5 nothing is known."""
    made = profile(6, 40)
    made["ranks"] = [row for row in made["ranks"] if row["rank"] != 5]
    made["timeline"]["events"] = [event for event in made["timeline"]["events"] if event[0] != 5]
    made["ranks"][2]["error"] = "was killed by SIGKILL"
    made["failure"] = "rank 2 (node1, pid 4002) was killed by SIGKILL"
    made["missing"] = [5]
    made["notes"] = ["rank 2 was killed: its last second is not in here"]
    return made


def empty() -> Any:
    """Return the profile of one rank that made no call."""
    return profile(1, 0)


ALL = {
    "four": four,
    "sixty_four": sixty_four,
    "thousands": thousands,
    "hostile": hostile,
    "failed": failed,
    "empty": empty,
}
