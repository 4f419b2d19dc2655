"""The begin and the end of training over a communicator: equal versions, and an end for which no rank waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ringcast import collectives
from ringcast.communicator import Communicator
from ringcast.communicator.lifetime import group_of
from ringcast.errors import UsageError
from ringcast.wire.error_text import in_a_line


def loaded(comm: Communicator, library: str, load: Callable[[int], tuple[Any, str]]) -> Any:
    """Return the module that `load` returns with its version, if all ranks can load it, in one version.

    Collective.

    Raises:
        UsageError: on all ranks: `load` has raised it on one of them, or versions differ.
    """
    module, version, error = None, "", None
    try:
        module, version = load(comm.rank)
    except UsageError as found:
        error = found
    versions, errors = zip(*comm.allgather((version, error and str(error))), strict=True)
    if any(errors):
        raise error or UsageError(next(filter(None, errors)))
    other = next((rank for rank in range(comm.size) if versions[rank] != versions[0]), 0)
    if other:
        raise UsageError(
            f"rank {comm.members[other]} has {library} {versions[other]}, rank {comm.members[0]} has {versions[0]}; "
            "install one version on all hosts"
        )
    return module


def give_up(comm: Communicator, place: str, error: BaseException) -> None:
    """Give up a communicator because of an error; calls of the other ranks on it raise Revoked."""
    if not comm.closed:
        collectives.recovery.revoke(group_of(comm), f"rank {comm.members[comm.rank]} left {place}: {in_a_line(error)}")
