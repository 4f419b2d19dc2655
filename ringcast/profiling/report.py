"""The report on a job, from the parts that its ranks have recorded: plain data for JSON, the page and the table.

The time of a rank is divided without a rest: into the program outside ringcast, and in calls into waiting for a rank
that was late, bytes under way, waiting for a link, combining, ringcast's own Python, and waiting for requests. The
lateness is known for the calls whose moments were kept, and scaled
to the time of all calls of the same site; the division of the rest is known for calls whose rounds were observed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain
from statistics import median
from typing import Any

from ringcast._util.rank_words import ranks_in_words
from ringcast.engine.profiler import MESSAGES, is_kept
from ringcast.monitoring.trace import from_json, messages, rounds, shifted, totals
from ringcast.profiling.advice import advice
from ringcast.profiling.busy import Busy
from ringcast.profiling.clocks import compared
from ringcast.profiling.lateness import Call, alone, calls_of, late, matched, waits
from ringcast.profiling.typical import median_time
from ringcast.profiling.words import seconds as words
from ringcast.profiling.words import summary
from ringcast.wire.call import in_words
from ringcast.wire.header import STAGES

FORMAT = "ringcast profile 1"
EVENTS = 20_000  # in the timeline
OWN = 0.5  # share of a wait in which the late rank does not wait itself, if it is to blame
LEAST_LATE, LATE_SHARE = 50e-6, 0.1  # seconds, and share of a call, from which a rank counts as late in it
RATED = 64 << 10  # bytes of a message from which its rate is known
MEASURED = 8000  # rounds of an observed call that are kept, of the first ranks
OVERLAP = 0.05  # of the time of a rank, for which its calls lie beside each other, that is worth a word
NETS = 4096  # calls of a site whose time without lateness is kept
TRANSFERS = frozenset({"bcast_file", "read_file", "read_rows", "fetch"})
CROWDED = 4  # call sites whose tallies were shared, that a note names
PHASES = ("late", "moving", "link", "combining", "python", "awaited")

Part = Mapping[str, Any]
Key = tuple[str, int, str]  # file, line and name of a call site


def report(
    parts: Sequence[Part],
    size: int,
    *,
    command: Sequence[str] = (),
    failure: str = "",
    errors: Mapping[int, str] | None = None,
) -> dict[str, Any]:
    """Return the report on a job of `size` ranks; `errors` ended the programs of ranks, `failure` the job."""
    if not parts:
        raise ValueError("expected the part of one rank or more")
    return _Report(sorted(parts, key=lambda part: part["rank"]), size).made(command, failure, errors or {})


class _Site:
    """The sums of one call site over all ranks and kinds of arguments."""

    def __init__(self) -> None:
        self.tallies: list[tuple[int, int, Part]] = []  # with rank and number
        self.net: list[float] = []
        self.whole: list[float] = []  # times of calls whose moments were kept
        self.sampled = 0
        self.blamed: Counter[int] = Counter()  # in how many calls a rank was the last
        self.cost: defaultdict[int, float] = defaultdict(float)  # for how long others have waited for it
        self.waited = 0.0  # for how long ranks have waited for late ones, whether these were to blame or not
        self.needed: Counter[int] = Counter()  # of messages: how many were received from a rank, or sent to it
        self.awaits: set[Key] = set()  # where late ranks make the call, or send what is received here
        self.moving = self.combining = self.observed = 0.0  # of the time of observed calls
        self.measured: list[tuple[int, int, float, float]] = []  # rounds of an observed call


class _Tally:
    """The sums of one rank's tally that follow from the moments of all ranks."""

    def __init__(self) -> None:
        self.sampled = self.late = 0.0


