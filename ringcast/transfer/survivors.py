"""Go on without the ranks that were lost during a copy."""

from __future__ import annotations

from ringcast.errors import PeerFailed, Revoked
from ringcast.transfer.records import Ranks


def survivors(comm: Ranks, error: PeerFailed | Revoked) -> tuple[Ranks, dict[int, str]]:
    """Return the communicator of the ranks that are left, and why each of the others was lost.

    All ranks call this, each with the error that it has met.
    """
    try:
        comm.agree(1)  # which knows the cause, also where another rank has found it
    except PeerFailed as failed:
        error = failed
    rest = comm.shrink()
    lost = {}
    for member in sorted(set(comm.members) - set(rest.members)):
        cause = error.cause if isinstance(error, PeerFailed) and member in error.ranks else str(error)
        lost[member] = f"lost: {cause}"
    return rest, lost
