"""The moments of one call on all ranks side by side: which rank waited for which.

A rank is *late* for a call as long as it has not made it, and another rank, which needs it there, is in the call. Which
ranks one needs follows from the collective: all others for allreduce; for bcast the root, and where the messages of the
algorithm are known, the ranks that pass the data on to it; among neighbours the ranks that it receives from. Of a
message between two ranks the receiver needs the sender; a sender needs the receiver too, where the message is not sent
at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Any, NamedTuple, TypeAlias

from ringcast.engine.profiler import MESSAGES, is_kept
from ringcast.wire.header import STAGES, call_of

FROM_ROOT = frozenset({"bcast", "bcast_into", "scatter", "scatterv"})
TO_ROOT = frozenset({"reduce", "gather", "gatherv"})
FROM_LOWER = frozenset({"scan", "exscan"})
OF_NEIGHBORS = "neighbor_"  # begins names of collectives; only the ranks themselves know their neighbours

SOON = 1e-3  # seconds by which clocks of hosts may differ, after they were compared
MISMATCHED = 0.5  # share of the messages of a way; a sender may lose its processor before it takes note of the send
Way: TypeAlias = tuple[int, int, int, int]  # communicator, source, destination, tag


class Moment(NamedTuple):
    """The time that one rank was in a call."""

    rank: int  # in the job
    tally: int  # of this rank
    number: int  # of the operation; of a message, how many there were on its way, with it
    began: float
    ended: float
    waits: float  # since then the program waits for it: from the beginning, but for requests


class Call(NamedTuple):
    """A call, or a message between two ranks, as its ranks have recorded it."""

    collective: str
    root: int | None  # rank in the job; of a message the one that sends it
    members: Sequence[int]  # ranks in the job, by rank of the communicator
    moments: list[Moment]
    others: list[Moment]  # of ranks that these may need, in exchanges in which they wait for another message
    way: Way | None  # of a message
    sources: Mapping[int, frozenset[int]] | None  # by rank: the ranks whose data come to it, if that is known


class Wait(NamedTuple):
    """The last rank that another one needs in a call, and when it has made the call."""

    ready: float
    rank: int


def calls_of(parts: Sequence[Mapping[str, Any]], shift: Sequence[float]) -> Iterator[Call]:
    """Yield the calls that ranks have recorded; `shift[i]` is added to the times of part i."""
    stride = max((part["stride"] for part in parts), default=1)
    calls: dict[Any, Call] = {}
    known = _known_sources(parts)
    for i, part in enumerate(parts):
        by, rank = shift[i], part["rank"]
        for tally_number, op, other, began, ended, waited, *met in part["moments"]:
            tally = part["tallies"][tally_number]
            moment = Moment(rank, tally_number, op, began + by, ended + by, waited + by)
            if tally["ends"] is not None:
                _add_message(calls, tally, moment, other, met, stride)
            elif is_kept(call_of(op), stride):  # else not all ranks have kept it
                key = tally["context"], op
                if key not in calls:
                    members, root = members_of(part, tally["context"]), tally["root"]
                    root = None if root is None else members[root]
                    calls[key] = Call(tally["collective"], root, members, [], [], None, known.get(_of_sources(tally)))
                calls[key].moments.append(moment)
    yield from (call for call in calls.values() if call.moments)


def _add_message(
    calls: dict[Any, Call], tally: Mapping[str, Any], moment: Moment, received: int, met: Sequence[int], stride: int
) -> None:
    """Add the moment of a message to its call, in which both ends meet; an exchange is part of two calls."""
    dest, _, tag = tally["ends"]
    context, rank, sent = tally["context"], moment.rank, moment.number
    collective = tally["collective"]
    if met and received and is_kept(received, stride):
        _message(calls, collective, (context, met[0], rank, met[1], received)).moments.append(moment)
    if dest and sent and is_kept(sent, stride):
        call = _message(calls, collective, (context, rank, int(dest), int(tag), sent))
        (call.others if met else call.moments).append(moment)


def _message(calls: dict[Any, Call], collective: str, key: tuple[int, int, int, int, int]) -> Call:
    """Return the call of a message: communicator, source, destination, tag, and how many there were, with it."""
    return calls.setdefault(("message", *key), Call(collective, key[1], (), [], [], key[:4], None))


def matched(calls: Sequence[Call]) -> list[Call]:
    """Return calls without the messages on ways where most messages have come before they were sent.

    There the ends do not match: a message was under way when the profile began, and each end has counted from then on.
    """
    of, early = Counter(call.way for call in calls), Counter(call.way for call in calls if _came_too_soon(call))
    wrong = {way for way, count in early.items() if count > MISMATCHED * of[way]}
    return [call for call in calls if call.way not in wrong] if wrong else [*calls]


def _came_too_soon(call: Call) -> bool:
    if call.way is None:
        return False
    sent = [moment.began for moment in (*call.moments, *call.others) if moment.rank == call.root]
    came = [moment.ended for moment in call.moments if moment.rank != call.root]
    return bool(sent and came) and came[0] < sent[0] - SOON


def members_of(part: Mapping[str, Any], context: int) -> Sequence[int]:
    """Return the ranks in the job of a communicator, by their rank there."""
    return part["contexts"].get(str(context)) or range(part["size"])


def _of_sources(tally: Mapping[str, Any]) -> tuple[object, ...]:
    """Return the facts on which the sources of ranks depend: each communicator has its own neighbours."""
    if tally["collective"].startswith(OF_NEIGHBORS):
        return (tally["context"],)
    names = "context", "collective", "algorithm", "nblocks", "dtype", "shape", "root", "op"
    return tuple(tally[name] for name in names)


def _known_sources(parts: Sequence[Mapping[str, Any]]) -> dict[tuple[object, ...], dict[int, frozenset[int]]]:
    """Return for each rank of the job the ranks whose data come to it, in rooted collectives and among neighbours."""
    found: dict[tuple[object, ...], dict[int, frozenset[int]]] = {}
    for part in parts:
        for tally in part["tallies"]:
            if tally["messages"] and tally["collective"] in FROM_ROOT | TO_ROOT:
                members = members_of(part, tally["context"])
                found[_of_sources(tally)] = _sources(tally["messages"], members)
            elif tally["collective"].startswith(OF_NEIGHBORS) and tally["sources"]:
                found.setdefault(_of_sources(tally), {})[part["rank"]] = frozenset(tally["sources"])
    return found


def _sources(messages: Sequence[Sequence[int]], members: Sequence[int]) -> dict[int, frozenset[int]]:
    """Return for each rank the ranks whose data come to it, by messages in the order of rounds.

    >>> _sources([(0, 0, 1, 8), (1, 1, 2, 8)], range(3))[2]
    frozenset({0, 1})
    """
    direct: dict[int, set[int]] = {rank: set() for rank in members}
    for _, source, dest, _ in messages:
        direct[members[dest]] |= direct[members[source]] | {members[source]}
    return {rank: frozenset(ranks - {rank}) for rank, ranks in direct.items()}


def waits(call: Call, waiting: Sequence[Moment], others: Sequence[Moment]) -> list[Wait | None]:
    """Return for each of the waiting ranks the last of the others that it needs; None if that is not known, or none.

    In a later stage of a call all ranks have made the call.

    Takes O(n log n) for n moments, and the number of all sources.
    """
    collective, root, members, moments, *_, sources = call
    later = moments[0].number % STAGES and collective not in MESSAGES
    if later or (sources is None and collective.startswith(OF_NEIGHBORS)):
        return [None] * len(waiting)
    if sources is not None:
        made = {moment.rank: Wait(moment.began, moment.rank) for moment in others}
        return [max((made[r] for r in sources.get(m.rank, ()) if r in made), default=None) for m in waiting]
    if collective in FROM_ROOT:
        found = [moment for moment in others if moment.rank == root]
        wait = Wait(found[0].began, found[0].rank) if found else None
        return [None if moment.rank == root else wait for moment in waiting]
    if collective in FROM_LOWER:
        return _lower(members, waiting, others)
    last = sorted(others, key=lambda moment: moment.began)[-2:]
    needed: list[Wait | None] = []
    for moment in waiting:
        found_last = [Wait(each.began, each.rank) for each in last if each.rank != moment.rank]
        needed.append(found_last[-1] if found_last and (collective not in TO_ROOT or moment.rank == root) else None)
    return needed


def _lower(members: Sequence[int], waiting: Sequence[Moment], others: Sequence[Moment]) -> list[Wait | None]:
    place = {rank: i for i, rank in enumerate(members)}
    began = {place[moment.rank]: moment.began for moment in others}
    needed: dict[int, Wait | None] = {}
    last = Wait(-inf, -1)
    for i, rank in enumerate(members):
        needed[rank] = last if last.rank >= 0 else None
        if i in began:
            last = max(last, Wait(began[i], rank))
    return [needed[moment.rank] for moment in waiting]


def late(moment: Moment, wait: Wait | None) -> float:
    """Return the seconds that a rank waited for one that had not made the call yet."""
    return 0.0 if wait is None else min(max(0.0, wait.ready - moment.waits), moment.ended - moment.waits)


def alone(moment: Moment, wait: Wait | None) -> float:
    """Return the seconds that a rank was in a call, waiting or not, before another one had made it."""
    return late(moment._replace(waits=moment.began), wait)
