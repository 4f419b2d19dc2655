"""Explain the end of a job by the flight records of all ranks: pure.

After a mismatch, name the ranks whose call differs from most others'. Two ranks that met cannot know which of them is
wrong, and chance decides which two meet first. But all ranks have recorded their calls: the largest group made the
intended call, if no other group is as large. Else all sides are named, and the lowest rank stands for them.

After a message that its rank has not taken, say where its sender sent the last one.

After a timeout of the job, say which ranks wait for which; after one of a call, name the ranks it waited for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from ringcast._util.rank_words import ranks_in_words
from ringcast.errors import MISMATCH, CollectiveMismatch
from ringcast.monitoring.flight_record import Flights, Row, merge, name, place, who_waits
from ringcast.wire.differences import advice
from ringcast.wire.flight import Entry
from ringcast_launcher.decide.by_waits import with_the_awaited
from ringcast_launcher.decide.supervisor import TIMED_OUT
from ringcast_launcher.decide.verdict import Verdict

_SIGNS = (MISMATCH, "it finished without taking", "still communicated with it")  # the others: in the last call
_UNTAKEN = re.compile(r"it finished without taking .* of rank (\d+)")
_CAUGHT = " (raised in "
_CHOSEN = ("algorithm", "nblocks")  # often by ringcast, from the other facts
_FACTS = ("op", "dtype", "shape", "root", *_CHOSEN)
_MOST = 3  # different values that are shown


def explained(verdict: Verdict, flights: Flights) -> Verdict:
    """Return the verdict with the explanation that the records give."""
    if verdict.rank is None:
        waits = who_waits(flights) if verdict.code == TIMED_OUT else ""
        return replace(verdict, how=f"{verdict.how}; {waits}") if waits else verdict
    if not any(sign in verdict.how for sign in _SIGNS):
        return with_the_awaited(verdict, flights)
    row = _row(flights, verdict.rank)
    if row is not None:
        return _mismatch(verdict, row)
    sent = _last_message(flights, verdict.rank, verdict.how)
    return replace(verdict, how=f"{verdict.how}; {sent}") if sent else verdict


def _last_message(flights: Flights, rank: int, how: str) -> str:
    """Return the last send to a rank that left messages of this sender unreceived; empty if not known."""
    found = _UNTAKEN.search(how)
    flight = flights[source] if found and (source := int(found[1])) < len(flights) else None
    sends = [entry for entry in flight.entries if entry.shape.startswith(f"(to {rank},")] if flight else []
    return f"the last one: {name(sends[-1])} at {place(sends[-1])}" if sends else ""


def _mismatch(verdict: Verdict, row: Row) -> Verdict:
    odd, others = _sides(row)
    caught = verdict.how.rfind(_CAUGHT)
    how = f"failed: {CollectiveMismatch.__name__}: {_told(row, odd, others)}"
    how += verdict.how[caught:] if caught > 0 else ""
    # The traceback comes from the rank that met the mismatch, which may differ from the rank named here.
    noticed = verdict.rank if verdict.witness is None else verdict.witness
    return replace(verdict, code=1, rank=odd[0], how=how, witness=None if noticed == odd[0] else noticed)


def _row(flights: Flights, rank: int) -> Row | None:
    """Return the first collective in which calls differ; prefer one of a communicator of `rank`."""
    rows = [row for row in merge(flights) if len({call.fingerprint for call in row.calls.values()}) > 1]
    return next((row for row in rows if rank in row.calls), rows[0] if rows else None)


def _sides(row: Row) -> tuple[list[int], list[list[int]]]:
    """Return the ranks to name, and the groups from which they differ.

    One largest group: all ranks outside of it are named, against this group. Several largest groups: the group of the
    lowest rank is named, against all other groups.
    """
    groups: dict[int, list[int]] = {}
    for rank in sorted(row.calls):
        groups.setdefault(row.calls[rank].fingerprint, []).append(rank)
    first, second, *_ = sorted(groups.values(), key=len, reverse=True)
    if len(first) == len(second):
        lowest, *others = groups.values()
        return lowest, others
    return sorted(set(row.calls).difference(first)), [first]


def _told(row: Row, odd: list[int], others: list[list[int]]) -> str:
    """Return a text on the difference between the calls, with their ranks and places in the program."""
    mine, theirs = row.calls[odd[0]], [row.calls[group[0]] for group in others]
    most = ranks_in_words(sorted(rank for group in others for rank in group))
    here, there = place(mine), _any_of([place(call) for call in theirs])
    if any(mine.collective != call.collective for call in theirs):
        subject = "it" if len(odd) == 1 else ranks_in_words(odd)
        made = _any_of([call.collective for call in theirs])
        return f"{subject} made {name(mine)} at {here}, where {most} made {made} at {there}"
    subject = f"its {name(mine)}" if len(odd) == 1 else f"the {name(mine)} of {ranks_in_words(odd)}"
    places = here if here == there else f"{here}, theirs at {there}"
    return f"{subject} differs from that of {most}: {_facts(mine, theirs)}; at {places}"


def _any_of(values: Sequence[str]) -> str:
    """Return the different values in words, the first ones of many."""
    different = [*dict.fromkeys(values)]
    return " or ".join([*different[:_MOST], *(["others"] if len(different) > _MOST else [])])


def _facts(mine: Entry, theirs: Sequence[Entry]) -> str:
    different = [fact for fact in _FACTS if any(getattr(mine, fact) != getattr(call, fact) for call in theirs)]
    told = [fact for fact in different if fact not in _CHOSEN] or different
    return "; ".join(_difference(fact, mine, theirs) for fact in told) or "other arguments"


def _difference(fact: str, mine: Entry, theirs: Sequence[Entry]) -> str:
    values = _any_of([_shown(call, fact) for call in theirs])
    hints = {_advice(fact, mine, call) for call in theirs if getattr(call, fact) != getattr(mine, fact)}
    hint = hints.pop() if len(hints) == 1 else ""  # one that is right for all ranks
    return f"{_name(fact, mine)} {_shown(mine, fact)}, theirs {values}{hint}"


def _advice(fact: str, *calls: Entry) -> str:
    mine, theirs = ({each: _shown(call, each) for each in _FACTS} for call in calls)
    return advice(fact, calls[0].collective, mine, theirs)


def _name(fact: str, call: Entry) -> str:
    return "counts" if fact == "shape" and call.collective.endswith("v") else fact


def _shown(call: Entry, fact: str) -> str:
    value = getattr(call, fact)
    return "none" if value in (None, "") else str(value)
