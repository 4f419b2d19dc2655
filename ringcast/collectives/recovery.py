"""Going on after a failure, with the meaning of the fault-tolerance chapter of MPI 5 (ULFM): the verbs.

Whoever finds that a communicator is of no use any more revokes it; then the ranks that live agree, and shrink it to a
communicator of their own. Agreement and shrinking are decided by the control plane (`ringcast.control.agreement`), as
it sees every failure: a rank votes, and waits for the decision in its inbox. So they work on a revoked communicator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import numpy as np

from ringcast.collectives.stage import Group, part
from ringcast.engine.drive import QUIET
from ringcast.errors import (
    ArgumentError,
    CollectiveMismatch,
    CollectiveTimeout,
    JobAborted,
    PeerFailed,
    Revoked,
    RingcastError,
    Where,
)
from ringcast.monitoring.recorder import encoded
from ringcast.protocol.operations import Operation
from ringcast.schedules.placement import hosts_of
from ringcast.wire.call import Call, Site
from ringcast.wire.control_messages import Freed
from ringcast.wire.failure import Failure
from ringcast.wire.header import P2P
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
    except RingcastError:
        group.vote = None
        raise
    group.vote = None
    return result  # no signal gets between: the interpreter looks for them at calls only, and at jumps backwards


def revoke(group: Group) -> None:
    """Give up the communicator on all ranks; see `Communicator.revoke`."""
    endpoint = group.endpoint
    cause = f"rank {endpoint.rank} called revoke()"
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
    return tuple(rank for rank in range(group.size) if _gone(group, group.in_job(rank)))


def acknowledge(group: Group) -> int:
    """Take note of the ranks that failed; return how many there are."""
    group.acknowledged = frozenset(map(group.in_job, failed(group)))
    return len(group.acknowledged)


def agree(group: Group, flag: int, timeout: float | None, site: Site) -> int:
    """Return the bitwise and of the flags of all ranks that live; see `Communicator.agree`."""
    if not isinstance(flag, int | np.integer) or not -FLAG_LIMIT <= flag < FLAG_LIMIT:
        expected = f"expected a whole number of 64 bits, got {flag!r}"
        raise ArgumentError(group.endpoint.rank, AGREE, "flag", expected)
    decision = _decide(group, AGREE, int(flag), timeout, site)
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
    decision = _decide(group, SHRINK, 0, timeout, site)
    group.endpoint.protocol.enrol(decision.fresh, frozenset(decision.members))
    group.endpoint.tell_found()  # of a member that only this rank has lost
    group.endpoint.unanswered.answered(group.context)
    group.endpoint.unanswered.made(decision.fresh, group.context)
    hosts = hosts_of([group.hosts[group.here(rank)] for rank in decision.members]) if group.hosts else ()
    return part(group, decision.fresh, decision.members, hosts)


def free(group: Group) -> None:
    """End the use of a communicator that was made from another one."""
    endpoint = group.endpoint
    if endpoint.closed:
        return
    with endpoint.gate:
        endpoint.protocol.retire(group.context)
        endpoint.flush()
        endpoint.control.send(Freed(endpoint.rank, group.context))
        endpoint.unanswered.freed(group.context)


def _decide(group: Group, verb: Verb, flag: int, timeout: float | None, site: Site) -> Decision:
    """Vote, unless a call that was broken off has done so, and wait for what is decided.

    Raises:
        CollectiveMismatch: other ranks want something else; but after revoke, shrink waits until they want that too.
        CollectiveTimeout: not all members that live have voted within `timeout` seconds, or they never will, as they
            wait for this rank in another call. The vote stands.
        JobAborted: the job ends.
    """
    endpoint = group.endpoint
    start = endpoint.transport.clock()
    while True:
        cast = _vote(group, verb, flag)
        op = Operation(group.context, P2P, Call(verb), False, 1, site)  # as the flight recorder knows calls
        endpoint.recorder.begin(op, encoded(op.call, f"#{cast.number}"))
        try:
            if group.decision is None:
                group.decision = _await_decision(group, cast, op, start, timeout)
            decision = group.decision
            peer, theirs = next((each for each in _wanted(decision) if each[1] != verb), (0, verb))
            if theirs == verb:
                endpoint.recorder.done(op)
                return decision
            if verb == AGREE or not endpoint.protocol.revoked(group.context):
                raise CollectiveMismatch(endpoint.rank, peer, verb, theirs, Where(verb, cast.number), complete=True)
        except BaseException:
            endpoint.recorder.failed(op, _awaited(group))
            raise
        # An agree from before that rank was interrupted, or heard that this was revoked: it will shrink as well.
        endpoint.recorder.done(op)
        group.vote = None


def _vote(group: Group, verb: Verb, flag: int) -> Vote:
    """Return the vote of this call: a new one, or that of a call of the same verb that was broken off."""
    cast = group.vote
    if cast is None or cast.verb != verb:
        group.votes += 1
        cast = Vote(group.endpoint.rank, group.context, group.votes, verb, flag, tuple(sorted(group.acknowledged)))
        group.vote, group.decision = cast, None
        group.endpoint.control.send(cast)
    return cast


def _wanted(decision: Decision) -> Iterable[tuple[int, str]]:
    """Return the verb that each rank has called."""
    return zip(decision.members, decision.verbs, strict=True)


def _await_decision(group: Group, vote: Vote, op: Operation, start: float, timeout: float | None) -> Decision:
    endpoint, protocol = group.endpoint, group.endpoint.protocol
    where, key = Where(vote.verb, vote.number), (vote.context, vote.number)
    clock, times = endpoint.transport.clock, 0
    now = clock()
    try:
        while key not in protocol.decisions:
            if protocol.aborted is not None:
                raise JobAborted(endpoint.rank, protocol.aborted, where, _awaited(group))
            if (found := protocol.stuck.pop(key, None)) is not None:
                facts = endpoint.rank, _awaited(group), found.seconds, where
                raise CollectiveTimeout(*facts, cycle=found.cycle, calls=found.calls)
            if timeout is not None and now >= start + timeout:
                raise CollectiveTimeout(endpoint.rank, _awaited(group), timeout, where)
            if now >= start + (times + 1) * QUIET:
                times += 1
                awaited = _awaited(group)
                endpoint.recorder.waits(op, awaited)
                report = protocol.report_vote(vote, op.place, awaited, seconds=now - start, times=times)
                endpoint.tell_stall(report)
            due = start + (times + 1) * QUIET
            endpoint.progress(due if timeout is None else min(due, start + timeout))
            now = clock()
    finally:
        if times:
            endpoint.moves()
    return protocol.decisions.pop(key)


def _awaited(group: Group) -> tuple[int, ...]:
    """Return the members that may still vote, as ranks of the job."""
    others = map(group.in_job, range(group.size))
    return tuple(rank for rank in others if rank != group.endpoint.rank and not _gone(group, rank))


def _gone(group: Group, rank: int) -> bool:
    protocol = group.endpoint.protocol
    return rank in protocol.failed or rank in protocol.finished
