"""What errors say: the one that a rank raises for what it has found or heard, and what its peers are told of it.

Decisions without effects, over one table: which ranks have failed. Who is told, and what ends with an error, is in
`ringcast.protocol.aborting`.
"""

from __future__ import annotations

from dataclasses import replace

from ringcast.control.deadlocks import Deadlock
from ringcast.errors import (
    CollectiveMismatch,
    CollectiveTimeout,
    PeerFailed,
    Revoked,
    RingcastError,
    Where,
)
from ringcast.protocol.communicators import Context
from ringcast.protocol.operations import Operation
from ringcast.wire.failure import Failure
from ringcast.wire.header import LOST, Header


def own_call(op: Operation | None) -> str:
    """Return what the other side of a mismatch is told of this one: the call, and in a second line its place."""
    return f"{op.call}\n{op.place}" if op is not None else "another call\n"


class ErrorFactory:
    """The errors of one rank, and of which ranks it knows that they have failed."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self.failed: dict[int, Failure] = {}  # in the order in which that was heard

    # What this rank raises.

    def peer_failed(self, peer: int, where: Where | None, why: Failure | None = None) -> PeerFailed:
        """Return the error that tells of a failed rank, and of all that are known to have failed."""
        why, ranks = why or self.failed[peer], tuple(self.failed)
        return PeerFailed(
            self.rank, peer, why.cause, where, ranks=ranks, host=why.host, pid=why.pid, remote_traceback=why.traceback
        )

    def reported_failure(self, source: int, peer: int, op: Operation | None, why: Failure) -> RingcastError:
        """Return the error for a failed rank of which another rank has told, before the control plane does."""
        if peer == self.rank:  # so it seems from there
            return Revoked(self.rank, f"rank {source}: peer rank {peer} failed: {why.cause}", source)
        return self.peer_failed(peer, op.where if op is not None else None, self.failed.get(peer, why))

    def departed(self, peer: int, op: Operation, exit_record: Failure) -> PeerFailed:
        """Return the error of an operation that needs a rank which has left."""
        after = f" after {exit_record.cause}" if exit_record.cause else ""
        cause = f"rank {peer} finished (it left the job{after}), but this rank still communicates with it"
        return self.peer_failed(peer, op.where, replace(exit_record, cause=cause))

    def freed(self) -> Revoked:
        """Return the error of a communicator that was retired."""
        return Revoked(self.rank, "the communicator was freed")

    def mismatch(self, op: Operation, peer: int, theirs: str) -> CollectiveMismatch:
        """Return the error of an operation for which `peer` has sent what does not fit it."""
        return CollectiveMismatch(self.rank, peer, str(op.call), theirs, op.where, my_site=op.place)

    def unexpected(self, state: Context, h: Header) -> CollectiveMismatch:
        """Return the error for a message of an operation that has ended here: its sender does something else."""
        ended = state.ended.get(h.operation)
        mine, site = (str(ended.call), ended.place) if ended is not None else ("a call that has ended", "")
        theirs = "a call with a message that this rank did not expect"
        if ended is not None and ended.fingerprint != h.fingerprint:
            theirs = ended.call.difference(h.fingerprint)
        return CollectiveMismatch(self.rank, h.source, mine, theirs, state.where(h.operation), my_site=site)

    def explained(self, state: Context, number: int, peer: int, theirs: str, their_site: str) -> CollectiveMismatch:
        """Return the error of a mismatch of which all is known now, also the text of their whole call."""
        op, where, known = state.known(number), state.where(number), state.mismatch_with(peer)
        mine, site = (str(op.call), op.place) if op is not None else ("another call", "")
        if known is not None:
            mine, site, where = known.mine, known.my_site, known.where
            theirs = known.theirs if theirs == mine else theirs  # calls that read alike: what was found says more
        elif theirs == mine:
            theirs = "the same, with messages of other sizes"
        return CollectiveMismatch(
            self.rank, peer, mine, theirs, where, complete=True, my_site=site, their_site=their_site
        )

    def deadlock(self, op: Operation, found: Deadlock) -> CollectiveTimeout:
        """Return the error of an operation that waits in a circle."""
        facts = self.rank, op.waiting_for, found.seconds, op.where
        return CollectiveTimeout(*facts, progress=op.progress, circle=found.circle, calls=found.calls)

    # What its peers are told.

    def reason(self, error: BaseException) -> str:
        """Return what other ranks are told of an error: the first cause, not who passed it on."""
        if isinstance(error, Revoked):
            return error.cause
        if isinstance(error, PeerFailed):
            return str(error).partition("\n")[0]  # everyone gets the traceback from the control plane
        return str(error) if isinstance(error, RingcastError) else f"rank {self.rank}: {error!r}"

    def refusal(self, error: BaseException) -> tuple[str, int, int]:
        """Return text, flags and word of the REFUSE that tells a peer what has ended a communicator."""
        if isinstance(error, PeerFailed):
            text = Failure(error.cause, error.host, error.pid, error.remote_traceback).encode().decode()
            return text, LOST, error.peer
        return self.reason(error), 0, 0
