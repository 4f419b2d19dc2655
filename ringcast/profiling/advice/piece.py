"""A piece of advice, and what rules ask of a profile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from ringcast._util.dataclass import dataclass

Report: TypeAlias = Mapping[str, Any]
Site: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Advice:
    """A piece of advice: what was found, what to do, and how many seconds of all ranks it concerns."""

    rule: str
    text: str
    do: str
    seconds: float
    site: int | None = None
    rank: int | None = None


BUSY = 0.1  # share of the time without a processor, from which the times of calls tell little of the calls


def starved_share(report: Report) -> float:
    """Return in which share of the time ranks were ready to run and had no processor."""
    whole = sum(rank["span"] for rank in report["ranks"])
    return sum(rank.get("starved") or 0.0 for rank in report["ranks"]) / whole if whole else 0.0


def blocking_collectives(report: Report) -> Iterator[Site]:
    """Yield the call sites of collectives that block."""
    return (site for site in report["sites"] if site["kind"] == "collective")


def net_time(site: Site) -> float:
    """Return the seconds of a call site, of all ranks, in which no rank was late."""
    return float(site["time"] - site["late"])


def bytes_of_a_call(site: Site) -> float:
    """Return how many bytes a rank sends in a call, on the average."""
    return float(site["bytes_out"] / calls_of_all(site))


def calls_of_all(site: Site) -> int:
    """Return how many calls all ranks together have made, and 1 for none."""
    return max(1, sum(int(calls) for _, calls, _, _ in site["by_rank"]))


def ranks_in_words(ranks: list[int]) -> str:
    """Return some ranks in words.

    >>> ranks_in_words([3]), ranks_in_words([0, 1]), ranks_in_words([0, 1, 2, 3, 7, 9])
    ('rank 3', 'ranks 0 and 1', 'ranks 0, 1, 2, 3 and 2 more')
    """
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    shown = ranks[:-1] if len(ranks) <= 4 else ranks[:4]
    last = str(ranks[-1]) if len(ranks) <= 4 else f"{len(ranks) - 4} more"
    return f"ranks {', '.join(map(str, shown))} and {last}"
