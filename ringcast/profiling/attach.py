"""Begin and end the profile of a rank."""

from __future__ import annotations

from collections.abc import Callable

from ringcast.collectives.stage import Group
from ringcast.engine.profiler import Profiler
from ringcast.errors import UsageError
from ringcast.profiling.part import Part, part_of


def attach(group: Group, save: Callable[[Part], None] | None = None) -> None:
    """Let a rank be profiled from now on; `save` gets its part, again and again, and when the rank leaves.

    Raises:
        UsageError: it is profiled already.
    """
    endpoint = group.endpoint
    if endpoint.profiler is not None:
        why = "a profile is under way already, of the whole job (--profile) or of another block"
        raise UsageError(f"rank {endpoint.rank}: {why}: only one at a time is recorded")
    keep = None if save is None else lambda profiler: save(part_of(endpoint, profiler, group.network))
    endpoint.profiler = Profiler(endpoint.recorder, endpoint.size, endpoint.transport.clock, keep)
    endpoint.recorder = endpoint.profiler


def detach(group: Group) -> Part:
    """End the profile of a rank, and return its part."""
    endpoint = group.endpoint
    profiler: Profiler = endpoint.profiler
    endpoint.recorder, endpoint.profiler = profiler.plain(), None
    return part_of(endpoint, profiler, group.network)
