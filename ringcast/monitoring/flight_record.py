"""Comparison of all ranks' flight records: the last operation of each, and the collectives in which they differ."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

from ringcast._util.dataclass import dataclass
from ringcast.control.events import in_words
from ringcast.monitoring.recorder import FILE, SIZE, Entry, Flight, decode

_LOST = "its record is lost with its host"
_NONE = (0, 0)  # before the first stage of the first call
ONE_BY_ONE = 16  # ranks that get a line each

Flights = Sequence[Flight | None]  # by rank; None where nothing is known


def read(directory: str, ranks: Iterable[int]) -> list[Flight | None]:
    """Return the flight records of these ranks of a job; None for those that never called `init`."""
    return [_read(os.path.join(directory, FILE.format(rank=rank)), rank) for rank in ranks]


def _read(path: str, rank: int) -> Flight | None:
    try:
        with open(path, "rb") as file:
            found = decode(file.read(SIZE))
    except OSError:
        return None
    return found if found is not None and found.rank == rank else None


@dataclass(frozen=True, slots=True)
class Row:
    """One collective on all ranks."""

    context: int
    number: int
    stage: int
    calls: dict[int, Entry]  # by rank
    missing: tuple[int, ...]  # ranks that have not come to it

    @property
    def differs(self) -> bool:
        """Whether ranks are not in the same call, or some of them in none while others wait."""
        calls = self.calls.values()
        return len({c.fingerprint for c in calls}) > 1 or len({c.state for c in calls}) > 1 or bool(self.missing)


def merge(flights: Flights) -> list[Row]:
    """Return the collectives that ranks have recorded, in order."""
    stages: dict[tuple[int, int, int], dict[int, Entry]] = defaultdict(dict)
    latest: dict[tuple[int, int], tuple[int, int]] = {}
    for flight in filter(None, flights):
        for e in flight.entries:
            if e.number:
                stages[e.context, e.number, e.stage][flight.rank] = e
                key = flight.rank, e.context
                latest[key] = max((e.number, e.stage), latest.get(key, _NONE))
    rows = []
    for (context, number, stage), here in sorted(stages.items(), key=lambda item: item[0]):
        missing = tuple(rank for rank in range(len(flights)) if latest.get((rank, context), _NONE) < (number, stage))
        rows.append(Row(context, number, stage, here, missing))
    return rows


def name(entry: Entry) -> str:
    """Return the name of an operation as in errors, such as "#17 allreduce"."""
    return f"{entry.label} {entry.collective}" if entry.number else f"{entry.collective} {entry.shape}"


def waits(entry: Entry) -> str:
    """Return the ranks that an operation was seen waiting for, in words; "" for none."""
    more = entry.waiting - len(entry.waiting_for)
    return in_words(entry.waiting_for) + (f" and {more} more" if more > 0 else "") if entry.waiting_for else ""


def last(flight: Flight | None) -> str:
    """Return a line on the last operation of a rank."""
    if flight is None:
        return "never called ringcast.init"
    if not flight.entries:
        return "has begun no operation" + ("" if flight.left is None else ", and has left the job")
    entry = flight.entries[-1]
    how = {"running": "in", "failed": "failed in", "done": "outside of any call, after"}[entry.state]
    if flight.left is not None and entry.state == "done":
        how = "has left the job after"
    facts = [f"{how} {name(entry)}{_details(entry)}"]
    if entry.round is not None and entry.state != "done":
        facts.append(f"round {entry.round}" + (f" of {entry.rounds}" if entry.rounds is not None else ""))
    if waiting := waits(entry):
        facts.append(f"waiting for {waiting}")
    return ", ".join([*facts, f"at {entry.file}:{entry.line}"])


def _details(entry: Entry) -> str:
    if not entry.number:
        return ""
    facts = [
        f"{entry.dtype} {entry.shape}".strip(),
        f"root {entry.root}" if entry.root is not None else "",
        f"by {entry.algorithm}" if entry.algorithm else "",
    ]
    known = ", ".join(filter(None, facts))
    return f" ({known})" if known else ""


def summary(flights: Flights, lost: Collection[int] = ()) -> list[str]:
    """Return a line for each rank, or for each group of ranks that did the same if they are many.

    Of the ranks in `lost` nobody can tell why there is no record.
    """
    lines = [(_LOST if flight is None and r in lost else last(flight), r) for r, flight in enumerate(flights)]
    if len(lines) <= ONE_BY_ONE:
        return [f"rank {rank}: {line}" for line, rank in lines]
    groups = [(line, [rank for _, rank in group]) for line, group in groupby(sorted(lines), key=lambda pair: pair[0])]
    return [f"{in_words(ranks)}: {line}" for line, ranks in sorted(groups, key=lambda pair: pair[1])]


def text(flights: Flights, lost: Collection[int] = ()) -> str:
    """Return the merged record: the ranks, then the collectives; "!" marks those in which the ranks differ."""
    lines = [*summary(flights, lost), ""]
    for row in merge(flights):
        lines += _row(row, len(flights))
    for flight in filter(None, flights):
        lines += [f"  rank {flight.rank}: {name(e)} {e.state}{_took(e)}" for e in flight.entries if not e.number]
    return "".join(line.rstrip() + "\n" for line in lines)


def _row(row: Row, size: int) -> Iterator[str]:
    """Yield the lines on a collective: one, or more if the ranks differ."""
    kinds: dict[tuple[str, str, str, str], list[int]] = {}
    for rank, entry in row.calls.items():
        place = f"{entry.file}:{entry.line}"
        kinds.setdefault((name(entry), _details(entry), place, entry.state), []).append(rank)
    for (called, details, place, state), ranks in kinds.items():
        longest = max((row.calls[rank] for rank in ranks), key=lambda e: (e.end or e.start) - e.start)
        who = "all ranks" if len(ranks) == size else in_words(ranks)
        yield f"{'!' if row.differs else ' '} {called}{details}: {state} on {who}{_took(longest)}, at {place}"
    if row.missing:
        yield f"! {next(iter(row.calls.values())).label}: not begun on {in_words(row.missing)}"


def _took(entry: Entry) -> str:
    return "" if entry.end is None else f" ({(entry.end - entry.start) * 1e3:.3f} ms)"


def to_json(flights: Flights) -> str:
    """Return everything that is known, as JSON: `ranks`, by rank, and `differing`, collectives that differ."""
    ranks = [None if flight is None else asdict(flight) for flight in flights]
    differing: list[dict[str, Any]] = [
        {
            "context": row.context,
            "number": row.number,
            "stage": row.stage,
            "missing": row.missing,
            "ranks": sorted(row.calls),
        }
        for row in merge(flights)
        if row.differs
    ]
    return json.dumps({"ranks": ranks, "differing": differing}, indent=1) + "\n"
