"""The begin and the end of training over a communicator: equal versions, and an end for which no rank waits."""

from __future__ import annotations

from ringcast import collectives
from ringcast.communicator import Communicator
from ringcast.communicator.lifetime import group_of
from ringcast.errors import UsageError
from ringcast.wire.error_text import in_a_line


def check_versions(comm: Communicator, library: str, version: str) -> None:
    """Raise UsageError on all ranks if their versions differ.

    Collective.
    """
    versions = comm.allgather(version)
    other = next((rank for rank in range(comm.size) if versions[rank] != versions[0]), 0)
    if other:
        raise UsageError(
            f"rank {comm.members[other]} has {library} {versions[other]}, rank {comm.members[0]} has {versions[0]}; "
            "install one version on all hosts"
        )


def give_up(comm: Communicator, place: str, error: BaseException) -> None:
    """Give up a communicator because of an error; calls of the other ranks on it raise Revoked."""
    if not comm.closed:
        collectives.recovery.revoke(group_of(comm), f"rank {comm.members[comm.rank]} left {place}: {in_a_line(error)}")
