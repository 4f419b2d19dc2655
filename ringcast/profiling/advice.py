"""Rules that tell from a profile what to change; each speaks only where the numbers show it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ringcast._util.dataclass import dataclass
from ringcast.profiling.words import place, seconds, share

Report = Mapping[str, Any]
WORTH = 0.05  # share of the time of all ranks that a piece of advice must concern


@dataclass(frozen=True, slots=True)
class Advice:
    """A piece of advice: what was found, what to do, and how many seconds of all ranks it concerns."""

    rule: str
    text: str
    do: str
    seconds: float
    site: int | None = None
    rank: int | None = None


def advice(report: Report) -> list[dict[str, Any]]:
    """Return all advice, what concerns the most time first."""
    whole = sum(rank["span"] for rank in report["ranks"])
    found = [one for rule in RULES for one in rule(report) if one.seconds >= WORTH * whole]
    found.sort(key=lambda one: -one.seconds)
    return [
        {"rule": a.rule, "text": a.text, "do": a.do, "seconds": a.seconds, "site": a.site, "rank": a.rank}
        for a in found
    ]


def _imbalance(report: Report) -> Iterator[Advice]:
    """A rank is late again and again in a call, as it has more to do before it, or a slower processor."""
    for site in report["sites"]:
        for rank, calls, cost in site["blame"][:1]:
            if calls < 0.5 * site["sampled"] or cost < 0.5 * site["late"]:
                continue
            text = f"Rank {rank} is late in {calls} of {site['sampled']} calls of {place(site)}: others wait for it, "
            text += f"{seconds(cost)} in all, {share(site['late'], site['time'])} of the time of these calls."
            do = f"Give rank {rank} less work before this call, or find what slows it down there."
            yield Advice("imbalance", text, do, cost, site["id"], rank)


RULES = (_imbalance,)
