"""Construction of the errors that a rank raises, and of their descriptions for its peers.

Pure, over one table: the ranks that have failed. `ringcast.protocol.aborting` decides which operations end with an
error, and which peers are notified.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ringcast._util.safe_text import is_a
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
from ringcast.wire.codec import encode
from ringcast.wire.differences import differences
from ringcast.wire.error_text import in_a_line, message
from ringcast.wire.failure import Failure, clean
from ringcast.wire.header import GIVEN_UP_BY, LOST, Header
from ringcast.wire.reports import Deadlock

SHOWN = 8  # tags of messages that were not received


def own_call(op: Operation | None) -> bytes:
    """Return this side of a mismatch for the other one: the call, and in a second line its place in the program."""
    return _lines(str(op.call), op.place) if op is not None else _lines("another call", "")


def own_side(error: CollectiveMismatch) -> bytes:
    """Return the same of an error that says it."""
    return _lines(error.mine, error.my_site)


def _lines(call: str, place: str) -> bytes:
    return f"{call}\n{place}".encode("utf-8", "replace")


def _not_received(peer: int, tags: Sequence[int]) -> str:
    """Return in words that messages of a rank are here which fit no receive; empty where there is none.

    >>> _not_received(2, [5]), _not_received(2, [7] * 9)
    ('; a message of rank 2 with tag 5 was not received', '; 9 messages of rank 2 with tag 7 were not received')
    """
    if len(tags) < 2:
        return f"; a message of rank {peer} with tag {tags[0]} was not received" if tags else ""
    different = [*dict.fromkeys(tags)]
    more = f" and {len(different) - SHOWN} more" if len(different) > SHOWN else ""
    shown = f"tag{'s' if len(different) > 1 else ''} {', '.join(map(str, different[:SHOWN]))}{more}"
    return f"; {len(tags)} messages of rank {peer} with {shown} were not received"


class ErrorFactory:
    """Makes the errors of one rank; holds the ranks that are known to have failed."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self.failed: dict[int, Failure] = {}  # in the order in which they became known
        self.declared: set[int] = set()  # failures that the control plane has declared to all ranks

    # Errors that this rank raises.

    def peer_failed(self, peer: int, where: Where | None, why: Failure | None = None) -> PeerFailed:
        """Return the error for a failed rank; it lists all ranks that are known to have failed."""
        why, ranks = why or self.failed[peer], tuple(self.failed)
        return PeerFailed(
            self.rank, peer, why.cause, where, ranks=ranks, host=why.host, pid=why.pid, remote_traceback=why.traceback
        )

    def reported_failure(self, source: int, peer: int, op: Operation | None, why: Failure) -> RingcastError:
        """Return the error for a failed rank that another rank has reported, before the control plane does."""
        if peer == self.rank:  # the other rank believes that this one failed
            return Revoked(self.rank, f"rank {source}: peer rank {peer} failed: {why.cause}", source)
        return self.peer_failed(peer, op.where if op is not None else None, self.failed.get(peer, why))

    def departed(self, peer: int, op: Operation, exit_record: Failure, tags: Sequence[int]) -> PeerFailed:
        """Return the error of an operation that needs a rank which has left; messages of it with `tags` are here."""
        after = f" after {exit_record.cause}" if exit_record.cause else ""
        cause = f"rank {peer} finished (it left the job{after}), but this rank still communicates with it"
        cause += _not_received(peer, tags)
        return self.peer_failed(peer, op.where, replace(exit_record, cause=cause))

    def freed(self) -> Revoked:
        """Return the error of a communicator that was retired."""
        return Revoked(self.rank, "the communicator was freed")

    def mismatch(self, op: Operation, peer: int, theirs: str) -> CollectiveMismatch:
        """Return the error of an operation for which `peer` has sent what does not fit it."""
        mine = str(op.call)
        differs = differences(mine, theirs)
        return CollectiveMismatch(self.rank, peer, mine, theirs, op.where, my_site=op.place, differs=differs)

    def unexpected(self, state: Context, h: Header) -> CollectiveMismatch:
        """Return the error for a message of an operation that has ended here: its sender made another call."""
        ended = state.ended.get(h.operation)
        mine, site = (str(ended.call), ended.place) if ended is not None else ("a call that has ended", "")
        theirs = "a call with a message that this rank did not expect"
        if ended is not None and ended.fingerprint != h.fingerprint:
            theirs = ended.call.difference(h.fingerprint)
        where, differs = state.where(h.operation), differences(mine, theirs)
        return CollectiveMismatch(self.rank, h.source, mine, theirs, where, my_site=site, differs=differs)

    def explained(self, state: Context, number: int, peer: int, theirs: str, their_site: str) -> CollectiveMismatch:
        """Return the error of a mismatch that is fully known now, with the text of the peer's whole call."""
        op, where, known = state.known(number), state.where(number), state.mismatch_with(peer)
        mine, site = (str(op.call), op.place) if op is not None else ("another call", "")
        if known is not None:
            mine, site, where = known.mine, known.my_site, known.where
            theirs = known.theirs if theirs == mine else theirs  # same text: the difference says more
        elif theirs == mine:
            theirs = "the same, with messages of other sizes"
        sites = {"my_site": site, "their_site": their_site}
        return CollectiveMismatch(
            self.rank, peer, mine, theirs, where, complete=True, **sites, differs=differences(mine, theirs)
        )

    def deadlock(self, op: Operation, found: Deadlock) -> CollectiveTimeout:
        """Return the error of an operation that is in a cycle of waiting ranks."""
        facts = self.rank, op.waiting_for, found.seconds, op.where
        return CollectiveTimeout(*facts, progress=op.progress, cycle=found.cycle, calls=found.calls)

    # Descriptions for its peers.

    def reason(self, error: BaseException) -> str:
        """Return the description of an error for other ranks: its first cause, not the rank that passed it on."""
        if is_a(error, Revoked):
            return error.cause
        if is_a(error, PeerFailed):
            return message(error).partition("\n")[0]  # everyone gets the traceback from the control plane
        return message(error) if is_a(error, RingcastError) else f"rank {self.rank}: {in_a_line(error)}"

    def refusal(self, error: BaseException) -> tuple[bytes, int, int]:
        """Return payload, flags and word of the REFUSE for the error that ended a communicator."""
        if is_a(error, PeerFailed):
            failure = Failure(clean(error.cause), clean(error.remote_traceback), (), error.host, error.pid)
            return encode(failure), LOST, error.peer
        reason = clean(self.reason(error)).encode()
        if is_a(error, Revoked) and error.by is not None:
            return reason, GIVEN_UP_BY, error.by
        return reason, 0, 0
