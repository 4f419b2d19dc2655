"""Comparison of all ranks' flight records: the last operation of each, and the collectives in which they differ."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from types import MappingProxyType
from typing import Any

from ringcast._util.dataclass import dataclass
from ringcast._util.rank_words import ranks_in_words
from ringcast.errors import SourceChanged, SourceError, TransferError
from ringcast.wire.flight import FILE, Entry, Flight, decode

_LOST = "its record is lost with its host"
_NONE = (0, 0)  # before the first stage of the first call
_ERRORS_OF_FILES = tuple(
    kind.__name__ for kind in (TransferError, SourceError, SourceChanged)
)  # of calls that make others
ONE_BY_ONE = 8  # ranks that get a line each
MOST_WAITS = 4  # groups of ranks with the same waits that are named

Flights = Sequence[Flight | None]  # by rank; None where nothing is known


def read(directory: str, ranks: Iterable[int]) -> list[Flight | None]:
    """Return the flight records of these ranks of a job; None for ranks that never called `init`."""
    return [_read(os.path.join(directory, FILE.format(rank=rank)), rank) for rank in ranks]


def _read(path: str, rank: int) -> Flight | None:
    try:
        with open(path, "rb") as file:
            found = decode(file.read())
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
        """Whether ranks are in different calls, or some are in no call while others wait."""
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


def place(entry: Entry) -> str:
    """Return the file, without its folder, and the line of an operation."""
    return f"{os.path.basename(entry.file)}:{entry.line}"


def waits(entry: Entry) -> str:
    """Return the ranks that an operation was seen waiting for, in words; "" for none."""
    more = entry.waiting - len(entry.waiting_for)
    return ranks_in_words(entry.waiting_for) + (f" and {more} more" if more > 0 else "") if entry.waiting_for else ""


def who_waits(flights: Flights) -> str:
    """Return in words which ranks wait for which others, first for ranks that are in no call; empty if none waits."""
    groups: dict[str, list[int]] = {}
    for rank, flight in enumerate(flights):
        entry = flight.entries[-1] if flight is not None and flight.entries else None
        waiting = entry is not None and entry.state != "done" and waits(entry)
        if waiting or (flight is not None and flight.left is None):
            groups.setdefault(waiting or "", []).append(rank)
    idle = groups.pop("", [])
    told = [f"{ranks_in_words(ranks)} {_verb(ranks, 'wait')} for {others}" for others, ranks in groups.items()]
    more = [f"{len(told) - MOST_WAITS} more groups wait for others"] if len(told) > MOST_WAITS else []
    first = [f"{ranks_in_words(idle)} {_verb(idle, 'be')} in no call"] if idle else []
    return "; ".join([*first, *told[:MOST_WAITS], *more]) if told else ""


def _verb(ranks: Sequence[int], verb: str) -> str:
    one, several = {"be": ("is", "are")}.get(verb, (f"{verb}s", verb))
    return one if len(ranks) == 1 else several


def last(flights: Flights, raised: str = "", *, how_far: bool = True) -> str:
    """Return a line on the last operation of a rank, or of several that differ only in how far they came in it.

    `raised` is the name of the error that ended their programs.
    """
    flight = flights[0]
    if flight is None:
        return "never called ringcast.init"
    if not flight.entries:
        left = "" if flight.left is None else ", and has left the job"
        return f"raised {raised} before its first operation" if raised else f"has begun no operation{left}"
    entry = flight.entries[-1]
    ended = f"raised {raised} after" if raised else "has left the job after" if flight.left is not None else ""
    how = {"running": "in", "failed": "failed in", "done": ended or "outside of any call, after"}[entry.state]
    facts = [f"{how} {name(entry)}{_details(entry)}"]
    if how_far and entry.state != "done":
        facts += _how_far([one.entries[-1] for one in flights if one is not None])
    return ", ".join([*facts, f"at {entry.file}:{entry.line}"])


def _how_far(entries: Sequence[Entry]) -> Iterator[str]:
    """Yield the rounds that ranks are in, and the ranks that they wait for."""
    rounds = sorted({entry.round for entry in entries if entry.round is not None})
    if rounds:
        of = f" of {entries[0].rounds}" if entries[0].rounds is not None else ""
        yield (f"round {rounds[0]}" if len(rounds) == 1 else f"rounds {rounds[0]} to {rounds[-1]}") + of
    peers = sorted({rank for entry in entries for rank in entry.waiting_for})
    if peers:
        yield f"waiting for {waits(entries[0]) if len(entries) == 1 else ranks_in_words(peers)}"


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


def summary(
    flights: Flights, lost: Collection[int] = (), raised: Mapping[int, str] = MappingProxyType({})
) -> list[str]:
    """Return a line for each rank, or for each group of ranks that were in the same call if they are many.

    The reason why a rank in `lost` has no record is unknown; `raised` names the errors that ended programs. There is no
    line for an error of `read_file` in a call of its own: the program's traceback has the place.
    """
    groups: dict[str, list[int]] = {}
    for rank, flight in enumerate(flights):
        if raised.get(rank) in _ERRORS_OF_FILES and _is_over(flight):
            continue
        same = last([flight], raised.get(rank, ""), how_far=False)
        key = str(rank) if len(flights) <= ONE_BY_ONE else _LOST if flight is None and rank in lost else same
        groups.setdefault(key, []).append(rank)
    return [f"{ranks_in_words(ranks)}: {_what(flights, ranks, lost, raised)}" for ranks in groups.values()]


def _is_over(flight: Flight | None) -> bool:
    """Return whether the last call of a rank is over, which such a call has made before its error."""
    return flight is not None and bool(flight.entries) and flight.entries[-1].state == "done"


def _what(flights: Flights, ranks: Sequence[int], lost: Collection[int], raised: Mapping[int, str]) -> str:
    first = ranks[0]
    if flights[first] is None and first in lost:
        return _LOST
    return last([flights[rank] for rank in ranks], raised.get(first, ""))


def text(flights: Flights, lost: Collection[int] = (), raised: Mapping[int, str] = MappingProxyType({})) -> str:
    """Return the merged record: the ranks, then the collectives; "!" marks collectives in which the ranks differ."""
    lines = [*summary(flights, lost, raised), ""]
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
        who = "all ranks" if len(ranks) == size else ranks_in_words(ranks)
        yield f"{'!' if row.differs else ' '} {called}{details}: {state} on {who}{_took(longest)}, at {place}"
    if row.missing:
        yield f"! {next(iter(row.calls.values())).label}: not begun on {ranks_in_words(row.missing)}"


def _took(entry: Entry) -> str:
    return "" if entry.end is None else f" ({(entry.end - entry.start) * 1e3:.3f} ms)"


def to_json(flights: Flights) -> str:
    """Return the whole merged record as JSON: `ranks`, by rank, and `differing`, collectives that differ."""
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