class _Report:
    def __init__(self, parts: Sequence[Part], size: int) -> None:
        self.parts, self.size = parts, size
        calls = list(calls_of(parts, [0.0] * len(parts)))
        self.shift, self.apart = compared(parts, calls)
        if any(self.shift):
            calls = list(calls_of(parts, self.shift))
        calls = matched(calls)
        self.zero = min(part["start"] + by for part, by in zip(parts, self.shift, strict=True))
        self.sites: dict[Key, _Site] = defaultdict(_Site)
        self.tallies: dict[tuple[int, int], _Tally] = defaultdict(_Tally)
        self.tally_of = {(p["rank"], i): tally for p in parts for i, tally in enumerate(p["tallies"])}
        self.key_of = {place: _key(tally) for place, tally in self.tally_of.items()}
        contexts = chain.from_iterable(part["contexts"].items() for part in reversed(parts))
        used = {tally["context"] for part in parts for tally in part["tallies"]}
        self.members: dict[int, Sequence[int]] = {context: [*range(size)] for context in sorted(used)}
        self.members |= {int(context): members for context, members in contexts}
        self.received: Counter[int] = Counter()
        for part in parts:
            self.received.update(dict(part["sent"]))
        self.rates: dict[tuple[int, int], list[float]] = defaultdict(list)
        self.events: list[tuple[int, Key, float, float, float | None]] = []
        for (rank, number), tally in self.tally_of.items():
            self.sites[_key(tally)].tallies.append((rank, number, tally))
        self.busy = self._busy(calls)
        every = max(1, sum(len(call.moments) for call in calls) // EVENTS + 1)
        for number, call in enumerate(calls):
            self._count(call, shown=is_kept(number, every))
        self.every = every
        self.overlapping: list[int] = []
        self._add_slowest()
        self._observe()

    def made(self, command: Sequence[str], failure: str, errors: Mapping[int, str]) -> dict[str, Any]:
        parts, first = self.parts, self.parts[0]
        known = {part["rank"] for part in parts}
        sites = sorted((self._site(key) for key in self.sites), key=lambda site: -float(site["time"]))
        for number, site in enumerate(sites):
            site["id"] = number
        ranks = [self._rank(part, errors.get(part["rank"], part["error"])) for part in parts]
        self._blame(ranks, sites)
        made: dict[str, Any] = {
            "format": FORMAT,
            "command": list(command) or first["command"],
            "began": min(part["began"] for part in parts),
            "span": max(part["end"] + by for part, by in zip(parts, self.shift, strict=True)) - self.zero,
            "failure": failure,
            "missing": [rank for rank in range(self.size) if rank not in known],
            "notes": self._notes(),
            "machine": {name: first[name] for name in ("versions", "protocol", "transport", "system", "network")},
            "hosts": self._hosts(),
            "ranks": ranks,
            "sites": sites,
            "contexts": {str(context): members for context, members in self.members.items()},
            "bytes": [(part["rank"], to, nbytes) for part in parts for to, nbytes in part["sent"]],
            "rates": [(*pair, median(rates), max(rates)) for pair, rates in sorted(self.rates.items())],
            "timeline": {"stride": self.every * max(part["stride"] for part in parts), "events": self._timeline(sites)},
        }
        made["advice"] = advice(made)
        made["summary"] = summary(made)
        return made

    def _count(self, call: Call, *, shown: bool) -> None:
        """Count the lateness in a call."""
        others = [*call.moments, *call.others]
        needed = waits(call, call.moments, others)
        tally_at = {moment.rank: moment.tally for moment in others}
        worst: tuple[float, int, Key] | None = None
        for moment, wait in zip(call.moments, needed, strict=True):
            place = moment.rank, moment.tally
            tally = self.tally_of[place]
            key, seconds, whole = self.key_of[place], late(moment, wait), moment.ended - moment.began
            site, sums = self.sites[key], self.tallies[place]
            sums.sampled += whole
            site.whole.append(whole)
            if len(site.net) < NETS:
                site.net.append(whole - alone(moment, wait))
            sums.late += seconds
            site.sampled += tally["ends"] is not None or moment.number % STAGES == 0
            if wait is not None and tally["ends"] is not None:
                site.needed[wait.rank] += 1
            if wait is not None and seconds:
                site.waited += seconds
                site.awaits.add(self.key_of[wait.rank, tally_at[wait.rank]])
                own = self._is_own(wait.rank, moment.waits, moment.waits + seconds)
                site.cost[wait.rank] += seconds * own
                if own and seconds >= max(LEAST_LATE, LATE_SHARE * (moment.ended - moment.waits)):
                    worst = max(worst or (0.0, 0, key), (seconds, wait.rank, key))
            if shown:
                ready = None if wait is None else wait.ready - self.zero
                self.events.append((moment.rank, key, moment.began - self.zero, moment.ended - self.zero, ready))
        if worst is not None:
            self.sites[worst[2]].blamed[worst[1]] += 1

    def _busy(self, calls: Sequence[Call]) -> dict[int, Busy]:
        """Return for how long each rank is in calls that block, or waits for requests, if all of that was kept."""
        if any(part["stride"] > 1 for part in self.parts):
            return {}
        times: dict[int, list[tuple[float, float]]] = defaultdict(list)
        for call in calls:
            for moment in call.moments:
                times[moment.rank].append((moment.waits, moment.ended))
        return {rank: Busy(found) for rank, found in times.items()}

    def _is_own(self, rank: int, start: float, end: float) -> bool:
        """Return whether a rank was late in this time by its own program, and not as others made it wait."""
        busy = self.busy.get(rank)
        return busy is None or end - start - busy.within(start, end) >= OWN * (end - start)

    def _add_slowest(self) -> None:
        """Add the slowest call of each site on each rank to the timeline, unless it is there already."""
        shown = {(rank, began) for rank, _, began, _, _ in self.events}
        for part, by in zip(self.parts, self.shift, strict=True):
            slowest: dict[Key, tuple[float, float]] = {}
            for tally in part["tallies"]:
                seconds, _, began = tally["slowest"]
                slowest[_key(tally)] = max(slowest.get(_key(tally), (0.0, 0.0)), (seconds, began))
            for key, (seconds, began) in slowest.items():
                start = began + by - self.zero
                if seconds and began >= part["start"] and (part["rank"], start) not in shown:
                    self.events.append((part["rank"], key, start, start + seconds, None))

    def _observe(self) -> None:
        """Divide the time of the calls whose rounds were observed."""
        calls: dict[tuple[int, int], dict[int, tuple[Key, list[Any]]]] = defaultdict(dict)
        for part, by in zip(self.parts, self.shift, strict=True):
            for number, op, events in part["traces"]:
                tally = part["tallies"][number]
                calls[tally["context"], op][part["rank"]] = _key(tally), [shifted(from_json(e), by) for e in events]
        for (context, _), found in calls.items():
            key = next(iter(found.values()))[0]
            self._observed(
                self.sites[key], {rank: events for rank, (_, events) in found.items()}, self.members[context]
            )

    def _observed(self, site: _Site, events: Mapping[int, list[Any]], members: Sequence[int]) -> None:
        """Take the rounds of one call; `events` are by rank in the job, as `members` of the communicator are."""
        of_all = [events.get(rank, []) for rank in range(self.size)]
        by_rank = [rounds(mine) for mine in of_all]
        starts = [mine[0].start.time for mine in by_rank if mine]
        if not starts:
            return
        ready = max(starts)
        for one, mine in zip(totals(of_all), by_rank, strict=True):
            if mine:
                site.observed += max(0.0, mine[-1].end.time - max(ready, mine[0].start.time))
                site.moving += one.transfer
                site.combining += one.local
        for message in messages(by_rank):
            seconds = message.arrived - message.opened
            if message.nbytes >= RATED and seconds > 0:
                self.rates[message.sender.start.rank, message.receiver.start.rank].append(message.nbytes / seconds)
        zero = min(starts)
        place = {rank: i for i, rank in enumerate(members)}
        site.measured = [
            (place[done.start.rank], done.start.round, done.start.time - zero, done.end.time - zero)
            for mine in by_rank
            for done in mine
        ][:MEASURED]

    def _phases(self, rank: int, number: int, tally: Part) -> dict[str, float]:
        """Return the time of a rank's tally by phase; the sum is its blocking time, its Python and its waits."""
        sums, site = self.tallies[rank, number], self.sites[_key(tally)]
        whole = tally["under_way"] if tally["requests"] else tally["blocking"]
        known = sums.late * whole / sums.sampled if sums.sampled else 0.0
        if tally["requests"]:
            waited = min(known, tally["awaited"])
            large = tally["sent"] + tally["received"] >= RATED * tally["requests"]  # they move while the call begins
            begun = {"moving": tally["blocking"] + large * tally["python"], "python": (not large) * tally["python"]}
            rest = {"late": waited + _missing(tally), "awaited": tally["awaited"] - waited}
            return dict.fromkeys(PHASES, 0.0) | rest | begun | {"link": tally["lost"] - _missing(tally)}
        net = tally["blocking"] - known
        moving, combining = net, 0.0
        if site.observed > 0:
            moving = net * min(1.0, site.moving / site.observed)
            combining = min(net - moving, net * site.combining / site.observed)
        link = net - moving - combining + tally["lost"] - _missing(tally)
        rest = {"late": known + _missing(tally), "moving": moving, "combining": combining, "link": link}
        return dict.fromkeys(PHASES, 0.0) | rest | {"python": tally["python"]}

    def _site(self, key: Key) -> dict[str, Any]:
        file, line, name = key
        site = self.sites[key]
        tallies = [tally for _, _, tally in site.tallies]
        phases = [(rank, tally, self._phases(rank, number, tally)) for rank, number, tally in site.tallies]
        sums = {phase: sum(each[phase] for _, _, each in phases) for phase in PHASES}
        main = max(
            tallies,
            key=lambda t: (not t["shared"], not _counts(t), bool(t["messages"]), t["blocking"] + t["under_way"]),
        )
        per_rank: dict[int, list[float]] = defaultdict(lambda: [0, 0.0, 0.0])
        for rank, tally, each in phases:
            mine = per_rank[rank]
            mine[0] += tally["calls"]
            mine[1] += sum(each.values())
            mine[2] += each["late"]
        histogram: Counter[int] = Counter()
        for tally in tallies:
            histogram.update(dict(tally["histogram"]))
        middle, rough = median_time(histogram, site.whole)
        lost = sum(map(_missing, tallies))
        scale = _scale(sums["late"] - lost, site.waited)
        sampled = site.sampled // max(1, len(per_rank))
        of = dict(site.needed)
        blame = [
            (rank, min(site.blamed[rank], of.get(rank, sampled)), seconds * scale)
            for rank, seconds in site.cost.items()
        ]
        calls = max(int(mine[0]) for mine in per_rank.values())
        slowest = max(tally["slowest"][0] for tally in tallies)
        return {
            "id": 0,
            "file": file,
            "line": line,
            "name": name,
            "kind": _kind(main),
            "ranks": len(self.members[main["context"]]),
            "context": main["context"],
            **{fact: main[fact] for fact in ("collective", "algorithm", "nblocks", "dtype", "shape", "op", "root")},
            "variants": len({(t["context"], t["dtype"], t["shape"], t["algorithm"], t["op"]) for t in tallies}),
            "calls": calls,
            "bytes_out": sum(tally["sent"] for tally in tallies),
            "bytes_in": sum(tally["received"] for tally in tallies),
            "time": sum(sums.values()),
            **sums,
            "counting": sum(sum(each.values()) - each["late"] for _, tally, each in phases if _counts(tally)),
            "hidden": sum(max(0.0, t["under_way"] - t["awaited"]) for t in tallies),
            "median": min(middle, slowest),
            "median_is_rough": rough,
            "slowest": slowest,
            "net": median(site.net) if site.net else None,
            "predicted": main["predicted"],
            "histogram": [(2**i / 2e9, count) for i, count in sorted(histogram.items())],
            "blame": sorted(blame, key=lambda each: -each[2]),
            "sampled": sampled,
            "needed": sorted(of.items()),
            "before": self._before(key),
            "failed": sum(tally["failed"] for tally in tallies),
            "lost": lost,
            "missed": self._missed(key) if lost else [],
            "objects": sum(tally["objects"] for tally in tallies),
            "by_rank": [(rank, int(mine[0]), mine[1], mine[2]) for rank, mine in sorted(per_rank.items())],
            "rounds": _rounds(main, site, len(self.members[main["context"]]))
            if main["messages"] or site.measured
            else None,
        }

    def _missed(self, key: Key) -> list[int]:
        """Return the ranks that others have awaited in a call that failed, and that have not waited themselves."""
        missed = {rank for _, _, tally in self.sites[key].tallies for rank in tally["missed"]}
        waiting = {rank for (rank, _), tally in self.tally_of.items() if tally["missed"]}
        return sorted(missed - waiting or missed)

    def _before(self, key: Key) -> list[tuple[int, float]]:
        """Return by rank the time of the program before calls of this site, and of those for which it waits."""
        before: defaultdict[int, float] = defaultdict(float)
        for one in {key, *self.sites[key].awaits}:
            for rank, _, tally in self.sites[one].tallies:
                before[rank] += tally["before"]
        return sorted(before.items())

    def _rank(self, part: Part, error: str) -> dict[str, Any]:
        rank = part["rank"]
        sums = dict.fromkeys(PHASES, 0.0)
        for number, tally in enumerate(part["tallies"]):
            for phase, seconds in self._phases(rank, number, tally).items():
                sums[phase] += seconds
        span = part["end"] - part["start"]
        inside = span - part["outside"]
        if (known := sum(sums.values())) > inside:  # calls of several threads
            sums = {phase: seconds * max(0.0, inside) / known for phase, seconds in sums.items()}
            if known - inside > OVERLAP * span:
                self.overlapping.append(rank)
        sums["python"] += max(0.0, inside - sum(sums.values()))
        hidden = sum(max(0.0, t["under_way"] - t["awaited"]) for t in part["tallies"])
        return {
            "rank": rank,
            "host": part["host"],
            "pid": part["pid"],
            "span": span,
            "calls": sum(tally["calls"] for tally in part["tallies"]),
            "program": part["outside"],
            **sums,
            "hidden": hidden,
            "blamed": 0.0,
            "sent": sum(nbytes for _, nbytes in part["sent"]),
            "received": self.received[rank],
            "bound": part["bound"],
            "starved": part["starved"],
            "error": error,
        }

    def _blame(self, ranks: Sequence[dict[str, Any]], sites: Sequence[Mapping[str, Any]]) -> None:
        """Add up for how long others have waited for each rank."""
        cost: defaultdict[int, float] = defaultdict(float)
        for site in sites:
            for rank, _, seconds in site["blame"]:
                cost[rank] += seconds
        for row in ranks:
            row["blamed"] = cost[row["rank"]]

    def _hosts(self) -> list[dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for part in self.parts:
            host = found.setdefault(part["host"], {"name": part["host"], "ranks": [], "cpus": part["cpus"]})
            host["ranks"].append(part["rank"])
        return list(found.values())

    def _timeline(self, sites: Sequence[Mapping[str, Any]]) -> list[tuple[int, int, float, float, float | None]]:
        number = {(site["file"], site["line"], site["name"]): site["id"] for site in sites}
        return sorted((rank, number[key], began, ended, ready) for rank, key, began, ended, ready in self.events)

    def _notes(self) -> list[str]:
        notes = []
        stride = max(part["stride"] for part in self.parts)
        for host, seconds in self.apart.items():
            hosts = f"{self.parts[0]['host']} and {host}"
            notes.append(
                f"The clocks of hosts {hosts} have run apart by {words(seconds)} or more during the job, or one has "
                "jumped: which of their ranks was late, and for how long, is uncertain."
            )
        if stride > 1:
            notes.append(f"Lateness was recorded for one of {stride} calls, and is scaled up to all.")
        if crowded := {_key(tally) for tally in self.tally_of.values() if tally["shared"]}:
            places = [in_words(name, (file, line)) for file, line, name in sorted(crowded)]
            names = ", ".join(places[:CROWDED]) + (", …" if len(places) > CROWDED else "")
            notes.append(
                f"Too many sizes, kinds of arguments or communicators to know the lateness of all calls of {names}: "
                "it is that of the first ones only, and in the others it counts as moving."
            )
        if unfinished := [part["rank"] for part in self.parts if not part["over"]]:
            notes.append(f"The last seconds of {ranks_in_words(unfinished)} are missing.")
        if self.overlapping:
            overlapping = ranks_in_words(self.overlapping)
            notes.append(f"Threads of {overlapping} call at the same time: call sites have the times of all threads.")
        return notes


def _key(tally: Part) -> Key:
    return tally["file"], tally["line"], tally["name"] or tally["collective"] or "further calls"


def _missing(tally: Part) -> float:
    """Return for how long calls that failed have waited for ranks that did not come."""
    return float(tally["lost"]) if tally["missed"] else 0.0


def _counts(tally: Part) -> bool:
    """Return whether the operations of a tally exchange the counts that a call has left out."""
    return str(tally["shape"]).endswith("counts left out")


def _kind(tally: Part) -> str:
    if tally["requests"]:
        return "persistent" if tally["name"].endswith("_init") else "request"
    if tally["name"] in TRANSFERS:
        return "transfer"
    return "message" if tally["collective"] in MESSAGES else "collective"


def _rounds(tally: Part, site: _Site, size: int) -> dict[str, Any]:
    return {
        "algorithm": tally["algorithm"],
        "nblocks": tally["nblocks"],
        "size": size,
        "messages": tally["messages"],
        "measured": site.measured,
    }


def _scale(whole: float, sampled: float) -> float:
    return whole / sampled if sampled else 1.0
