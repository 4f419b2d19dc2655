"""Make the data of a page from a profile: small, and no more than a page can show.

Nothing is left out without a line in the page's `notes`. Times of the timeline become whole numbers of a `tick`, each
as the difference to the one before, and equal keys of many objects are written once: both halve the page.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ringcast.profiling.page.matrices import matrices

EVENTS = 24_000  # calls in the timeline
ROWS = 128  # ranks in the timeline
TICKS = 50_000_000  # of a job: of an hour 72 microseconds, of a minute 1.2
DIGITS = 6  # of times
SITES = 400  # call sites
DRAWN_SITES = 16  # call sites whose rounds are drawn: the ones that take the most time
DRAWN_RANKS = 64  # in a drawing of rounds
DRAWN_MESSAGES = 1024  # in such a drawing
NAMED_RANKS = 64  # of a call site one by one, and ranks for which it waited
NAMING_SITES = 64  # call sites that name many ranks: the ones that take the most time; others name fewer
FEW_RANKS = 8
CONTEXTS = 100  # communicators

Profile = Mapping[str, Any]


def compact(profile: Profile) -> dict[str, Any]:
    """Return the data of the page; the profile is unchanged."""
    notes = list(profile.get("notes", ()))
    timeline = _timeline(profile, notes)
    left = {key: value for key, value in profile.items() if key not in ("bytes", "rates", "timeline", "ranks", "sites")}
    small: dict[str, Any] = _rounded(left)
    if "began" in profile:
        small["began"] = profile["began"]
    sites = _sites(profile, notes)
    return {
        **small,
        "contexts": _contexts(profile, notes),
        "ranks": _columns(_rounded(profile.get("ranks", []))),
        "sites": _rounded(sites),
        "matrices": _rounded(matrices(profile)),
        "timeline": timeline,
        "notes": notes,
    }


def _rounded(value: Any) -> Any:
    """Return the same data with fewer digits; infinity and NaN, which JSON lacks, are None."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _rounded(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(one) for one in value]
    return value


def _columns(rows: Sequence[Profile]) -> dict[str, list[Any]]:
    """Return the values of each key of objects that have the same keys."""
    keys = dict.fromkeys(key for row in rows for key in row)
    return {key: [row.get(key) for row in rows] for key in keys}


def _sites(profile: Profile, notes: list[str]) -> list[dict[str, Any]]:
    sites = [dict(site) for site in profile.get("sites", ())]
    if len(sites) > SITES:
        notes.append(f"Of {len(sites):,} call sites this page has the {SITES} that took the most time.")
        sites = sorted(sites, key=lambda site: -site.get("time", 0))[:SITES]
    for place, site in enumerate(sorted(sites, key=lambda site: -site.get("time", 0))):
        named = NAMED_RANKS if place < NAMING_SITES else FEW_RANKS
        by_rank = site.get("by_rank", [])
        if len(by_rank) > named:
            site["by_rank"] = sorted(sorted(by_rank, key=lambda row: -row[2])[:named])
            site["more_ranks"] = len(by_rank) - named
        site["blame"] = site.get("blame", [])[:named]
        site.pop("before", None)  # which has told its part in the advice
        site["context"] = str(site.get("context", ""))  # JavaScript has no numbers of 64 bits
        rounds = site.get("rounds")
        site["rounds"] = _drawn(rounds) if rounds and place < DRAWN_SITES else None
    return sites


def _contexts(profile: Profile, notes: list[str]) -> dict[str, dict[str, Any]]:
    contexts = profile.get("contexts", {})
    if len(contexts) > CONTEXTS:
        notes.append(f"Of {len(contexts):,} communicators this page has the first {CONTEXTS}.")
    first = list(contexts.items())[:CONTEXTS]
    return {number: {"size": len(ranks), "ranks": ranks[:NAMED_RANKS]} for number, ranks in first}


def _drawn(rounds: Profile) -> dict[str, Any]:
    """Return the rounds of so many ranks, the first ones, that the drawing of their messages can be read."""
    messages, measured = rounds.get("messages", []), rounds.get("measured", [])
    if rounds["size"] <= DRAWN_RANKS and max(len(messages), len(measured)) <= DRAWN_MESSAGES:
        return dict(rounds)
    last = 1 + max((row[column] for column, rows in ((0, messages), (1, measured)) for row in rows), default=0)
    drawn = max(min(DRAWN_RANKS, rounds["size"], DRAWN_MESSAGES // last), 2)
    return {
        **rounds,
        "drawn": drawn,
        "messages": [row for row in messages if row[1] < drawn and row[2] < drawn][:DRAWN_MESSAGES],
        "measured": [row for row in measured if row[0] < drawn][:DRAWN_MESSAGES],
    }


def _timeline(profile: Profile, notes: list[str]) -> dict[str, Any]:
    """Return the events by rank: lists of numbers, each event four: site, start, length, and wait.

    The start is counted in ticks from the start of the event before; the wait, from the start until the call was
    ready, is -1 where it is unknown.
    """
    timeline = profile.get("timeline", {})
    events = _of_most_telling_ranks(timeline.get("events", []), profile, notes)
    events = _fewer(events, notes)
    last = max((event[3] for event in events), default=0.0)
    tick = max(profile.get("span", 0.0), last, 1e-6) / TICKS
    rows: dict[int, list[int]] = {}
    before: dict[int, int] = {}
    for rank, site, start, end, ready in sorted(events, key=lambda event: event[2]):
        at, length = round(start / tick), max(round((end - start) / tick), 0)
        wait = -1 if ready is None else min(max(round((ready - start) / tick), 0), length)
        rows.setdefault(rank, []).extend((site, at - before.get(rank, 0), length, wait))
        before[rank] = at
    return {"stride": timeline.get("stride", 1), "tick": tick, "rows": [[rank, rows[rank]] for rank in sorted(rows)]}


def _of_most_telling_ranks(events: Sequence[Any], profile: Profile, notes: list[str]) -> Sequence[Any]:
    there = {event[0] for event in events}
    if len(there) <= ROWS:
        return events
    waits = {row["rank"]: row.get("blamed", 0) + row.get("late", 0) for row in profile.get("ranks", ())}
    shown = set(sorted(there, key=lambda rank: (-waits.get(rank, 0), rank))[:ROWS])
    notes.append(f"Of {len(there):,} ranks the timeline has the {ROWS} that waited, or were waited for, the longest.")
    return [event for event in events if event[0] in shown]


def _fewer(events: Sequence[Any], notes: list[str]) -> Sequence[Any]:
    """Return at most `EVENTS` events: the slowest, and every so many of the others."""
    if len(events) <= EVENTS:
        return events
    by_length = sorted(events, key=lambda event: event[2] - event[3])
    slowest, others = by_length[: EVENTS // 2], sorted(by_length[EVENTS // 2 :], key=lambda event: event[2])
    every = math.ceil(len(others) / (EVENTS // 2))
    kept = others[::every]
    notes.append(
        f"The timeline has {len(slowest) + len(kept):,} of {len(events):,} recorded calls: "
        f"the slowest, and every {every}th of the others."
    )
    return [*slowest, *kept]
