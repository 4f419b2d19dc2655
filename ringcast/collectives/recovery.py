"""The verbs for going on after a failure: revoke, agree, shrink, as in the fault-tolerance chapter of MPI 5 (ULFM).

A rank that finds a communicator of no use any more revokes it; then the ranks that live agree, and shrink it to a
communicator of their own. The control plane decides on agreement and shrinking (`ringcast.control.agreement`), as it
sees every failure: a rank votes, and waits for the decision in its inbox. So they work on a revoked communicator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import numpy as np

from ringcast._util.safe_text import safe_text
from ringcast.collectives.stage import Group, part
from ringcast.engine.drive import drive
from ringcast.engine.endpoint import Exchange
from ringcast.engine.execute import Steps
from ringcast.engine.recorder import encoded
from ringcast.errors import ArgumentError, CollectiveMismatch, PeerFailed, Revoked, RingcastError, UsageError, Where
from ringcast.protocol.ballots import Ballot
from ringcast.schedules.placement import hosts_of
from ringcast.wire.call import Site, in_words
from ringcast.wire.control_messages import Freed
from ringcast.wire.failure import Failure
from ringcast.wire.votes import AGREE, FLAG_LIMIT, SHRINK, Decision, Verb, Vote

Result = TypeVar("Result")
_LEFT = Failure("it left the job")


def vote(group: Group, verb: Callable[[], Result]) -> Result:
    """Call `agree` or `shrink`; if a signal's handler raises, the next call of the same verb takes up the same vote.

    That may be while the vote is under way, or when it has been decided on: in both cases the result is lost here, but
    not on the other ranks.
    """
    try:
        with group.endpoint.gate:
            result = verb()
    except (UsageError, ArgumentError):
        raise  # of a call that has not voted: another one may be under way, or to be taken up
    except RingcastError:
        group.vote = None
        raise
    group.vote = None
    return result  # no signal gets between: the interpreter looks for them at calls only, and at jumps backwards


def revoke(group: Group, cause: str = "") -> None:
    """Give up the communicator on all ranks; see `Communicator.revoke`. Without a cause, that is the call itself."""
    endpoint = group.endpoint
    cause = cause or f"rank {endpoint.rank} called revoke()"
    with endpoint.gate:
        endpoint.protocol.revoke(group.context, Revoked(endpoint.rank, cause, endpoint.rank))
        endpoint.flush()
        endpoint.revoke(group.context, cause)


def revoked(group: Group) -> bool:
    """Whether the communicator was given up, as far as has come here by now."""
    with group.endpoint.gate:
        group.endpoint.catch_up()
        return group.endpoint.protocol.revoked(group.context)


def failed(group: Group) -> tuple[int, ...]:
    """Return the ranks of the communicator that failed or left, as far as has come here by now."""
    with group.endpoint.gate:
        group.endpoint.catch_up()
    protocol = group.endpoint.protocol
    gone = protocol.lost.union(protocol.failed, protocol.finished)
    return tuple(rank for rank in range(group.size) if group.in_job(rank) in gone)


def acknowledge(group: Group, most: int | None = None) -> int:
    """Take note of the ranks that failed, all or so many of them; return how many are known."""
    group.acknowledged |= frozenset(map(group.in_job, failed(group)[:most]))
    group.endpoint.protocol.acknowledge(group.context, group.acknowledged)
    group.endpoint.unanswered.acknowledged(group.context, group.acknowledged)
    return len(group.acknowledged)


def agree(group: Group, flag: int, timeout: float | None, site: Site) -> int:
    """Return the bitwise and of the flags of all ranks that live; see `Communicator.agree`."""
    return drive(group.endpoint, agreed(group, flag, site), timeout, site)


def agreed(group: Group, flag: int, site: Site) -> Steps[int]:
    """Return the steps of `agree`."""
    if not isinstance(flag, int | np.integer) or not -FLAG_LIMIT <= flag < FLAG_LIMIT:
        expected = f"expected a whole number of 64 bits, got {safe_text(flag)}"
        raise ArgumentError(group.endpoint.rank, AGREE, "flag", expected)
    decision = yield from _agreement(group, AGREE, int(flag), site)
    if decision.unacknowledged:
        first, protocol = decision.unacknowledged[0], group.endpoint.protocol
        why = protocol.failed.get(first, _LEFT)
        raise PeerFailed(
            group.endpoint.rank,
            first,
            why.cause,
            Where(AGREE, decision.number),
            ranks=decision.unacknowledged,
            host=why.host,
            pid=why.pid,
            remote_traceback=why.traceback,
            flag=decision.flag,
        )
    group.endpoint.unanswered.answered(group.context)
    return decision.flag


def shrink(group: Group, timeout: float | None, site: Site) -> Group:
    """Return the ranks that live as a group of their own, in their old order; see `Communicator.shrink`."""
    return drive(group.endpoint, shrunk(group, site), timeout, site)


def shrunk(group: Group, site: Site) -> Steps[Group]:
    """Return the steps of `shrink`; if a member has failed, the old group is given up: no rank waits there any more."""
    group.endpoint.protocol.give_up(group.context)
    group.endpoint.tell_found()
    decision = yield from _agreement(group, SHRINK, 0, site)
    group.endpoint.protocol.enrol(decision.fresh, frozenset(decision.members))
    group.endpoint.tell_found()  # of a member that only this rank has lost
    group.endpoint.unanswered.answered(group.context)
    group.endpoint.unanswered.made(decision.fresh, group.context)
    hosts = hosts_of([group.hosts[group.here(rank)] for rank in decision.members]) if group.hosts else ()
    return part(group, decision.fresh, decision.members, hosts)


def free(group: Group, *, by_all: bool) -> None:
    """End the use of a communicator that was made from another one: all members do, or this rank alone."""
    endpoint = group.endpoint
    if endpoint.closed:
        return
    with endpoint.gate:
        _abandon(group)
        endpoint.protocol.retire(group.context, by_all=by_all)
        endpoint.flush()
        endpoint.control.send(Freed(endpoint.rank, group.context))
        endpoint.unanswered.freed(group.context)


def _agreement(group: Group, verb: Verb, flag: int, site: Site) -> Steps[Decision]:
    """Vote, unless a call that was broken off has voted, and wait for the decision.

    Raises:
        CollectiveMismatch: other ranks want something else; but after revoke, shrink waits until they want that too.
        CollectiveTimeout: not all members that live have voted within the timeout, or they never will, as they wait for
            this rank in another call. The vote stands.
        JobAborted: the job ends.
        UsageError: such a call is under way, in another thread or interrupted by the handler of a signal.
    """
    endpoint = group.endpoint
    if (busy := endpoint.protocol.ballots.of(group.context)) is not None:
        named, other = in_words(verb, site), in_words(busy.vote.verb, busy.site)
        raise UsageError(
            f"rank {endpoint.rank}: {named} while {other} of the same communicator is under way, in another thread or "
            "interrupted by the handler of a signal; call it after that one, or on a communicator of its own (dup)"
        )
    while True:
        cast = _vote(group, verb, flag)
        ballot = Ballot(cast, site, lambda: _awaited(group))
        if group.decision is None:  # else a call that was broken off has waited for it
            endpoint.begin_ballot(ballot, encoded(ballot.call, f"#{cast.number}"))
            yield Exchange(ballot, None, [], False, None, None)
            group.decision = endpoint.protocol.ballots.take(ballot)
            endpoint.recorder.done(ballot)
        decision = group.decision
        peer, theirs = next((each for each in _wanted(decision) if each[1] != verb), (0, verb))
        if theirs != verb and (verb == AGREE or not endpoint.protocol.revoked(group.context)):
            raise CollectiveMismatch(endpoint.rank, peer, verb, theirs, ballot.where, complete=True)
        if theirs == verb:
            return decision
        group.vote = None  # an agree from before that rank was interrupted, or heard that this was revoked


def _vote(group: Group, verb: Verb, flag: int) -> Vote:
    """Return the vote of this call: a new one, or the vote of a call of the same verb that was broken off."""
    cast = group.vote
    if cast is None or cast.verb != verb:
        _abandon(group)
        group.votes += 1
        cast = Vote(group.endpoint.rank, group.context, group.votes, verb, flag, tuple(sorted(group.acknowledged)))
        group.vote, group.decision = cast, None
        group.endpoint.control.send(cast)
    return cast


def _abandon(group: Group) -> None:
    """Give up the last vote if its decision has not been taken, as after a timeout: no call takes it up any more."""
    if group.votes and group.decision is None:
        group.endpoint.protocol.ballots.abandon(group.context, group.votes)


def _wanted(decision: Decision) -> Iterable[tuple[int, str]]:
    """Return the verb that each rank has called."""
    return zip(decision.members, decision.verbs, strict=True)


def _awaited(group: Group) -> tuple[int, ...]:
    """Return the members that may still vote, as ranks of the job."""
    others = map(group.in_job, range(group.size))
    return tuple(rank for rank in others if rank != group.endpoint.rank and not _gone(group, rank))


def _gone(group: Group, rank: int) -> bool:
    protocol = group.endpoint.protocol
    return rank in protocol.failed or rank in protocol.finished
